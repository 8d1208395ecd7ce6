# SPDX-License-Identifier: Apache-2.0
"""What a member sends does not grow with the federation, and a newcomer is of use soon.

`python -m pytest -n 0 -s --slow tests/network/members/test_size.py` prints what docs/decisions/0080 says.
"""

from __future__ import annotations

from statistics import fmean

import pytest

from pens.network.members.rules import MembershipRules
from tests.network.members.worlds import World

CALL_BYTES = 760
"""Of a call and its answer on an open connection besides the two messages: HTTP/2 and TLS 360, the rest TCP and IP.
Measured over gRPC on loopback, with names of about a dozen letters: 1,440 where the messages have 1,080."""
CONNECTION_BYTES = 15_000
"""Of a new connection to another member: two handshakes with certificates on both sides, and the call Introduce.
Measured likewise: 13,400, besides TCP and IP."""


def sent_per_s(world: World, seconds: int) -> float:
    """Bytes that a member sends per second, on average: messages as they are encoded, and what a connection adds."""
    calls, connections = world.exchanges, world.connections
    weighed, size = world.weighed, world.bytes
    world.run(seconds)
    per_call = (world.bytes - size) / (world.weighed - weighed)
    calls, connections = world.exchanges - calls, world.connections - connections
    total = calls * (per_call + CALL_BYTES) + connections * CONNECTION_BYTES
    return total / seconds / len(world.members)


def in_view_of(world: World, me: int) -> int:
    """How many members draw from views that this one is in."""
    return sum(f"m{me}" in {r.name for r in m.members(world.now, "alive")} for m in world.members)


@pytest.mark.parametrize(
    ("size", "view", "before", "seconds"),
    [
        (50, 256, 10, 20),
        pytest.param(1000, 256, 30, 30, marks=pytest.mark.slow),
        pytest.param(10_000, 256, 3, 10, marks=pytest.mark.slow),
    ],
)
def test_a_member_sends_less_than_5_kb_per_second_and_a_newcomer_is_of_use_within_a_minute(
    size: int, view: int, before: int, seconds: int
) -> None:
    world = World(size, rules=MembershipRules(view=view), trusting=False, weigh_every=max(1, size // 50))
    world.acquaint()
    world.connect_partners()
    world.run(before)
    sent = sent_per_s(world, seconds)
    print(f"\n{size} members: {sent:.0f} bytes per second")
    assert sent < 5000
    newcomer = world.join()
    fair = min(view, size)
    for second in (1, 4, 5, 20) if size < 10_000 else (1, 4, 5):
        world.run(second)
        drawn = in_view_of(world, newcomer)
        print(f"{second} s later: the newcomer sees {len(world.seen(newcomer))}, and {drawn} see it")
    assert len(world.seen(newcomer)) >= 0.95 * fair
    assert drawn >= 0.25 * fair
    print(f"members that are there, in the view of one: {fmean(len(world.seen(me)) for me in range(0, size, 10)):.0f}")

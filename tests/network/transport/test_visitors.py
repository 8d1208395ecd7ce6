# SPDX-License-Identifier: Apache-2.0
"""Connections have bounds by host, by member and in all, and the right one gives way."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.network.transport.limits import Limits
from pens.network.transport.visitors import Visitors, place_of

LIMITS = Limits(incoming_connections=8, connections_of_member=2, connections_of_host=3)  # 7 for members


def test_of_one_member_the_connection_that_it_used_longest_ago_gives_way() -> None:
    visitors: Visitors[str] = Visitors(LIMITS)
    for at, name in enumerate(("first", "second", "third")):
        assert not visitors.arrive(name, "h", at)
    assert not visitors.recognise("first", "mallory", 3)
    assert not visitors.recognise("second", "mallory", 4)
    assert not visitors.recognise("first", "mallory", 5)
    assert visitors.recognise("third", "mallory", 6) == ["second"]
    assert list(visitors) == ["first", "third"]


def test_connections_that_carry_tunnels_give_way_to_none_and_count_for_all_alone() -> None:
    visitors: Visitors[int] = Visitors(LIMITS)
    visitors.arrive(0, "h", 0)
    visitors.recognise(0, "alice", 0)
    with visitors.carrying(0):
        for n in (1, 2):
            visitors.arrive(n, "h", n)
            assert not visitors.recognise(n, "alice", n), "two beside the tunnel"
        visitors.arrive(3, "h", 3)
        assert visitors.recognise(3, "alice", 3) == [1]
    visitors.arrive(4, "h", 4)
    assert visitors.recognise(4, "alice", 4) == [0], "the tunnel is over"


def test_where_all_connections_carry_tunnels_none_gives_way() -> None:
    visitors: Visitors[int] = Visitors(LIMITS)
    with ExitStack() as tunnels:
        for n in range(8):
            visitors.arrive(n, f"h{n}", n)
            assert not visitors.recognise(n, f"m{n}", n)
            tunnels.enter_context(visitors.carrying(n))
        assert not visitors.arrive(8, "new", 8)


def test_of_one_host_the_oldest_stranger_gives_way_and_members_do_not() -> None:
    visitors: Visitors[int] = Visitors(LIMITS)
    visitors.arrive(0, "h", 0)
    visitors.recognise(0, "alice", 0)
    gone = [visitors.arrive(n, "h", n) for n in range(1, 6)]
    assert gone == [[], [], [], [1], [2]]
    assert visitors.member_of(0) == "alice"


def test_a_stranger_finds_room_whatever_members_hold() -> None:
    """Four members with two connections each would be all eight: the seventh bound leaves one to strangers."""
    visitors: Visitors[int] = Visitors(LIMITS)
    gone = []
    for n in range(8):
        gone += visitors.arrive(n, f"h{n}", n)
        gone += visitors.recognise(n, f"m{n // 2}", n)
    assert gone == [0]
    assert not visitors.arrive(8, "newcomer", 8)


def test_of_all_the_host_with_most_strangers_gives_way() -> None:
    visitors: Visitors[int] = Visitors(LIMITS)
    for n, host in enumerate("abbcccdd"):
        visitors.arrive(n, host, n)
    assert visitors.arrive(8, "e", 8) == [3]


STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.sampled_from("abcdef")), max_size=80)


@given(STEPS)
def test_no_bound_is_ever_exceeded(steps: list[tuple[bool, int, str]]) -> None:
    visitors: Visitors[int] = Visitors(LIMITS)
    hosts: dict[int, str] = {}
    for now, (calls, which, who) in enumerate(steps):
        before = list(visitors)
        if calls and before:
            new = before[which % len(before)]
            gone = visitors.recognise(new, hosts[new], now)
        else:
            new = 1000 + now
            hosts[new] = who
            gone = visitors.arrive(new, who, now)
        assert new not in gone
        assert set(gone) <= set(before)
        strangers = Counter(hosts[c] for c in visitors if visitors.member_of(c) is None)
        known = Counter(member for c in visitors if (member := visitors.member_of(c)))
        assert len(visitors) <= 8
        assert known.total() <= 7
        assert max(strangers.values(), default=0) <= 3
        assert max(known.values(), default=0) <= 2


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_by_what_strangers_are_counted(host: str, place: str) -> None:
    assert place_of(host) == place

# SPDX-License-Identifier: Apache-2.0
"""A third of the members lie, together and all the time: what honest members know of each other stays the truth."""

from __future__ import annotations

import pytest

from pens.network.members.rules import MembershipRules
from pens.network.transport.interface import Address
from tests.network.members.worlds import LIES, World, knowledge


def lied_to(size: int, seconds: int, view: int = 256) -> World:
    """Members that know each other, and then a third that lies for so long. In a small federation one left just before,
    and is back: with more members it takes minutes until all know that, with liars or without."""
    world = World(size, seed=size, rules=MembershipRules(view=view), trusting=False)
    world.acquaint()
    world.run(20)
    before, again = world.members[1], world.born(1, 1)
    again.restore(before.state(world.now), world.now)
    if size <= 50:
        before.leave()
    world.lie(range(size - size // 3, size))
    if size <= 50:
        world.members[1] = again
    world.run(seconds)
    return world


@pytest.mark.parametrize(
    ("size", "seconds"),
    [
        (10, 90),
        (50, 60),
        pytest.param(200, 120, marks=pytest.mark.slow),
        pytest.param(1000, 120, marks=pytest.mark.slow),
    ],
)
def test_what_honest_members_know_of_each_other_is_true_among_liars(size: int, seconds: int) -> None:
    world = lied_to(size, seconds)
    found = knowledge(world)
    print(f"\n{size} members, {size // 3} liars: {found}")
    assert (found.wrong, found.left, found.finished) == (0, 0, 0)
    assert found.alive > (0.98 if size <= 50 else 0.95)
    assert found.known > 0.99 * min(1, world.rules.view / size)
    for me in world.honest():
        mine = world.members[me]
        assert not mine.me.left
        assert not mine.me.finished
        assert all(known.record.name.startswith("m") for known in mine._roster)  # no name that was invented
        assert all(known.record.address != Address("evil", 9) for known in mine._roster)
        assert len(mine._roster) <= world.rules.view
    assert sum(world.members[me].forged for me in world.honest()) > 0


@pytest.mark.parametrize("what", LIES)
def test_every_lie_alone_is_told_in_the_attack(what: str) -> None:
    """So that none of them is silently left out: each tells something that an honest member would not."""
    world = World(9, trusting=False)
    world.acquaint()
    world.run(5)
    world.lie(range(6, 9))
    told = [member.me for member in world.members]
    lies = LIES[what](world, range(6, 9), told)
    honest = {world.members[me].me for me in range(6)}
    assert (what == "nothing") == (not lies)
    assert what == "old records" or not honest & set(lies)


def test_a_newcomer_joins_among_liars_and_is_known() -> None:
    """The only member whose address it knows is honest."""
    world = lied_to(20, 20)
    newcomer = world.join()
    world.run(40)
    honest = set(world.honest()) - {newcomer}
    assert honest <= world.seen(newcomer)
    assert all(newcomer in world.seen(me) for me in honest)

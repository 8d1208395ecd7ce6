# SPDX-License-Identifier: Apache-2.0
"""The sample of members: as large as may be, uniform, whatever others tell how often, and another one after a time."""

from __future__ import annotations

from collections import Counter
from itertools import cycle

import pytest
from scipy.stats import chisquare

from pens.network.members.roster import Roster
from pens.network.members.rules import MembershipRules
from pens.network.transport.interface import Address, MemberRecord
from tests.network.members.worlds import World

ADDRESS = Address("host", 1)


def known(name: int) -> MemberRecord:
    return MemberRecord(f"m{name}", ADDRESS, 1, 0)


def roster_of(size: int, secret: int, redraw_s: float = 3600.0, gone: frozenset[str] = frozenset()) -> Roster:
    return Roster(size, secret, redraw_s, lambda member, _: member.record.name in gone)


def names(roster: Roster) -> set[str]:
    return {member.record.name for member in roster.sample()}


def test_a_small_federation_is_known_as_a_whole() -> None:
    roster = roster_of(10, 0)
    for name in range(10):
        assert roster.add(known(name), 0.0, 0.0, 0.0)
    assert names(roster) == {f"m{name}" for name in range(10)}
    assert roster.estimate == 10


def test_the_sample_is_that_of_the_lowest_ranks_in_whatever_order_names_come() -> None:
    forwards, backwards = roster_of(5, 7), roster_of(5, 7)
    for name in range(40):
        forwards.add(known(name), 0.0, 0.0, 0.0)
        backwards.add(known(39 - name), 0.0, 0.0, 0.0)
    assert names(forwards) == names(backwards)
    assert len(forwards) == 5
    for name in range(40):
        assert forwards.has_room_for(f"m{name}", 0.0) is False or f"m{name}" in names(forwards)
    assert sorted(m.record.name for m in forwards) == sorted(names(forwards))  # nothing else is held


def test_members_are_sampled_uniformly_and_a_name_that_is_told_often_is_not_sampled_more_often() -> None:
    """Of 60 members, each of 200 others samples 15; members 0 to 19 are told six times as often, and last."""
    seen: Counter[str] = Counter()
    for secret in range(200):
        roster = roster_of(15, secret)
        for name in [*range(60), *(list(range(20)) * 5)]:
            roster.add(known(name), 0.0, 0.0, 0.0)
        seen.update(names(roster))
    counts = [seen[f"m{name}"] for name in range(60)]
    assert sum(counts) == 200 * 15
    # a sample has no name twice, so counts vary less than chi-squared assumes: a small p-value would be a bias
    assert chisquare(counts).pvalue > 0.01
    assert abs(sum(counts[:20]) / sum(counts) - 1 / 3) < 0.03


def test_the_number_of_members_is_estimated_by_the_ranks() -> None:
    estimates = []
    for secret in range(10):
        roster = roster_of(64, secret)
        for name in range(1000):
            roster.add(known(name), 0.0, 0.0, 0.0)
        roster.has_room_for("m0", 100.0)
        estimates.append(roster.estimate)
    assert 850 < sum(estimates) / 10 < 1150


def test_the_sample_is_another_one_after_an_hour_and_changes_slowly() -> None:
    roster = roster_of(20, 3)
    at = {}
    for minute, name in zip(range(180 * 10), cycle(range(200)), strict=False):
        now = minute * 6.0
        for other in range(name, name + 10):
            roster.add(known(other % 200), now, now, now)
        at[int(now)] = names(roster)
    first, soon, later = at[3600], at[3900], at[9000]
    assert len(first & soon) > 12
    assert len(first & later) < 8


def test_a_member_that_is_gone_makes_way_for_anyone() -> None:
    gone = {"m3"}
    roster = Roster(5, 1, 3600.0, lambda member, _: member.record.name in gone)
    for name in range(5):
        roster.add(known(name), 0.0, 0.0, 0.0)
    newcomers = [name for name in range(5, 50) if roster.has_room_for(f"m{name}", 0.0)]
    assert newcomers == list(range(5, 50))
    roster.add(known(5), 0.0, 0.0, 0.0)
    assert "m3" not in names(roster)
    assert "m5" in names(roster)


def test_guests_are_kept_beside_the_sample_as_long_as_they_are_needed() -> None:
    roster = roster_of(2, 1)
    for name in range(30):
        roster.add(known(name), 0.0, 0.0, 0.0)
    outside = [name for name in range(30) if f"m{name}" not in names(roster)]
    neighbour, sender, caller = outside[:3]
    roster.keep_neighbours([f"m{neighbour}"])
    roster.keep_sender(f"m{sender}")
    roster.keep_caller(f"m{caller}")
    for name in (neighbour, sender, caller):
        assert roster.add(known(name), 1.0, 1.0, 1.0)
    assert {member.record.name for member in roster.guests()} == {f"m{neighbour}", f"m{sender}"}
    assert len(roster) == 2
    roster.keep_neighbours([])
    assert roster.get(f"m{neighbour}") is None
    for other in range(1000, 1128):
        roster.keep_sender(f"m{other}")
        roster.keep_caller(f"m{other}")
    assert roster.get(f"m{sender}") is roster.get(f"m{caller}") is None


def test_a_neighbour_that_leaves_the_sample_stays_known() -> None:
    roster = roster_of(3, 5)
    for name in range(3):
        roster.add(known(name), 0.0, 0.0, 0.0)
    roster.keep_neighbours(["m0", "m1", "m2"])
    for name in range(3, 60):
        roster.add(known(name), 0.0, 0.0, 0.0)
    assert len(roster) == 3
    assert all(roster.get(f"m{name}") for name in range(3))


@pytest.mark.slow
@pytest.mark.parametrize("liars", [0, 100])
def test_views_in_a_large_federation_are_uniform(liars: int) -> None:
    """300 members that keep track of 30 each; with `liars`, a third, who tell of each other alone, as much as they can.

    How many views each member is in, of all honest members: as chi-squared expects of uniform draws.
    """
    world = World(300, rules=MembershipRules(view=30, redraw_s=1e6), trusting=True)
    world.acquaint()
    world.lie(range(300 - liars, 300), "each other")
    world.run(600)
    honest = world.honest()
    counts = Counter(name for me in honest for name in names(world.members[me]._roster))
    seen = [counts[f"m{me}"] for me in range(300)]
    expected = [(len(honest) - (me in honest)) for me in range(300)]
    scaled = [sum(seen) * e / sum(expected) for e in expected]
    assert chisquare(seen, scaled).pvalue > 0.001
    assert abs(sum(seen[300 - liars :]) / sum(seen) - liars / 300) < 0.04

# SPDX-License-Identifier: Apache-2.0
"""Membership on a simulated network that loses messages: who is there, and what nobody can make others believe."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pens.network.members.membership import Membership, MembershipRules, is_plausible
from pens.network.transport.interface import Address, MemberRecord

RULES = MembershipRules(gossip_s=1.0, suspect_s=10.0, drop_s=25.0, forget_s=500.0)
ROUNDS = 60


def place(me: int) -> Address:
    return Address("host", me + 1)


def record(me: int, incarnation: int = 1, heartbeat: int = 0, **more: bool) -> MemberRecord:
    return MemberRecord(f"m{me}", place(me), incarnation, heartbeat, **more)


@dataclass
class World:
    """Members that gossip once a second, over links that lose messages or are cut."""

    size: int
    loss: float = 0.0
    seed: int = 0
    now: float = 0.0
    dead: set[int] = field(default_factory=set)
    cut: set[frozenset[int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.luck = random.Random(self.seed)
        self.members = [self.born(m, 1) for m in range(self.size)]

    def born(self, me: int, incarnation: int) -> Membership:
        return Membership(record(me, incarnation), self.seed, RULES, [place(0)] if me else [])

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.now += 1.0
            for me in range(self.size):
                if me not in self.dead:
                    self._gossip(me)

    def _gossip(self, me: int) -> None:
        mine = self.members[me]
        for target in mine.tick(self.now):
            other = target.address.port - 1
            there = target.address.host == "host" and other != me and other not in self.dead
            if there and frozenset((me, other)) not in self.cut and self.luck.random() >= self.loss:
                theirs = self.members[other]
                theirs.merge(mine.records(self.now), self.now, f"m{me}")
                if self.luck.random() >= self.loss:
                    mine.merge(theirs.records(self.now), self.now, f"m{other}")

    def seen(self, me: int) -> set[int]:
        """Whom a member takes to be there."""
        return {int(r.name[1:]) for r in self.members[me].members(self.now, "alive")}


worlds = st.builds(World, st.integers(2, 9), st.sampled_from([0.0, 0.2, 0.4]), st.integers(0, 999))


@settings(max_examples=40)
@given(worlds)
def test_everyone_learns_of_everyone_from_one_address(world: World) -> None:
    world.run(ROUNDS)
    everybody = set(range(world.size))
    for me in everybody:
        there = {int(r.name[1:]) for r in world.members[me].members(world.now, "alive", "suspect")}
        assert there == everybody - {me}


@settings(max_examples=30)
@given(worlds, st.data())
def test_the_dead_are_dropped_by_all_and_welcomed_when_they_come_back(world: World, data: st.DataObject) -> None:
    world.run(ROUNDS)
    gone = data.draw(st.integers(0, world.size - 1))
    world.dead.add(gone)
    world.run(ROUNDS)
    others = [m for m in range(world.size) if m != gone]
    assert all(world.members[m].status(f"m{gone}", world.now) == "dropped" for m in others)
    world.dead.clear()
    again = world.born(gone, 1)
    again.restore(world.members[gone].state(world.now), world.now)
    world.members[gone] = again
    assert again.me.incarnation == 2
    world.run(3 * ROUNDS)
    assert all(world.members[m].status(f"m{gone}", world.now) in ("alive", "suspect") for m in others)


@settings(max_examples=30)
@given(st.integers(4, 9), st.integers(0, 999), st.data())
def test_a_network_that_was_cut_in_two_grows_together_again(size: int, seed: int, data: st.DataObject) -> None:
    world = World(size, 0.1, seed)
    world.run(ROUNDS)
    half = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 1))
    rest = set(range(size)) - half
    world.cut = {frozenset((a, b)) for a in half for b in rest}
    world.run(ROUNDS)
    assert all(world.seen(a) <= half for a in half)
    assert all(world.seen(b) <= rest for b in rest)
    world.cut = set()
    world.run(3 * ROUNDS)
    for me in range(size):
        there = world.members[me].members(world.now, "alive", "suspect")
        assert len(there) == size - 1


@given(worlds)
def test_who_leaves_is_gone_for_all_and_not_called_any_more(world: World) -> None:
    world.run(ROUNDS)
    leaver = world.members[-1]
    leaver.leave()
    for me in range(world.size - 1):
        world.members[me].merge(leaver.records(world.now), world.now, leaver.me.name)
    world.dead.add(world.size - 1)
    world.run(5)
    for me in range(world.size - 1):
        assert world.members[me].status(leaver.me.name, world.now) == "left"
        targets = [t for _ in range(20) for t in world.members[me].tick(world.now)]
        assert leaver.me.name not in {t.name for t in targets}


lies = st.lists(
    st.builds(
        MemberRecord,
        st.sampled_from([f"m{i}" for i in range(6)]),
        st.builds(Address, st.just("evil"), st.integers(-1, 70000)),
        st.one_of(st.integers(0, 5), st.integers(-(1 << 60), 1 << 63)),
        st.one_of(st.integers(0, 200), st.integers(-(1 << 60), 1 << 63)),
        st.booleans(),
        st.booleans(),
    ),
    max_size=10,
)


@settings(max_examples=40)
@given(st.lists(lies, min_size=1, max_size=8), st.integers(0, 99))
def test_a_liar_cannot_make_a_member_leave_or_drop_out_for_good(told: list[list[MemberRecord]], seed: int) -> None:
    """Member 5 lies about everybody to everybody. When it stops, the others are all there, wherever they are."""
    world = World(6, 0.0, seed)
    world.run(ROUNDS)
    for some in told:
        for victim in range(5):
            world.members[victim].merge(some, world.now, "m5")
            assert not world.members[victim].me.left
        world.run(2)
    world.run(3 * ROUNDS)
    for me in range(5):
        mine = world.members[me]
        assert world.seen(me) >= set(range(5)) - {me}
        assert all(r.address == place(int(r.name[1:])) for r in mine.members(world.now, "alive") if r.name != "m5")


def test_news_of_oneself_is_overtaken() -> None:
    me = World(1).members[0]
    me.merge([record(0, 1, 50)], 0.0, "m1")
    assert me.me.incarnation == 2
    me.merge([record(0, 7, 0, left=True)], 0.0, "m1")
    assert me.me.incarnation == 8
    me.merge([record(0, 1 << 52, 0, left=True)], 0.0, "m1")
    assert me.me.incarnation == 8
    me.merge([record(0, 3, 9, left=True)], 0.0, "m1")
    assert me.me.incarnation == 8


def test_hearsay_against_somebody_who_has_just_spoken_counts_nothing() -> None:
    me = World(1).members[0]
    me.merge([record(1, 1, 5)], 0.0, "m1")
    me.merge([record(1, 2, 9, left=True)], 1.0, "m2")
    assert me.status("m1", 1.0) == "alive"
    me.merge([record(1, 2, 9, left=True)], 20.0, "m2")
    assert me.status("m1", 20.0) == "left"
    me.merge([record(1, 3, 0)], 21.0, "m1")
    assert me.status("m1", 21.0) == "alive"


def test_who_cannot_be_reached_is_suspected_until_there_is_news() -> None:
    me = World(1).members[0]
    me.merge([record(1, 1, 5)], 100.0, "m1")
    me.failed("m1", 100.0)
    assert me.status("m1", 100.0) == "suspect"
    me.merge([record(1, 1, 5)], 101.0, "m2")
    assert me.status("m1", 101.0) == "suspect"
    me.merge([record(1, 1, 6)], 102.0, "m2")
    assert me.status("m1", 102.0) == "alive"


def test_the_table_is_bounded_and_keeps_those_who_are_alive() -> None:
    rules = replace(RULES, max_members=10)
    me = Membership(record(0), 0, rules)
    me.merge([record(1)], 0.0, "m1")
    for m in range(2, 500):
        me.merge([record(m)], 100.0, f"m{m}")
    assert len(me.members(100.0, "alive", "suspect", "dropped", "left")) == 10
    assert me.status("m1", 100.0) is None  # dropped by then, so it made way
    assert me.status("m2", 100.0) == "alive"
    assert me.status("m499", 100.0) is None


def test_invented_names_are_neither_believed_nor_repeated_and_hide_nobody() -> None:
    """Member 3 tells member 0 of a hundred thousand names, and all the time; member 1 tells it of member 2."""
    me = World(1).members[0]
    me.merge([record(1)], 0.0, "m1")
    met = None
    for second in range(50):
        invented = [MemberRecord(f"x{second}-{n}", place(1), 1, 0) for n in range(2000)]
        me.merge([record(3, 1, second), *invented], second, "m3")
        me.merge([record(1, 1, second), record(2)], second, "m1")
        assert {r.name for r in me.records(second)} == {"m0", "m1", "m3"}
        called = [t.name for t in me.tick(second)]
        assert len(called) <= 2 * RULES.fanout + RULES.introductions
        met = second if met is None and "m2" in called else met
    assert met is not None
    assert met < 10
    assert sum(map(len, me._rumours.values())) <= 2 * RULES.rumours_of_member


def test_forgotten_after_a_long_time() -> None:
    me = World(1).members[0]
    me.merge([record(1)], 0.0, "m1")
    me.tick(499.0)
    assert me.status("m1", 499.0) == "dropped"
    me.tick(501.0)
    assert me.status("m1", 501.0) is None


@pytest.mark.parametrize(
    "wrong",
    [
        MemberRecord("", place(1), 0, 0),
        MemberRecord("x" * 64, place(1), 0, 0),
        MemberRecord("x", Address("", 1), 0, 0),
        MemberRecord("x", Address("h" * 254, 1), 0, 0),
        MemberRecord("x", Address("h", 0), 0, 0),
        MemberRecord("x", Address("h", 65536), 0, 0),
        MemberRecord("x", place(1), -1, 0),
        MemberRecord("x", place(1), 0, 1 << 60),
    ],
)
def test_records_that_cannot_be_are_passed_over(wrong: MemberRecord) -> None:
    assert not is_plausible(wrong)
    me = World(1).members[0]
    me.merge([wrong, record(1)], 0.0, "m1")
    assert [r.name for r in me.members(0.0, "alive")] == ["m1"]


def test_finished_members_say_so() -> None:
    world = World(3)
    world.run(20)
    for member in world.members[:2]:
        member.finish()
    world.run(10)
    assert not world.members[0].everyone_finished(world.now)
    world.members[2].finish()
    world.run(10)
    assert all(member.everyone_finished(world.now) for member in world.members)

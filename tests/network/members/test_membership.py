# SPDX-License-Identifier: Apache-2.0
"""Membership on a simulated network that loses messages: who is there, whose word counts, and what is bounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pens.network.members.membership import Membership, is_plausible
from pens.network.members.rules import MembershipRules
from pens.network.transport.interface import Address, MemberRecord, Table
from tests.network.members.notaries import FakeAuthority, FakeNotary
from tests.network.members.worlds import World, place, record

RULES = MembershipRules(gossip_s=1.0, suspect_s=10.0, drop_s=25.0, forget_s=500.0)
ROUNDS = 60


def world_of(size: int, loss: float, seed: int) -> World:
    return World(size, loss, seed, RULES, trusting=False)


worlds = st.builds(world_of, st.integers(2, 9), st.sampled_from([0.0, 0.2, 0.4]), st.integers(0, 999))


@settings(max_examples=10)
@given(worlds)
def test_everyone_learns_of_everyone_from_one_address(world: World) -> None:
    world.run(ROUNDS)
    everybody = set(range(world.size))
    for me in everybody:
        there = {int(r.name[1:]) for r in world.members[me].members(world.now, "alive", "suspect")}
        assert there == everybody - {me}


@settings(max_examples=6)
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


@settings(max_examples=6)
@given(st.integers(4, 9), st.integers(0, 999), st.data())
def test_a_network_that_was_cut_in_two_grows_together_again(size: int, seed: int, data: st.DataObject) -> None:
    world = world_of(size, 0.1, seed)
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


@settings(max_examples=10)
@given(worlds)
def test_who_leaves_is_gone_for_all_and_not_called_any_more(world: World) -> None:
    world.run(ROUNDS)
    leaver = world.members[-1]
    leaver.leave()
    for me in range(world.size - 1):
        world.members[me].hear(leaver.tell(None, world.now), world.now, leaver.me.name)
    world.dead.add(world.size - 1)
    world.run(5)
    for me in range(world.size - 1):
        assert world.members[me].status(leaver.me.name, world.now) == "left"
        targets = [t for _ in range(20) for t in world.members[me].tick(world.now)]
        assert leaver.me.name not in {t.name for t in targets}


def test_finished_members_say_so() -> None:
    world = world_of(3, 0.0, 0)
    world.run(20)
    for member in world.members[:2]:
        member.finish()
    world.run(10)
    assert not world.members[0].everyone_finished(world.now)
    world.members[2].finish()
    world.run(10)
    assert all(member.everyone_finished(world.now) for member in world.members)


# --- one member, case by case -----------------------------------------------------------------------------------------


class One:
    """Member m0, and the notaries of m1 to m9. All certificates are known, unless `trusting` is False."""

    def __init__(self, rules: MembershipRules = RULES, trusting: bool = True) -> None:
        self.now = 0.0
        self.authority = FakeAuthority(trusting)
        self.notaries = [self.authority.admit(f"m{me}") for me in range(10)]
        self.me = Membership(record(0), 0, rules, self.notaries[0], lambda: self.now)

    def signed(self, me: int, incarnation: int = 1, heartbeat: int = 0, left: bool = False) -> MemberRecord:
        return self.notaries[me].sign(record(me, incarnation, heartbeat, left))

    def hear(self, now: float, speaker: int, *records: MemberRecord, certificates: tuple[bytes, ...] = ()) -> None:
        self.now = now
        self.me.hear(Table(records, certificates=certificates), now, f"m{speaker}")

    def status(self, me: int) -> str | None:
        return self.me.status(f"m{me}", self.now)


FORGERIES: dict[str, Callable[[MemberRecord], MemberRecord]] = {
    "another address": lambda r: replace(r, address=Address("evil", 9)),
    "another port": lambda r: replace(r, address=Address("host", 9)),
    "a higher incarnation": lambda r: replace(r, incarnation=r.incarnation + 1),
    "a higher heartbeat": lambda r: replace(r, heartbeat=r.heartbeat + 1),
    "has left": lambda r: replace(r, heartbeat=r.heartbeat + 1, left=True),
    "has finished": lambda r: replace(r, heartbeat=r.heartbeat + 1, finished=True),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_only_a_members_own_record_changes_what_is_known_of_it(what: str) -> None:
    """Member 2 tells a changed record of member 1, with its old signature and with member 2's own."""
    it = One()
    true = it.signed(1, 1, 5)
    it.hear(0.0, 1, true)
    changed = replace(FORGERIES[what](true), heartbeat=9)
    for false in (changed, replace(it.notaries[2].sign(changed), serial=true.serial), it.notaries[2].sign(changed)):
        it.hear(100.0, 2, it.signed(2, 1, 100), false)
        assert it.me.find("m1") == true
        assert it.status(1) == "dropped"
    assert it.me.forged == 3


def test_who_tells_a_forged_record_is_not_listened_to_further_in_that_call() -> None:
    it = One()
    false = replace(it.signed(3), incarnation=7)
    it.hear(0.0, 1, it.signed(1), it.signed(2), false, it.signed(4))
    assert (it.status(2), it.status(3), it.status(4)) == ("alive", None, None)


def test_of_two_records_the_newer_one_counts_whoever_tells_it_and_whenever() -> None:
    it = One()
    old, left, again = it.signed(1, 1, 8), it.signed(1, 1, 9, left=True), it.signed(1, 2, 3)
    it.hear(10.0, 2, it.signed(2), left)
    assert it.status(1) is None  # nobody is introduced as gone
    it.hear(11.0, 2, old)
    it.hear(12.0, 2, left)
    it.hear(13.0, 2, old)
    assert it.status(1) == "left"
    it.hear(14.0, 2, again)
    it.hear(15.0, 2, left)
    it.hear(16.0, 2, old)
    assert it.status(1) == "alive"
    assert it.me.find("m1") == again


def test_a_record_that_was_signed_long_ago_is_no_sign_of_life() -> None:
    """Member 1 signed five records and died. Member 2 kept them back, and tells one every 200 s."""
    it = One(replace(RULES, stale_s=300.0, forget_s=1e9))
    it.hear(0.0, 1, it.signed(1, 1, 0))
    for heartbeat, now, status in ((1, 200.0, "alive"), (2, 300.0, "alive"), (3, 400.0, "dropped")):
        it.hear(now, 2, it.signed(1, 1, heartbeat))
        assert it.status(1) == status
        assert it.me.find("m1") == it.signed(1, 1, heartbeat)
    it.hear(500.0, 2, it.signed(3, 1, 5))
    assert it.status(3) is None
    it.hear(501.0, 1, it.signed(1, 1, 4))  # it lives after all; its clock is behind
    assert it.status(1) == "alive"


def test_a_newer_record_of_oneself_is_overtaken() -> None:
    """Of an earlier life, of which this member's state knows nothing: its signature is good."""
    it = One()
    it.hear(0.0, 1, it.signed(0, 7, 50, left=True))
    assert it.me.me.incarnation == 8
    it.hear(0.0, 1, it.signed(0, 6, 90))
    it.hear(0.0, 1, replace(it.signed(0, 9, 90), heartbeat=91))
    assert it.me.me.incarnation == 8
    assert not it.me.me.left


def test_a_member_is_told_what_is_held_against_it() -> None:
    """Member 1 left, and is back with a state that is older than that; or it was dropped, and is called again."""
    it = One()
    left, back = it.signed(1, 3, 5, left=True), it.signed(1, 2, 9)
    it.hear(0.0, 1, it.signed(1, 3, 4))
    assert it.signed(1, 3, 4) in it.me.answer("m1", Table((back,)), 0.0).records
    assert it.signed(1, 3, 4) not in it.me.answer("m1", Table((it.signed(1, 3, 4),)), 0.0).records
    it.hear(1.0, 1, left)
    it.hear(2.0, 1, back)
    assert it.status(1) == "left"
    assert left in it.me.answer("m1", Table((back,)), 2.0).records
    it.hear(3.0, 2, it.signed(2, 1, 3))
    it.now = 60.0
    assert it.status(2) == "dropped"
    assert it.signed(2, 1, 3) in it.me.tell("m2", 60.0).records


def test_a_record_waits_for_its_certificate_and_only_for_one_of_the_federation() -> None:
    it = One(trusting=False)
    mine, theirs = it.signed(1), it.signed(2)
    it.hear(0.0, 1, mine, theirs)
    assert it.status(1) is it.status(2) is None
    answer = it.me.answer("m1", Table((mine, theirs)), 0.0)
    assert answer.wanted == (mine.serial, theirs.serial)
    certificate = it.notaries[1].certificate(mine.serial)
    other = it.notaries[3].certificate(it.notaries[3].serial)
    assert certificate
    assert other
    it.hear(0.0, 1, certificates=(other, b"999", certificate))
    assert it.status(1) is it.status(2) is None  # as many certificates are looked at as were wanted
    it.hear(0.0, 1, mine, theirs)
    it.hear(0.0, 1, certificates=(certificate, b"999"))
    assert (it.status(1), it.status(2)) == ("alive", None)
    assert it.me.follow_up("m1", Table(wanted=(mine.serial, 999))) == Table(certificates=(certificate,))
    assert it.me.follow_up("m1", Table()) is None


def test_a_revoked_members_records_are_dropped() -> None:
    it = One()
    it.hear(0.0, 1, it.signed(1), it.signed(2))
    it.authority.revoked.add(it.notaries[2].serial)
    it.hear(1.0, 1, it.signed(2, 1, 1), it.signed(3))
    assert it.me.find("m2") == it.signed(2)
    assert it.status(3) == "alive"  # the teller may not know of the revocation, so it is listened to
    assert it.me.forged == 0
    for _ in range(10):
        it.me.tick(2.0)
    assert it.status(2) is None


def test_a_member_that_moved_is_tried_where_it_answered_last_too() -> None:
    it = One()
    it.hear(0.0, 1, it.signed(1))
    it.me.heard("m1", 0.0, place(1))
    moved = it.notaries[1].sign(replace(record(1, 2), address=Address("new", 1)))
    it.hear(1.0, 1, moved)
    assert it.me.find("m1") == moved
    it.me.missed("m1")
    found = it.me.find("m1")
    assert found
    assert found.address == place(1)
    it.me.missed("m1")
    assert it.me.find("m1") == moved
    it.me.missed("m1")
    it.me.heard("m1", 2.0, Address("new", 1))
    assert it.me.find("m1") == moved


def test_who_cannot_be_reached_is_suspected_until_there_is_news() -> None:
    it = One()
    it.hear(100.0, 1, it.signed(1, 1, 5))
    it.me.failed("m1", 100.0)
    assert it.status(1) == "suspect"
    it.hear(101.0, 2, it.signed(1, 1, 5))
    assert it.status(1) == "suspect"
    it.hear(102.0, 2, it.signed(1, 1, 6))
    assert it.status(1) == "alive"


def test_with_more_members_they_are_suspected_later_but_three_calls_in_vain_are_enough() -> None:
    """One member counts as ten times as many as `prompt`: suspected after 100 s, dropped after 250, or after 25."""
    it = One(replace(RULES, prompt=0.1, call_lost_every=1000))
    it.hear(0.0, 1, it.signed(1))
    it.me.tick(0.0)
    for now, status in ((99.0, "alive"), (101.0, "suspect"), (251.0, "dropped")):
        it.now = now
        assert it.status(1) == status
    it.now = 30.0
    for _ in range(2):
        it.me.missed("m1")
    assert it.status(1) == "alive"
    it.me.missed("m1")
    assert it.status(1) == "dropped"
    it.now = 24.0
    assert it.status(1) == "alive"
    it.hear(40.0, 2, it.signed(1, 1, 7))
    assert it.status(1) == "alive"


def test_forgotten_after_a_long_time() -> None:
    it = One()
    it.hear(0.0, 1, it.signed(1))
    for now in (490.0, 499.0):
        for _ in range(10):
            it.me.tick(now)
        it.now = now
        assert it.status(1) == "dropped"
    for _ in range(10):
        it.me.tick(501.0)
    assert it.status(1) is None


def test_checks_of_one_tellers_records_are_few_and_another_tellers_are_not_fewer() -> None:
    """Member 1 floods with records of member 3, each newer than the last; signatures cost time."""
    it = One(replace(RULES, checks_per_s=1.0, burst_checks=20))
    notary: FakeNotary = it.notaries[0]
    for heartbeat in range(100):
        it.hear(0.0, 1, it.signed(3, 1, heartbeat))
    assert notary.checks == 20
    it.hear(0.0, 2, it.signed(4))
    assert it.status(4) == "alive"
    for heartbeat in range(100, 200):
        it.hear(5.0, 1, it.signed(3, 1, heartbeat))
    assert notary.checks == 20 + 1 + 5


def test_what_waits_for_certificates_is_bounded() -> None:
    it = One(trusting=False)
    invented = [MemberRecord(f"x{n}", place(1), 1, 0, serial=10_000 + n, signature=b"x") for n in range(100)]
    for teller in range(40):
        it.me.hear(Table(tuple(invented)), 0.0, f"liar-{teller}")
    assert it.me._checking.num_waiting == 32 * 66
    assert not it.me.members(0.0, "alive", "suspect", "dropped", "left")


def test_large_answers_are_for_newcomers_and_few_for_each() -> None:
    it = One()
    it.authority.trusting = True
    others = [it.authority.admit(f"n{n}") for n in range(100)]
    for n, notary in enumerate(others):
        it.me.hear(Table((notary.sign(MemberRecord(f"n{n}", place(n), 1, 0)),)), 0.0, f"n{n}")
    asked = Table((it.signed(1),), room=1000)
    sizes = [len(it.me.answer("m1", asked, 0.0).records) for _ in range(6)]
    assert sizes == [65, 65, 65, 65, 4, 4]
    assert len(it.me.answer("m2", Table((it.signed(2),)), 0.0).records) == 4


def test_a_state_file_brings_back_genuine_records_alone() -> None:
    it, again = One(), One()
    it.hear(0.0, 1, it.signed(1, 1, 3), it.signed(2, 1, 4), it.signed(3, 1, 4))
    it.hear(0.0, 3, it.signed(3, 1, 5, left=True))
    state = it.me.state(0.0)
    (row,) = [row for row in state["records"] if row[0] == "m1"]
    row[1:3] = ["evil", 9]
    state["records"].append(["m4", "evil", 9, 1, 0, False, False, "5", ""])
    again.me.restore(state, 0.0)
    assert {r.name for r in again.me.members(0.0, "alive", "suspect", "dropped", "left")} == {"m2"}
    assert again.me.find("m2") == it.signed(2, 1, 4)
    assert again.me.me.incarnation == 2
    older = One()
    older.me.restore({"incarnation": 4, "members": [["m1", "evil", 9, 1, 0, False]]}, 0.0)
    assert older.me.me.incarnation == 5
    assert older.me.find("m1") is None


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
    it = One()
    it.hear(0.0, 1, wrong, it.signed(1))
    assert [r.name for r in it.me.members(0.0, "alive")] == ["m1"]

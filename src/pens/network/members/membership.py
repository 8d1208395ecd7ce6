# SPDX-License-Identifier: Apache-2.0
"""Which members are there: records that members sign and others pass on. A pure state machine, without socket or file.

Theory of operation. Every member signs a record of itself: its name, its address, whether it has left or finished, the
number of its life (incarnation) and when it signed (heartbeat). It signs a new one in each round of gossip, in which it
calls a few members, tells them its record and some that it was told, and is told some in return. Of two records of a
member everyone keeps the newer one, by incarnation and heartbeat. So nobody but a member itself can change what others
know of it; an older record, told again, changes nothing; and without its key nobody can make a record of a name at all.

A record is checked by the certificate that it names (`checking`). A receiver that lacks it asks the teller for it;
every certificate is checked by the federation's authorities and revocation list, and remembered. A member that tells a
forged record is not listened to further in that call.

News of a member is a newer record that was signed lately, or anything that the member itself says in a call that it
makes or answers. Each member decides for itself who is there (`standing`). Members that are dropped are called now and
then, at the address of their record and at the last one where they answered (`callees`).

Two things can outdate a member's own record: a copy of its state that is older than its last life, and a record that
says it left, told again when it is back. Whoever holds a newer record of a member than that member says itself tells it
to that member, which then takes a higher incarnation.

What a member sends does not grow with the federation. It calls few members, mostly the same for some time, because a
new connection costs more than a call; it tells a bounded number of records (`telling`); and it keeps track of a bounded
number of members (`roster`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from pens.network.members.callees import Callees, Target, target_at
from pens.network.members.checking import Checking
from pens.network.members.draws import Draws
from pens.network.members.notary import Notary, Verdict
from pens.network.members.roster import KnownMember, Roster
from pens.network.members.rules import MembershipRules
from pens.network.members.saved import restored, saved
from pens.network.members.standing import MemberStatus, Standing
from pens.network.members.telling import Telling
from pens.network.transport.interface import Address, MemberRecord, Table
from pens.network.transport.limits import RateLimit

_MAX_NUMBER = 1 << 53
_MAX_NAME, _MAX_HOST, _MAX_PORT = 63, 253, 65535
_REVIEW = 10  # rounds between two reviews of all certificates
_LARGE_PER_S, _BURST_LARGE = 0.1, 4  # answers to newcomers that each member may have


class Membership:
    """What one member knows of the others, and tells them."""

    def __init__(
        self,
        me: MemberRecord,
        secret: int,
        rules: MembershipRules,
        notary: Notary,
        clock: Callable[[], float],
        bootstrap: Sequence[Address] = (),
    ) -> None:
        """`secret`: of the random draws; others must not be able to guess it. `clock`: seconds since 1970."""
        self._me, self._rules, self._notary, self._clock = me, rules, notary, clock
        self._signed: MemberRecord | None = None
        self._now, self._rounds = 0.0, 0
        draws = Draws(secret)
        self._standing = Standing(rules)
        self._roster = Roster(rules.view, secret, rules.redraw_s, self._standing.is_gone)
        self._telling = Telling(self._roster, draws)
        self._callees = Callees(self._roster, self._standing, rules, draws, bootstrap)
        self._checking = Checking(notary, rules)
        self._large_answers = RateLimit(_LARGE_PER_S, _BURST_LARGE, lambda: self._now)
        self._unknown = 0.0  # part of what was told lately that was of unknown members
        self.forged = 0
        """Forged records that others told."""

    @property
    def me(self) -> MemberRecord:
        """This member's own record, signed."""
        if self._signed is None:
            self._signed = self._notary.sign(self._me)
        return self._signed

    # --- who is there -------------------------------------------------------------------------------------------------

    def status(self, name: str, now: float) -> MemberStatus | None:
        """The status of a member; None for one that is not kept track of."""
        known = self._roster.get(name)
        return self._standing.of(known, now) if known else None

    def members(self, now: float, *statuses: MemberStatus) -> list[MemberRecord]:
        """The members in view that have one of these statuses, in the order of their names."""
        chosen = [known.record for known in self._roster.sample() if self._standing.of(known, now) in statuses]
        return sorted(chosen, key=lambda record: record.name)

    def guests(self, now: float) -> list[MemberRecord]:
        """Neighbours and senders of models that are there, but not in view."""
        return [known.record for known in self._roster.guests() if self._standing.of(known, now) == "alive"]

    def find(self, name: str) -> MemberRecord | None:
        """The record of a member, whatever its status, with the address to try; None for one that is not known."""
        known = self._roster.get(name)
        if known is None:
            return None
        address = target_at(known).address
        return known.record if address == known.record.address else replace(known.record, address=address)

    def has_met(self, name: str, now: float, within_s: float) -> bool:
        """Whether a member has said something itself within this time, so that it knows this one, too."""
        known = self._roster.get(name)
        return known is not None and now - known.spoke < within_s

    def everyone_finished(self, now: float, but: Collection[str] = ()) -> bool:
        """Whether all others that are there have finished; `but`: members to leave out."""
        return all(record.finished or record.name in but for record in self.members(now, "alive", "suspect"))

    # --- time goes on -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Target]:
        """A round of gossip: sign a new record, and choose whom to call."""
        self._now = now
        self._rounds += 1
        self._become()
        self._standing.keep_pace(self._roster.estimate, len(self._roster), self._callees.lost_every)
        if self._rounds % _REVIEW == 0:
            self._forget(now)
        return self._callees.next(now)

    def _become(self, **changes: Any) -> None:
        """A new record of this member; it is signed when it is told."""
        heartbeat = max(self._me.heartbeat + 1, int(self._clock()))
        self._me, self._signed = replace(self._me, heartbeat=heartbeat, **changes), None

    def _forget(self, now: float) -> None:
        """Keep track no longer of members that were away for long, or whose certificate was withdrawn."""
        for known in list(self._roster):
            if now - known.heard >= self._rules.forget_s or self._notary.is_withdrawn(known.record.serial):
                self._roster.remove(known.record.name)

    # --- what this member tells ---------------------------------------------------------------------------------------

    def tell(self, to: str | None, now: float) -> Table:
        """What to tell in a call. `to`: the member that is called, if it is known."""
        return Table(self._records_for(to, (), self._rules.told, now), room=self._room())

    def answer(self, to: str, heard: Table, now: float) -> Table:
        """What to answer to a member's call, after `hear`."""
        self._now = now
        room = min(heard.room, self._rules.told_to_newcomers)
        count = room if room > self._rules.told and self._large_answers.take(to) else self._rules.told
        records = self._records_for(to, heard.records, count, now) if heard.records else ()
        certificates = self._checking.certificates_for(heard, self._most)
        return Table(records, self._checking.wanted(to), certificates, self._room())

    def follow_up(self, to: str, heard: Table) -> Table | None:
        """What to say in a second call, if the answer to the first one needs it: certificates, or which are wanted."""
        wanted, certificates = self._checking.wanted(to), self._checking.certificates_for(heard, self._most)
        return Table((), wanted, certificates) if wanted or certificates else None

    def _records_for(
        self, to: str | None, heard: Sequence[MemberRecord], count: int, now: float
    ) -> tuple[MemberRecord, ...]:
        told = {(record.name, record.version) for record in heard}
        chosen = [record for record in self._telling.choose(count, told) if record.name != to]
        held = self._roster.get(to) if to is not None else None
        if held and (self._standing.is_gone(held, now) or self._is_outdated(held, heard)):
            chosen.append(held.record)  # so that this member can overtake it
        return (self.me, *chosen)

    @staticmethod
    def _is_outdated(held: KnownMember, heard: Sequence[MemberRecord]) -> bool:
        said = [record.version for record in heard if record.name == held.record.name]
        return bool(said) and max(said) < held.record.version

    def _room(self) -> int:
        """How many records to ask for: many while most of those that are told are of unknown members."""
        is_new_here = self._unknown > 0.5 or len(self._roster) < self._rules.told
        return self._rules.told_to_newcomers if is_new_here and len(self._roster) < self._rules.view else 0

    @property
    def _most(self) -> int:
        """Records that are looked at in one message: the teller's own, the receiver's, and as many as may be told."""
        return self._rules.told_to_newcomers + 2

    # --- what others tell ---------------------------------------------------------------------------------------------

    def hear(self, table: Table, now: float, speaker: str) -> None:
        """Take what `speaker` told; its name is in its certificate."""
        self._now = now
        for record in self._checking.learn(speaker, table):
            self._take(record, now, speaker)
        self._note_unknown(table, speaker)
        lacking = []
        for record in table.records[: self._most]:
            verdict = self._take(record, now, speaker)
            if verdict is Verdict.UNKNOWN and self._is_certificate_wanted(record, now, speaker):
                lacking.append(record)
            if verdict is Verdict.FORGED:
                self.forged += 1
                break
        self._checking.wait_for(speaker, lacking)
        self.heard(speaker, now)

    def _note_unknown(self, table: Table, speaker: str) -> None:
        """Learn how many of those that others tell of are not known here."""
        names = [record.name for record in table.records[: self._most] if record.name not in (speaker, self._me.name)]
        if names:
            unknown = sum(self._roster.get(name) is None for name in names)
            self._unknown += (unknown / len(names) - self._unknown) / 2

    def _is_certificate_wanted(self, record: MemberRecord, now: float, speaker: str) -> bool:
        """Always for the sample, and now and then for others, whose records are only passed on."""
        needed = record.name in (speaker, self._me.name) or self._roster.has_room_for(record.name, now)
        return needed or self._checking.may_want(now)

    def _take(self, record: MemberRecord, now: float, speaker: str) -> Verdict | None:
        """Take one record; None if it was not checked."""
        if not is_plausible(record) or not self._is_of_use(record, speaker):
            return None
        verdict = self._checking.check(record, speaker, now)
        if verdict is Verdict.GENUINE and record.name == self._me.name:
            self._become(incarnation=record.incarnation + 1)
        elif verdict is Verdict.GENUINE:
            self._learn(record, now, speaker)
        return verdict

    def _is_of_use(self, record: MemberRecord, speaker: str) -> bool:
        if record.name == self._me.name:
            return record.version > self._me.version
        known = self._roster.get(record.name)
        if known:
            return record.version > known.record.version
        return record.name == speaker or (self._is_fresh(record) and not record.left)

    def _is_fresh(self, record: MemberRecord) -> bool:
        return self._clock() - record.heartbeat <= self._rules.stale_s

    def _learn(self, record: MemberRecord, now: float, speaker: str) -> None:
        """Keep a genuine record that is newer than what was known, or pass it on."""
        speaks = record.name == speaker
        if speaks:
            self._roster.keep_caller(record.name)
        before = self._roster.get(record.name)
        spoke = now if speaks else before.spoke if before else -math.inf
        known = self._roster.add(record, now, spoke, now)
        if known is None:
            self._telling.pass_on(record)
            return
        known.record, known.spoke = record, spoke
        if speaks or self._is_fresh(record):
            known.heard, known.silent = max(known.heard, now), 0
        self._telling.add(record.name)

    def heard(self, name: str, now: float, at: Address | None = None) -> None:
        """Note that a member did something that only a live one can do. `at`: the address where it answered."""
        known = self._roster.get(name)
        if known:
            known.heard = known.spoke = max(known.heard, now)
            known.silent = 0
            if at:
                known.confirmed, known.missed = at, 0

    def missed(self, name: str) -> None:
        """Note that a member did not answer, so that the next call tries the other address, if there are two."""
        known = self._roster.get(name)
        if known:
            known.missed += 1
            known.silent += 1

    def failed(self, name: str, now: float) -> None:
        """Suspect a member that could not be reached, until there is news of it."""
        self.missed(name)
        known = self._roster.get(name)
        if known:
            known.heard = min(known.heard, now - self._standing.suspect_s)

    # --- members that this one needs ----------------------------------------------------------------------------------

    def keep_neighbours(self, names: Collection[str]) -> None:
        """Keep track of the neighbours, whether they are in view or not."""
        self._roster.keep_neighbours(names)

    def keep_sender(self, name: str) -> None:
        """Keep track of a member that sent a model, for some time."""
        self._roster.keep_sender(name)

    def change(self, bootstrap: Sequence[Address], *, gossip_s: float, suspect_s: float, drop_s: float) -> None:
        """Use other addresses to call first, and other times, from now on."""
        self._rules = replace(self._rules, gossip_s=gossip_s, suspect_s=suspect_s, drop_s=drop_s)
        self._standing.change(self._rules)
        self._callees.change(self._rules, bootstrap)

    # --- what this member tells of itself -----------------------------------------------------------------------------

    def move(self, address: Address) -> None:
        """Tell another address of this member."""
        self._become(address=address)

    def finish(self) -> None:
        """Tell that this member's updates are done."""
        self._become(finished=True)

    def leave(self) -> None:
        """Tell that this member leaves."""
        self._become(left=True)

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self, now: float) -> dict[str, Any]:
        """What a restart needs: this member's incarnation, and the others' records, with the certificates to check."""
        records = [known.record for known in self._roster if not known.record.left]
        return {"incarnation": self._me.incarnation, **saved(records, self._notary)}

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Begin a new life: take a higher incarnation, and the others as suspects, as far as records are genuine."""
        self._now = now
        self._become(incarnation=max(self._me.incarnation, state["incarnation"] + 1))
        for record in restored(state, self._notary):
            if is_plausible(record) and record.name != self._me.name:
                self._roster.add(record, now - self._rules.suspect_s, -math.inf, now)


def is_plausible(record: MemberRecord) -> bool:
    """Whether a record can be that of a member at all."""
    return (
        0 < len(record.name) <= _MAX_NAME
        and 0 < len(record.address.host) <= _MAX_HOST
        and 0 < record.address.port <= _MAX_PORT
        and 0 <= record.incarnation < _MAX_NUMBER
        and 0 <= record.heartbeat < _MAX_NUMBER
    )

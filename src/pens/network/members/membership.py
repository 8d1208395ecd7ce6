# SPDX-License-Identifier: Apache-2.0
"""Which members are there: records that members sign and others pass on. A pure state machine, without socket or file.

Theory of operation. Every member signs a record of itself: its name, its address, whether it has left or finished, the
number of its life (incarnation) and when it signed (heartbeat). It signs a new one in each round of gossip, in which it
calls a few members, tells them its record and some that it was told, and is told some in return. Of two records of a
member everyone keeps the newer one, by incarnation and heartbeat. So nobody but a member itself can change what others
know of it; an older record, told again, changes nothing; and without its key nobody can make a record of a name at all.

A record is checked by the certificate that it names. A receiver that lacks it asks the teller for it (`Table.wanted`),
which sends it in a second call or answer; every certificate is checked by the federation's authorities and revocation
list, and remembered. A member that tells a forged record is not listened to further in that call.

    alive ── suspect_s without news ──▶ suspect ── drop_s without news ──▶ dropped ── forget_s ──▶ (forgotten)
      ▲                                    │                                  │
      └────────────── news ────────────────┴──────────────────────────────────┘          left: the member said so

News of a member is a newer record that was signed lately, or anything that the member itself says in a call that it
makes or answers. Each member decides for itself who is there. Members that are dropped are called now and then, at the
address of their record and at the last one where they answered, so that a network that was cut in two becomes one.

Two things can outdate a member's own record: a copy of its state that is older than its last life, and a record that
says it left, told again when it is back. Whoever holds a newer record of a member than that member says itself tells it
to that member, which then takes a higher incarnation.

What a member sends does not grow with the federation. It calls few members, mostly the same for some time, because a
new connection costs more than a call; it tells a bounded number of records (`telling`); and it keeps track of a bounded
number of members (`roster`). With more members, news of each come less often, so the times after which members are
suspected and dropped grow with the number of members that this one keeps track of.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from pens import rng
from pens.network.members.notary import Notary, Verdict
from pens.network.members.roster import KnownMember, Roster
from pens.network.members.telling import Telling
from pens.network.transport.interface import Address, MemberRecord, Table
from pens.network.transport.limits import RateLimit

MemberStatus = Literal["alive", "suspect", "dropped", "left"]

_MAX_NUMBER = 1 << 53
_MAX_NAME, _MAX_HOST, _MAX_PORT = 63, 253, 65535
_LACKING = 32  # members whose records wait for certificates
_REVIEW = 10  # rounds between two reviews of all certificates
_IN_VAIN = 3  # calls without an answer, and without news meanwhile, after which a member counts as dropped
_BOOTSTRAP = 0.02  # of these calls go to bootstrap addresses even where more members are known than are in view
_FOREVER = float("inf")


@dataclass(frozen=True)
class MembershipRules:
    """How often a member gossips, what it tells, and how long it waits for others."""

    view: int = 256
    """Members that are kept track of: in a smaller federation all, in a larger one a random sample of this size."""
    gossip_s: float = 1.0
    """Seconds between two rounds of gossip."""
    fanout: int = 2
    """Members called in a round, in a small federation; in a larger one, one."""
    told: int = 4
    """Records of others in a message, …"""
    told_to_newcomers: int = 64
    """… and in an answer to a member that knows few others, for which each member may ask seldom."""
    large: int = 64
    """A federation of more members than this, to all of which no connections can be kept, is large."""
    partners: int = 16
    """In a large federation only so many are called, and they change slowly."""
    partner_s: float = 120.0
    """A partner is exchanged for another one this often."""
    prompt: int = 16
    """With more members than this, `suspect_s` and `drop_s` are longer in proportion."""
    suspect_s: float = 8.0
    drop_s: float = 30.0
    forget_s: float = 24 * 3600.0
    stale_s: float = 600.0
    """A record that was signed longer ago is no news when others tell it."""
    redraw_s: float = 4 * 3600.0
    """The sample is another one after this time, where there are more members than `view`."""
    call_lost_every: int = 4
    """Every this many rounds, a member without news, a dropped one or a bootstrap address is called; …"""
    call_lost_of_many_every: int = 12
    """… in a large federation, where each such call makes a new connection, every this many."""
    checks_per_s: float = 64.0
    """Signatures of one teller that are checked, on average …"""
    burst_checks: int = 256
    """… and in a burst."""
    certificates_per_s: float = 1.0
    """Certificates of members outside of the sample that are asked for, on average …"""
    burst_certificates: int = 64
    """… and in a burst."""


class Target(NamedTuple):
    """An address to gossip with. `name`: the member that must answer there; None: any member may."""

    address: Address
    name: str | None


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
        self._me, self._notary, self._clock = me, notary, clock
        self._signed: MemberRecord | None = None
        self._rules, self._bootstrap = rules, tuple(bootstrap)
        self._key, self._draws, self._rounds = rng.key(secret, "membership", me.name), 0, 0
        self._roster = Roster(rules.view, secret, rules.redraw_s, self._is_gone)
        self._telling = Telling(self._roster, self._number)
        self._partner_names: list[str] = []
        self._partners_until = 0.0
        self._lacking: OrderedDict[str, dict[int, MemberRecord]] = OrderedDict()  # by teller, then by certificate
        self._now, self._slower = 0.0, 1.0
        self._checks = RateLimit(rules.checks_per_s, rules.burst_checks, lambda: self._now)
        self._certificates = RateLimit(rules.certificates_per_s, rules.burst_certificates, lambda: self._now)
        self._generosity = RateLimit(0.1, 4, lambda: self._now)
        self._learned = 0.0  # part of what was told lately that was new
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
        return self._status(known, now) if known else None

    def _status(self, known: KnownMember, now: float) -> MemberStatus:
        if known.record.left:
            return "left"
        if known.silent >= _IN_VAIN:
            return "dropped"
        silence, slower = now - known.heard, self._slower
        if silence < slower * self._rules.suspect_s:
            return "alive"
        return "suspect" if silence < slower * self._rules.drop_s else "dropped"

    def _set_pace(self) -> None:
        """How much longer to wait for news than in a small federation: they come as often as others tell of a member,
        or as this one calls it itself."""
        rules = self._rules
        called_s = 1.5 * len(self._roster) * self._call_lost_every * rules.gossip_s
        self._slower = max(1.0, min(self._roster.estimate / rules.prompt, called_s / rules.suspect_s))

    def _is_gone(self, known: KnownMember, now: float) -> bool:
        return self._status(known, now) in ("dropped", "left")

    def members(self, now: float, *statuses: MemberStatus) -> list[MemberRecord]:
        """The members in view that have one of these statuses, in the order of their names."""
        chosen = [known.record for known in self._roster.sample() if self._status(known, now) in statuses]
        return sorted(chosen, key=lambda record: record.name)

    def guests(self, now: float) -> list[MemberRecord]:
        """Neighbours and senders of models that are there, but not in view."""
        return [known.record for known in self._roster.guests() if self._status(known, now) == "alive"]

    def find(self, name: str) -> MemberRecord | None:
        """The record of a member, whatever its status, with the address to try; None for one that is not known."""
        known = self._roster.get(name)
        if known is None or known.record.address == _address(known):
            return known.record if known else None
        return replace(known.record, address=_address(known))

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
        self._become()
        self._rounds += 1
        self._set_pace()
        self._forget(now)
        there = self._partners(now)
        targets = [Target(_address(known), known.record.name) for known in self._callees(there)]
        if not there or self._rounds % self._call_lost_every == 0:
            targets += self._lost(now, 1 if there else self._rules.fanout)
        return targets

    def _become(self, **changes: Any) -> None:
        """A new record of this member; it is signed when it is told."""
        heartbeat = max(self._me.heartbeat + 1, int(self._clock()))
        self._me, self._signed = replace(self._me, heartbeat=heartbeat, **changes), None

    def _callees(self, there: list[KnownMember]) -> list[KnownMember]:
        """Whom to call: the one that has said nothing for the longest time, and others at random."""
        if not there:
            return []
        if self._is_large and self._rounds % 2:
            return self._some(there, 1)
        longest = min(there, key=lambda known: known.spoke)
        others = [known for known in there if known is not longest]
        return [longest, *self._some(others, 0 if self._is_large else self._rules.fanout - 1)]

    @property
    def _is_large(self) -> bool:
        return len(self._roster) > self._rules.large

    @property
    def _call_lost_every(self) -> int:
        return self._rules.call_lost_of_many_every if self._is_large else self._rules.call_lost_every

    def _partners(self, now: float) -> list[KnownMember]:
        """Those who may be called: everyone that is there in a small federation, else a few, exchanged one by one."""
        most = self._rules.partners
        if not self._is_large:
            return [known for known in self._roster.sample() if self._is_there(known, now)]
        kept = {name: known for name in self._partner_names if (known := self._roster.get(name))}
        kept = {name: known for name, known in kept.items() if self._is_there(known, now)}
        if now >= self._partners_until and kept:
            self._partners_until = now + self._rules.partner_s
            del kept[next(iter(kept))]
        for _ in range(4 * (most - len(kept))):
            known = self._roster.at(int(self._number() * len(self._roster)))
            if len(kept) < most and self._is_there(known, now):
                kept.setdefault(known.record.name, known)
        self._partner_names = list(kept)
        return list(kept.values())

    def _is_there(self, known: KnownMember, now: float) -> bool:
        return self._status(known, now) in ("alive", "suspect")

    def _lost(self, now: float, count: int) -> list[Target]:
        """Members that were dropped and addresses to begin with, or else the one that there was no news of longest."""
        dropped = [known for known in self._roster if self._status(known, now) == "dropped"]
        known = {k.record.address for k in self._roster if self._status(k, now) != "left"}
        lost = [Target(_address(k), k.record.name) for k in dropped]
        if len(self._roster) < self._rules.view or self._number() < _BOOTSTRAP:
            lost += [Target(address, None) for address in self._bootstrap if address not in known]
        silent = self._longest_silent(now)
        if silent and (not lost or self._rounds // self._call_lost_every % 2):
            return [Target(_address(silent), silent.record.name)]
        return self._some(lost, count)

    def _longest_silent(self, now: float) -> KnownMember | None:
        """The member without news for the longest time, if for long; neighbours count four times."""
        there = [known for known in self._roster if self._is_there(known, now)]
        if not there:
            return None

        def wait(known: KnownMember) -> float:
            return (now - known.heard) * (4 if self._roster.is_neighbour(known.record.name) else 1)

        longest = max(there, key=wait)
        return longest if wait(longest) > self._slower * self._rules.suspect_s / 2 else None

    def _forget(self, now: float) -> None:
        """Keep track no longer of members that were away for long, or whose certificate was withdrawn."""
        if self._rounds % _REVIEW:
            return
        for known in list(self._roster):
            if now - known.heard >= self._rules.forget_s or self._notary.is_withdrawn(known.record.serial):
                self._roster.remove(known.record.name)

    def _some(self, among: Sequence[Any], count: int) -> list[Any]:
        left = list(among)
        return [left.pop(int(self._number() * len(left))) for _ in range(min(count, len(left)))]

    def _number(self) -> float:
        self._draws += 1
        return rng.number(self._key, self._draws)

    # --- what this member tells ---------------------------------------------------------------------------------------

    def tell(self, to: str | None, now: float) -> Table:
        """What to tell in a call. `to`: the member that is called, if it is known."""
        return Table(self._records_for(to, (), self._rules.told, now), room=self._room())

    def answer(self, to: str, heard: Table, now: float) -> Table:
        """What to answer to a member's call, after `hear`."""
        self._now = now
        room = min(heard.room, self._rules.told_to_newcomers)
        count = room if room > self._rules.told and self._generosity.take(to) else self._rules.told
        records = self._records_for(to, heard.records, count, now) if heard.records else ()
        return Table(records, self._wanted(to), self._certificates_for(heard), self._room())

    def follow_up(self, to: str, heard: Table) -> Table | None:
        """What to say in a second call, if the answer to the first one needs it: certificates, or which are wanted."""
        wanted, certificates = self._wanted(to), self._certificates_for(heard)
        return Table((), wanted, certificates) if wanted or certificates else None

    def _records_for(
        self, to: str | None, heard: Sequence[MemberRecord], count: int, now: float
    ) -> tuple[MemberRecord, ...]:
        told = {(record.name, record.version) for record in heard}
        chosen = [record for record in self._telling.choose(count, told) if record.name != to]
        held = self._roster.get(to) if to is not None else None
        if held and (self._is_gone(held, now) or self._is_outdated(held, heard)):
            chosen.append(held.record)  # so that this member can overtake it
        return (self.me, *chosen)

    @staticmethod
    def _is_outdated(held: KnownMember, heard: Sequence[MemberRecord]) -> bool:
        said = [record.version for record in heard if record.name == held.record.name]
        return bool(said) and max(said) < held.record.version

    def _room(self) -> int:
        """How many records to ask for: many while most of those that are told are new."""
        is_new_here = self._learned > 0.5 or len(self._roster) < self._rules.told
        return self._rules.told_to_newcomers if is_new_here and len(self._roster) < self._rules.view else 0

    def _wanted(self, of: str) -> tuple[int, ...]:
        return tuple(self._lacking.get(of, ()))

    def _certificates_for(self, heard: Table) -> tuple[bytes, ...]:
        wanted = heard.wanted[: self._rules.told_to_newcomers + 2]
        return tuple(found for serial in wanted if (found := self._notary.certificate(serial)) is not None)

    # --- what others tell ---------------------------------------------------------------------------------------------

    def hear(self, table: Table, now: float, speaker: str) -> None:
        """Take what `speaker` told; its name is in its certificate."""
        self._now = now
        most = self._rules.told_to_newcomers + 2
        lacking = self._lacking.pop(speaker, {})
        for certificate in table.certificates[: len(lacking)]:
            record = lacking.pop(self._notary.learn(certificate) or -1, None)
            if record:
                self._take(record, now, speaker)
        lacking, new = {}, 0
        for record in table.records[:most]:
            is_new = record.name not in (self._me.name, speaker) and self._roster.get(record.name) is None
            verdict = self._take(record, now, speaker)
            new += is_new
            if verdict is Verdict.UNKNOWN and self._may_want(record, now, speaker):
                lacking[record.serial] = record
            if verdict is Verdict.FORGED:
                self.forged += 1
                break
        if len(table.records) > 1:
            self._learned += (new / (len(table.records) - 1) - self._learned) / 2
        self._wait_for_certificates(speaker, lacking)
        self.heard(speaker, now)

    def _wait_for_certificates(self, teller: str, lacking: dict[int, MemberRecord]) -> None:
        if lacking:
            self._lacking[teller] = lacking
        if len(self._lacking) > _LACKING:
            self._lacking.popitem(last=False)

    def _may_want(self, record: MemberRecord, now: float, speaker: str) -> bool:
        """Whether a certificate is worth its bytes: always for the sample, now and then for others."""
        if record.name in (speaker, self._me.name) or self._roster.has_room_for(record.name, now):
            return True
        return self._certificates.take("")

    def _take(self, record: MemberRecord, now: float, speaker: str) -> Verdict | None:
        """Take one record; None if there was no need to check it."""
        if not is_plausible(record) or not self._is_of_use(record, speaker):
            return None
        if record.name != speaker and not self._checks.take(speaker):
            return None
        verdict = self._notary.check(record)
        if verdict is Verdict.GENUINE:
            if record.name == self._me.name:
                self._become(incarnation=record.incarnation + 1)
            else:
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
        spoke = now if speaks else before.spoke if before else -_FOREVER
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
            known.heard = min(known.heard, now - self._slower * self._rules.suspect_s)

    # --- members that this one needs ----------------------------------------------------------------------------------

    def keep_neighbours(self, names: Collection[str]) -> None:
        """Keep track of the neighbours, whether they are in view or not."""
        self._roster.keep_neighbours(names)

    def keep_sender(self, name: str) -> None:
        """Keep track of a member that sent a model, for some time."""
        self._roster.keep_sender(name)

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
        found = {self._notary.certificate(record.serial) for record in records}
        certificates = sorted(b64encode(certificate).decode() for certificate in found if certificate)
        return {
            "incarnation": self._me.incarnation,
            "records": [_plain(record) for record in sorted(records, key=lambda record: record.name)],
            "certificates": certificates,
        }

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Begin a new life: take a higher incarnation, and the others' records as far as they are genuine.

        The file of an older version has records without signatures; they are left out.
        """
        self._now = now
        self._become(incarnation=max(self._me.incarnation, state["incarnation"] + 1))
        for certificate in state.get("certificates", ()):
            self._notary.learn(b64decode(certificate))
        heard = now - self._rules.suspect_s
        for plain in state.get("records", ()):
            record = _record(plain)
            is_other = is_plausible(record) and record.name != self._me.name
            if is_other and self._notary.check(record) is Verdict.GENUINE:
                self._roster.add(record, heard, -_FOREVER, now)


def _address(known: KnownMember) -> Address:
    """Where to try to reach a member: where its record says or, every other time in vain, where it last answered."""
    return known.confirmed if known.confirmed and known.missed % 2 else known.record.address


def is_plausible(record: MemberRecord) -> bool:
    """Whether a record can be that of a member at all."""
    return (
        0 < len(record.name) <= _MAX_NAME
        and 0 < len(record.address.host) <= _MAX_HOST
        and 0 < record.address.port <= _MAX_PORT
        and 0 <= record.incarnation < _MAX_NUMBER
        and 0 <= record.heartbeat < _MAX_NUMBER
    )


def _plain(record: MemberRecord) -> list[Any]:
    address, signature = record.address, b64encode(record.signature).decode()
    said = [record.incarnation, record.heartbeat, record.left, record.finished]
    return [record.name, address.host, address.port, *said, f"{record.serial:x}", signature]


def _record(plain: list[Any]) -> MemberRecord:
    name, host, port, incarnation, heartbeat, left, finished, serial, signature = plain
    said = incarnation, heartbeat, left, finished
    return MemberRecord(name, Address(host, port), *said, int(serial, 16), b64decode(signature))

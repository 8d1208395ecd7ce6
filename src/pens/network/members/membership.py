# SPDX-License-Identifier: Apache-2.0
"""Who is there: a membership table that spreads by gossip. A pure state machine, without clock, socket or file.

Theory of operation. Every member counts its own heartbeat up and tells its table to a few others, who keep the newer of
two records of a member and tell them on: whoever lives is soon heard of everywhere, with a heartbeat that grows. Who
has not been heard of for a while is suspected, and later dropped; nobody has to say so, each member finds out by
itself. Dropped members are called now and then, so that a network that was cut in two grows together again.

    (rumour) ── it answered, or called ──▶ alive

    alive ── suspect_s without news ──▶ suspect ── drop_s without news ──▶ dropped ── forget_s ──▶ (forgotten)
      ▲                                    │                                  │
      └────────────── news ────────────────┴──────────────────────────────────┘          left: said so itself

Which record is newer? The one of the higher incarnation, then of the higher heartbeat. A member that starts again does
so with a higher incarnation, whatever it counted before. A member that hears of itself something newer than it is, or
that it has left, takes an incarnation above that: the truth overtakes the rumour.

Members have certificates, but may lie. A name that somebody told is a rumour until its bearer has answered a call, or
made one: whoever invents names does not fill the table, is not believed by anybody, and is not repeated. Rumours are
kept by who told them, few of each, and those to be called are drawn evenly among the tellers: one with many lies cannot
hide what others tell. Nothing but a member's own words can make it leave: what it says of itself in a
call that it makes or answers (`speaker`) counts more than hearsay, and hearsay against somebody who has just spoken
counts nothing. Numbers that jump beyond what a life can count to are lies. The table has a bound, and whoever is alive
is never pushed out of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from pens import rng
from pens.network.transport.interface import Address, MemberRecord

Status = Literal["alive", "suspect", "dropped", "left"]

_MAX_JUMP = 1 << 20  # of an incarnation between two pieces of news
_MAX_NUMBER = 1 << 53
_MAX_NAME, _MAX_HOST, _MAX_PORT = 63, 253, 65535


@dataclass(frozen=True)
class MembershipRules:
    """How patient a member is."""

    gossip_s: float = 1.0
    """Between two rounds of gossip."""
    fanout: int = 2
    """Members told in a round."""
    suspect_s: float = 8.0
    drop_s: float = 30.0
    forget_s: float = 24 * 3600.0
    call_lost_every: int = 4
    """Each so many rounds a member that seems gone, or a bootstrap address, is called."""
    max_members: int = 1024
    rumours_of_member: int = 64
    """Names told by one member that wait to be called. Of all of them …"""
    introductions: int = 2
    """… so many are called in a round."""


class Target(NamedTuple):
    """Whom to gossip with. `name`: who must answer; None: whoever it is."""

    address: Address
    name: str | None


@dataclass
class _Entry:
    record: MemberRecord
    heard: float
    """When there was news last."""
    spoke: float
    """When it said something itself."""


class _Rumour(NamedTuple):
    record: MemberRecord
    told: float


class Membership:
    """One member's table."""

    def __init__(self, me: MemberRecord, seed: int, rules: MembershipRules, bootstrap: Sequence[Address] = ()) -> None:
        self._me = me
        self._rules, self._bootstrap = rules, tuple(bootstrap)
        self._key, self._draws, self._rounds = rng.key(seed, "membership", me.name), 0, 0
        self._others: dict[str, _Entry] = {}
        self._rumours: dict[str, dict[str, _Rumour]] = {}  # by teller, then by name

    @property
    def me(self) -> MemberRecord:
        """The own record, as others are told it."""
        return self._me

    # --- what the table says ------------------------------------------------------------------------------------------

    def status(self, name: str, now: float) -> Status | None:
        """What is thought of a member; None: never heard of."""
        entry = self._others.get(name)
        return self._status(entry, now) if entry else None

    def _status(self, entry: _Entry, now: float) -> Status:
        if entry.record.left:
            return "left"
        silence = now - entry.heard
        return "alive" if silence < self._rules.suspect_s else "suspect" if silence < self._rules.drop_s else "dropped"

    def members(self, now: float, *statuses: Status) -> list[MemberRecord]:
        """The others of some statuses, by name."""
        found = [e.record for e in self._others.values() if self._status(e, now) in statuses]
        return sorted(found, key=lambda record: record.name)

    def find(self, name: str) -> MemberRecord | None:
        """The record of a member, whatever its status."""
        entry = self._others.get(name)
        return entry.record if entry else None

    def everyone_finished(self, now: float, but: Collection[str] = ()) -> bool:
        """Whether all others that are there have finished; `but`: members that do not count."""
        return all(record.finished or record.name in but for record in self.members(now, "alive", "suspect"))

    def records(self, now: float) -> tuple[MemberRecord, ...]:
        """The table as it is told to others: of those that seem gone nothing is told, so that they are forgotten."""
        return (self._me, *self.members(now, "alive", "suspect", "left"))

    # --- time goes on -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Target]:
        """A round of gossip: the own heart beats, and some others are to be told."""
        self._me = replace(self._me, heartbeat=self._me.heartbeat + 1)
        self._rounds += 1
        self._forget(now)
        there = self.members(now, "alive", "suspect")
        targets = [Target(record.address, record.name) for record in self._some(there, self._rules.fanout)]
        if not there or self._rounds % self._rules.call_lost_every == 0:
            targets += self._some(self._lost(now), 1 if there else self._rules.fanout)
        return targets + self._strangers()

    def _strangers(self) -> list[Target]:
        """Some of those that others told of. Each is called once; if it is there after all, it will be told again."""
        targets = []
        for teller in self._some(sorted(self._rumours), self._rules.introductions):
            told = self._rumours[teller]
            (name,) = self._some(sorted(told), 1)
            targets.append(Target(told.pop(name).record.address, name))
            if not told:
                del self._rumours[teller]
        return targets

    def _lost(self, now: float) -> list[Target]:
        lost = [Target(record.address, record.name) for record in self.members(now, "dropped")]
        known = {e.record.address for e in self._others.values() if self._status(e, now) != "left"}
        return lost + [Target(address, None) for address in self._bootstrap if address not in known]

    def _forget(self, now: float) -> None:
        gone = [name for name, entry in self._others.items() if now - entry.heard >= self._rules.forget_s]
        for name in gone:
            del self._others[name]
        for teller in list(self._rumours):
            old = [n for n, rumour in self._rumours[teller].items() if now - rumour.told >= self._rules.drop_s]
            for name in old:
                self._forget_rumour(teller, name)

    def _forget_rumour(self, teller: str, name: str) -> None:
        told = self._rumours.get(teller, {})
        told.pop(name, None)
        if not told:
            self._rumours.pop(teller, None)

    def _some(self, among: Sequence[Any], count: int) -> list[Any]:
        left = list(among)
        return [left.pop(int(self._number() * len(left))) for _ in range(min(count, len(left)))]

    def _number(self) -> float:
        self._draws += 1
        return rng.number(self._key, self._draws)

    # --- news ---------------------------------------------------------------------------------------------------------

    def merge(self, records: Iterable[MemberRecord], now: float, speaker: str) -> None:
        """Take in what `speaker` told, whose name is in its certificate."""
        for number, record in enumerate(records):
            if number >= 2 * self._rules.max_members:
                return
            if not is_plausible(record):
                continue
            if record.name == self._me.name:
                self._refute(record)
            elif record.name == speaker:
                self._meet(record, now)
            else:
                self._overhear(record, now, speaker)
        self.heard(speaker, now)

    def heard(self, name: str, now: float) -> None:
        """A member did something that only somebody alive can do."""
        entry = self._others.get(name)
        if entry:
            entry.heard = entry.spoke = max(entry.heard, now)

    def failed(self, name: str, now: float) -> None:
        """A member could not be reached: it is suspected until there is news of it."""
        entry = self._others.get(name)
        if entry:
            entry.heard = min(entry.heard, now - self._rules.suspect_s)

    def _refute(self, record: MemberRecord) -> None:
        """Somebody says that I have left, or am newer than I am."""
        mine, theirs = self._me.incarnation, record.incarnation
        newer = (theirs, record.heartbeat) > (mine, self._me.heartbeat)
        rumour = newer or (record.left and not self._me.left and theirs >= mine)
        if rumour and theirs - mine <= _MAX_JUMP:
            self._me = replace(self._me, incarnation=max(mine, theirs) + 1)

    def _meet(self, record: MemberRecord, now: float) -> None:
        """A member speaks of itself."""
        for teller in list(self._rumours):
            self._forget_rumour(teller, record.name)
        if record.name in self._others or self._has_room(now):
            self._others[record.name] = _Entry(record, now, now)

    def _overhear(self, record: MemberRecord, now: float, speaker: str) -> None:
        """A member speaks of another."""
        entry = self._others.get(record.name)
        if entry is None:
            self._keep_rumour(record, now, speaker)
        elif self._is_news(record, entry, now):
            entry.record, entry.heard = record, now

    def _keep_rumour(self, record: MemberRecord, now: float, speaker: str) -> None:
        told = self._rumours.get(speaker, {})
        is_full = len(told) >= self._rules.rumours_of_member or len(self._others) >= self._rules.max_members
        if not (record.left or is_full or record.name in told or speaker not in self._others):
            self._rumours.setdefault(speaker, {})[record.name] = _Rumour(record, now)

    def _is_news(self, record: MemberRecord, entry: _Entry, now: float) -> bool:
        old = entry.record
        if (record.incarnation, record.heartbeat) <= (old.incarnation, old.heartbeat):
            return False
        if record.incarnation - old.incarnation > _MAX_JUMP:
            return False
        if record.incarnation == old.incarnation and record.address != old.address:
            return False  # nobody moves within a life
        against = record.left or record.incarnation > old.incarnation
        return not (against and now - entry.spoke < self._rules.suspect_s)

    def _has_room(self, now: float) -> bool:
        """For one more: whoever left or was dropped longest ago makes way."""
        if len(self._others) < self._rules.max_members:
            return True
        gone = [(e.heard, n) for n, e in self._others.items() if self._status(e, now) in ("dropped", "left")]
        if gone:
            del self._others[min(gone)[1]]
        return bool(gone)

    # --- what is said of oneself --------------------------------------------------------------------------------------

    def move(self, address: Address) -> None:
        """Listen somewhere else."""
        self._me = replace(self._me, address=address)

    def finish(self) -> None:
        """Tell that the own updates are done."""
        self._me = replace(self._me, finished=True, heartbeat=self._me.heartbeat + 1)

    def leave(self) -> None:
        """Tell that one goes."""
        self._me = replace(self._me, left=True, heartbeat=self._me.heartbeat + 1)

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self, now: float) -> dict[str, Any]:
        """What a restart needs: the own incarnation, and where others were."""
        known = self.members(now, "alive", "suspect", "dropped")
        return {"incarnation": self._me.incarnation, "members": [_plain(record) for record in known]}

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Begin a new life: a higher incarnation, and the others as if just heard of."""
        self._me = replace(self._me, incarnation=max(self._me.incarnation, state["incarnation"] + 1))
        for name, host, port, incarnation, heartbeat, finished in state["members"]:
            record = MemberRecord(name, Address(host, port), incarnation, heartbeat, finished=finished)
            if is_plausible(record) and name != self._me.name and self._has_room(now):
                self._others[name] = _Entry(record, now, now - self._rules.suspect_s)


def is_plausible(record: MemberRecord) -> bool:
    """Whether a record can be of a member at all."""
    return (
        0 < len(record.name) <= _MAX_NAME
        and 0 < len(record.address.host) <= _MAX_HOST
        and 0 < record.address.port <= _MAX_PORT
        and 0 <= record.incarnation < _MAX_NUMBER
        and 0 <= record.heartbeat < _MAX_NUMBER
    )


def _plain(record: MemberRecord) -> list[Any]:
    address = record.address
    return [record.name, address.host, address.port, record.incarnation, record.heartbeat, record.finished]

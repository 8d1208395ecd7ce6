# SPDX-License-Identifier: Apache-2.0
"""Which members are there: a membership table that spreads by gossip. A pure state machine: no clock, socket or file.

Theory of operation. Every member increments its own heartbeat and sends its table to a few others. They keep the newer
of two records of a member and pass it on, so that all members soon know of every live one, with a heartbeat that grows.
A member without news for a while is suspected, and later dropped; each member decides that for itself. Dropped members
are called now and then, so that a network that was cut in two becomes one again.

    (rumour) ── it answered, or called ──▶ alive

    alive ── suspect_s without news ──▶ suspect ── drop_s without news ──▶ dropped ── forget_s ──▶ (forgotten)
      ▲                                    │                                  │
      └────────────── news ────────────────┴──────────────────────────────────┘          left: the member said so

Of two records the one of the higher incarnation is newer; of equal incarnations, the one of the higher heartbeat. A
member that starts again takes a higher incarnation than in its earlier lives. A member that receives a record of itself
that is newer than its own, or that says it has left, takes a still higher incarnation, so that its own record prevails.

Members have certificates, but may lie. A name that another member told is a rumour until its holder has answered a
call, or made one, so that invented names neither enter the table nor are passed on. Rumours are kept by the member that
told them, few of each, and those to be called are drawn evenly among these members, so that one with many lies cannot
hide what others tell. Only a member itself can say that it leaves: what it says of itself in a call that it makes or
answers (`speaker`) counts more than what others say of it, and that counts nothing against a member that has just
spoken. Numbers that grow faster than one life can count are lies. The table has a bound, and a live member is never
removed from it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from pens import rng
from pens.network.transport.interface import Address, MemberRecord

MemberStatus = Literal["alive", "suspect", "dropped", "left"]

_MAX_JUMP = 1 << 20  # of an incarnation between two records of a member
_MAX_NUMBER = 1 << 53
_MAX_NAME, _MAX_HOST, _MAX_PORT = 63, 253, 65535


@dataclass(frozen=True)
class MembershipRules:
    """How often a member gossips, and how long it waits for others."""

    gossip_s: float = 1.0
    """Seconds between two rounds of gossip."""
    fanout: int = 2
    """Members called in a round."""
    suspect_s: float = 8.0
    drop_s: float = 30.0
    forget_s: float = 24 * 3600.0
    call_lost_every: int = 4
    """Every this many rounds, a dropped member or a bootstrap address is called."""
    max_members: int = 1024
    rumours_of_member: int = 64
    """Rumours told by one member that may wait to be called. Of all rumours …"""
    introductions: int = 2
    """… this many are called in a round."""


class Target(NamedTuple):
    """An address to gossip with. `name`: the member that must answer there; None: any member may."""

    address: Address
    name: str | None


@dataclass
class _KnownMember:
    """A member in the table."""

    record: MemberRecord
    heard: float
    """When there last was news of it."""
    spoke: float
    """When it last said something itself."""


class _Rumour(NamedTuple):
    """A member that another one told of."""

    record: MemberRecord
    told: float


class Membership:
    """The membership table of one member."""

    def __init__(self, me: MemberRecord, seed: int, rules: MembershipRules, bootstrap: Sequence[Address] = ()) -> None:
        self._me = me
        self._rules, self._bootstrap = rules, tuple(bootstrap)
        self._key, self._draws, self._rounds = rng.key(seed, "membership", me.name), 0, 0
        self._others: dict[str, _KnownMember] = {}
        self._rumours: dict[str, dict[str, _Rumour]] = {}  # by teller, then by name

    @property
    def me(self) -> MemberRecord:
        """This member's own record, as others are told it."""
        return self._me

    # --- what the table tells -----------------------------------------------------------------------------------------

    def status(self, name: str, now: float) -> MemberStatus | None:
        """The status of a member; None for one that is not in the table."""
        entry = self._others.get(name)
        return self._status(entry, now) if entry else None

    def _status(self, entry: _KnownMember, now: float) -> MemberStatus:
        if entry.record.left:
            return "left"
        silence = now - entry.heard
        return "alive" if silence < self._rules.suspect_s else "suspect" if silence < self._rules.drop_s else "dropped"

    def members(self, now: float, *statuses: MemberStatus) -> list[MemberRecord]:
        """The other members that have one of these statuses, in the order of their names."""
        chosen = [e.record for e in self._others.values() if self._status(e, now) in statuses]
        return sorted(chosen, key=lambda record: record.name)

    def find(self, name: str) -> MemberRecord | None:
        """The record of a member, whatever its status; None for one that is not in the table."""
        entry = self._others.get(name)
        return entry.record if entry else None

    def everyone_finished(self, now: float, but: Collection[str] = ()) -> bool:
        """Whether all others that are there have finished; `but`: members to leave out."""
        return all(record.finished or record.name in but for record in self.members(now, "alive", "suspect"))

    def records(self, now: float) -> tuple[MemberRecord, ...]:
        """The table as others are told it, without dropped members, so that they are forgotten."""
        return (self._me, *self.members(now, "alive", "suspect", "left"))

    # --- time goes on -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Target]:
        """A round of gossip: increment the own heartbeat, and choose whom to call."""
        self._me = replace(self._me, heartbeat=self._me.heartbeat + 1)
        self._rounds += 1
        self._forget(now)
        there = self.members(now, "alive", "suspect")
        targets = [Target(record.address, record.name) for record in self._some(there, self._rules.fanout)]
        if not there or self._rounds % self._rules.call_lost_every == 0:
            targets += self._some(self._lost(now), 1 if there else self._rules.fanout)
        return targets + self._strangers()

    def _strangers(self) -> list[Target]:
        """Some of the rumours. Each is called once; if the member is there after all, others will tell of it again."""
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
        """Merge the table that `speaker` told; its name is in its certificate."""
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
        """Note that a member did something that only a live one can do."""
        entry = self._others.get(name)
        if entry:
            entry.heard = entry.spoke = max(entry.heard, now)

    def failed(self, name: str, now: float) -> None:
        """Suspect a member that could not be reached, until there is news of it."""
        entry = self._others.get(name)
        if entry:
            entry.heard = min(entry.heard, now - self._rules.suspect_s)

    def _refute(self, record: MemberRecord) -> None:
        """Take a higher incarnation if a record of this member is newer than its own, or says that it has left."""
        mine, theirs = self._me.incarnation, record.incarnation
        newer = (theirs, record.heartbeat) > (mine, self._me.heartbeat)
        rumour = newer or (record.left and not self._me.left and theirs >= mine)
        if rumour and theirs - mine <= _MAX_JUMP:
            self._me = replace(self._me, incarnation=max(mine, theirs) + 1)

    def _meet(self, record: MemberRecord, now: float) -> None:
        """Take a member's record of itself."""
        for teller in list(self._rumours):
            self._forget_rumour(teller, record.name)
        if record.name in self._others or self._has_room(now):
            self._others[record.name] = _KnownMember(record, now, now)

    def _overhear(self, record: MemberRecord, now: float, speaker: str) -> None:
        """Take a member's record of another one."""
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

    def _is_news(self, record: MemberRecord, entry: _KnownMember, now: float) -> bool:
        old = entry.record
        if (record.incarnation, record.heartbeat) <= (old.incarnation, old.heartbeat):
            return False
        if record.incarnation - old.incarnation > _MAX_JUMP:
            return False
        if record.incarnation == old.incarnation and record.address != old.address:
            return False  # a member keeps its address within a life
        against = record.left or record.incarnation > old.incarnation
        return not (against and now - entry.spoke < self._rules.suspect_s)

    def _has_room(self, now: float) -> bool:
        """Whether one more member fits; if need be, remove the one that left or was dropped longest ago."""
        if len(self._others) < self._rules.max_members:
            return True
        gone = [(e.heard, n) for n, e in self._others.items() if self._status(e, now) in ("dropped", "left")]
        if gone:
            del self._others[min(gone)[1]]
        return bool(gone)

    def change(self, bootstrap: Sequence[Address], *, gossip_s: float, suspect_s: float, drop_s: float) -> None:
        """Use other addresses to call first, and other times, from now on."""
        self._bootstrap = tuple(bootstrap)
        self._rules = replace(self._rules, gossip_s=gossip_s, suspect_s=suspect_s, drop_s=drop_s)

    # --- what this member tells of itself -----------------------------------------------------------------------------

    def move(self, address: Address) -> None:
        """Tell another address of this member."""
        self._me = replace(self._me, address=address)

    def finish(self) -> None:
        """Tell that this member's updates are done."""
        self._me = replace(self._me, finished=True, heartbeat=self._me.heartbeat + 1)

    def leave(self) -> None:
        """Tell that this member leaves."""
        self._me = replace(self._me, left=True, heartbeat=self._me.heartbeat + 1)

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self, now: float) -> dict[str, Any]:
        """What a restart needs: this member's incarnation, and the others' addresses."""
        known = self.members(now, "alive", "suspect", "dropped")
        return {"incarnation": self._me.incarnation, "members": [_plain(record) for record in known]}

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Begin a new life: take a higher incarnation, and the other members as if there was news of them now."""
        self._me = replace(self._me, incarnation=max(self._me.incarnation, state["incarnation"] + 1))
        for name, host, port, incarnation, heartbeat, finished in state["members"]:
            record = MemberRecord(name, Address(host, port), incarnation, heartbeat, finished=finished)
            if is_plausible(record) and name != self._me.name and self._has_room(now):
                self._others[name] = _KnownMember(record, now, now - self._rules.suspect_s)


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
    address = record.address
    return [record.name, address.host, address.port, record.incarnation, record.heartbeat, record.finished]

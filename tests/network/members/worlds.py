# SPDX-License-Identifier: Apache-2.0
"""Members that gossip once a second in virtual time, over links that lose messages or are cut, some of them liars."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pens.network.members.callees import Target
from pens.network.members.membership import Membership
from pens.network.members.rules import MembershipRules
from pens.network.transport.interface import Address, MemberRecord, Table
from pens.network.transport.wire import encode_table
from tests.network.members.notaries import FakeAuthority, FakeNotary

Lie = Callable[[int, Table], Table]
"""What a liar tells: from its number, and from what an honest member would tell."""


def place(me: int) -> Address:
    return Address("host", me + 1)


def record(me: int, incarnation: int = 1, heartbeat: int = 0, left: bool = False) -> MemberRecord:
    return MemberRecord(f"m{me}", place(me), incarnation, heartbeat, left)


@dataclass
class World:
    """Members 0, 1, …; all but the first know the address of the first."""

    size: int
    loss: float = 0.0
    seed: int = 0
    rules: MembershipRules = field(default_factory=MembershipRules)
    trusting: bool = True
    now: float = 0.0
    dead: set[int] = field(default_factory=set)
    cut: set[frozenset[int]] = field(default_factory=set)
    lies: dict[int, Lie] = field(default_factory=dict)
    weigh_every: int = 0
    """The bytes of every this many exchanges are counted; 0: of none."""

    def __post_init__(self) -> None:
        self.luck = random.Random(self.seed)
        self.authority = FakeAuthority(self.trusting)
        self.notaries: list[FakeNotary] = []
        self.members: list[Membership] = []
        self.bytes = self.weighed = self.exchanges = self.connections = 0
        self.open: dict[int, dict[int, None]] = {}
        for _ in range(self.size):
            self.join()

    def join(self) -> int:
        """One more member."""
        me = len(self.members)
        self.notaries.append(self.authority.admit(f"m{me}"))
        self.members.append(self.born(me, 1))
        return me

    def born(self, me: int, incarnation: int) -> Membership:
        """A life of a member."""
        bootstrap = [place(0)] if me else []
        secret = self.seed * 1_000_003 + me
        return Membership(record(me, incarnation), secret, self.rules, self.notaries[me], lambda: self.now, bootstrap)

    def acquaint(self) -> None:
        """Everybody knows everybody, or a sample."""
        for me, mine in enumerate(self.members):
            others = range(len(self.members))
            if len(self.members) > 2 * self.rules.view:
                others = self.luck.sample(others, 2 * self.rules.view)  # type: ignore[assignment]
            for other in others:
                if other != me:
                    self.notaries[me].known.add(self.notaries[other].serial)
                    mine.hear(Table((self.members[other].me,)), self.now, "m0" if me else "m1")

    def connect_partners(self) -> None:
        """Connections to those whom each member will call first are open, as in a federation that has run for long."""
        for me, mine in enumerate(self.members):
            for known in mine._callees.partners(self.now)[:64]:
                self.open.setdefault(me, {})[known.record.address.port - 1] = None

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.now += 1.0
            for me in range(len(self.members)):
                if me not in self.dead:
                    for target in self.members[me].tick(self.now):
                        self.call(me, target)

    def call(self, me: int, target: Target) -> None:
        """As the gossiper does it: a call, its answer, and once more if certificates are needed."""
        mine, other = self.members[me], target.address.port - 1
        there = target.address.host == "host" and other != me and other not in self.dead
        if not there or target.name not in (None, f"m{other}") or frozenset((me, other)) in self.cut:
            if target.name:
                mine.missed(target.name)
            return
        self._connect(me, other)
        theirs = self.members[other]
        table: Table | None = mine.tell(target.name, self.now)
        for _ in range(2):
            if table is None or self.luck.random() < self.loss:
                return
            table = self.lies[me](me, table) if me in self.lies else table
            theirs.hear(table, self.now, f"m{me}")
            answer = theirs.answer(f"m{me}", table, self.now)
            answer = self.lies[other](other, answer) if other in self.lies else answer
            self._weigh(table, answer)
            if self.luck.random() < self.loss:
                return
            mine.hear(answer, self.now, f"m{other}")
            mine.heard(f"m{other}", self.now, target.address)
            table = mine.follow_up(f"m{other}", answer)

    def _connect(self, me: int, other: int) -> None:
        """Connections are kept as the transport keeps them: the 64 that were used last."""
        mine = self.open.setdefault(me, {})
        self.connections += other not in mine
        mine.pop(other, None)
        mine[other] = None
        if len(mine) > 64:
            del mine[next(iter(mine))]

    def _weigh(self, *tables: Table) -> None:
        self.exchanges += 1
        if self.weigh_every and self.exchanges % self.weigh_every == 0:
            self.weighed += 1
            self.bytes += sum(len(encode_table(table)) for table in tables)

    # --- liars --------------------------------------------------------------------------------------------------------

    def lie(self, who: Iterable[int], what: str = "everything") -> None:
        """From now on these members lie, together: they answer every wish for certificates, but tell no truth of
        honest members. They know all members, and all records that were ever signed until now."""
        liars = tuple(who)
        told = [member.me for member in self.members]
        lies = [LIES["each other"]] if what == "each other" else list(LIES.values())

        def lie(me: int, table: Table) -> Table:
            if not table.records:
                return table
            kind = lies[self.luck.randrange(len(lies))]
            false = kind(self, liars, told)
            return replace(table, records=(self._fresh(me), *false), room=64)

        self.lies = dict.fromkeys(liars, lie)

    def _fresh(self, liar: int) -> MemberRecord:
        """A liar's own record, newer than any before."""
        return self.notaries[liar].sign(record(liar, 1, int(self.now) + self.luck.randrange(1, 1_000_000)))

    def _each_other(self, liars: Sequence[int], told: Sequence[MemberRecord]) -> list[MemberRecord]:
        return [self._fresh(liar) for liar in self.luck.choices(liars, k=64)]

    def _victims(self, told: Sequence[MemberRecord]) -> list[MemberRecord]:
        honest = [r for me, r in enumerate(told) if me not in self.lies]
        return self.luck.sample(honest, min(len(honest), 64))

    def seen(self, me: int) -> set[int]:
        """Whom a member takes to be there."""
        return {int(r.name[1:]) for r in self.members[me].members(self.now, "alive")}

    def honest(self) -> list[int]:
        return [me for me in range(len(self.members)) if me not in self.lies and me not in self.dead]


def _forged(**changes: Any) -> Callable[[World, Sequence[int], Sequence[MemberRecord]], list[MemberRecord]]:
    """Changed records of honest members, newer than the true ones, signed by a liar as far as it can."""

    def lies(world: World, liars: Sequence[int], told: Sequence[MemberRecord]) -> list[MemberRecord]:
        key = world.notaries[world.luck.choice(liars)]
        newer = {"incarnation": 9, "heartbeat": int(world.now) + 1, **changes}
        false = [replace(victim, **newer) for victim in world._victims(told)]
        return [replace(key.sign(r), serial=r.serial) if world.luck.random() < 0.5 else key.sign(r) for r in false]

    return lies


def _invented(world: World, liars: Sequence[int], told: Sequence[MemberRecord]) -> list[MemberRecord]:
    some = world.luck.randrange(1 << 30)
    return [MemberRecord(f"x{some + n}", place(0), 1, int(world.now), serial=some + n + 10**6) for n in range(64)]


LIES: dict[str, Callable[[World, Sequence[int], Sequence[MemberRecord]], list[MemberRecord]]] = {
    "another address": _forged(address=Address("evil", 9)),
    "left": _forged(left=True),
    "finished": _forged(finished=True),
    "invented names": _invented,
    "old records": lambda world, liars, told: world._victims(told),
    "each other": lambda world, liars, told: world._each_other(liars, told),
    "nothing": lambda world, liars, told: [],
}


@dataclass(frozen=True)
class Knowledge:
    """What honest members know of honest members: shares of all pairs in view."""

    known: float
    alive: float
    wrong: float
    """Another address or another life than the true one."""
    left: float
    finished: float


def knowledge(world: World) -> Knowledge:
    honest = world.honest()
    pairs = known = alive = wrong = left = finished = 0
    for me in honest:
        mine = world.members[me]
        for other in honest:
            if other == me:
                continue
            pairs += 1
            found = mine.find(f"m{other}")
            if found is None:
                continue
            true = world.members[other].me
            known += 1
            alive += mine.status(f"m{other}", world.now) == "alive"
            wrong += found.address != true.address or found.incarnation != true.incarnation
            left += found.left
            finished += found.finished
    of = max(1, known)
    return Knowledge(known / max(1, pairs), alive / of, wrong / of, left / of, finished / of)

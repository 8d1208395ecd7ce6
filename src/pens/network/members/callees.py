# SPDX-License-Identifier: Apache-2.0
"""Whom a member calls in a round of gossip.

In a small federation everyone is called in turn, over connections that stay open. In a large one that would be a new
connection for nearly every call, which costs as much as a dozen calls. So a member calls a few partners, drawn at
random and exchanged slowly one by one. Besides, it calls now and then whoever there was no news of for the longest
time, members that were dropped, and the addresses that it began with, so that a network that was cut in two becomes one
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pens.network.members.draws import Draws
from pens.network.members.roster import KnownMember, Roster
from pens.network.members.rules import MembershipRules
from pens.network.members.standing import Standing
from pens.network.transport.interface import Address

_BOOTSTRAP = (
    0.02  # of the calls of lost members go to bootstrap addresses where more members are known than are in view
)
_URGENT = 4  # times as long as others a neighbour counts as silent


class Target(NamedTuple):
    """An address to gossip with. `name`: the member that must answer there; None: any member may."""

    address: Address
    name: str | None


class Callees:
    """Chooses whom to call next."""

    def __init__(
        self, roster: Roster, standing: Standing, rules: MembershipRules, draws: Draws, bootstrap: Sequence[Address]
    ) -> None:
        self._roster, self._standing, self._rules, self._draws = roster, standing, rules, draws
        self._bootstrap = tuple(bootstrap)
        self._partners: list[str] = []
        self._partners_until = 0.0
        self._rounds = 0

    def change(self, rules: MembershipRules, bootstrap: Sequence[Address]) -> None:
        """Use other times, and other addresses to call first, from now on."""
        self._rules, self._bootstrap = rules, tuple(bootstrap)

    @property
    def lost_every(self) -> int:
        """After so many rounds a member without news, a dropped one or a bootstrap address is called."""
        return self._rules.call_lost_of_many_every if self._is_large else self._rules.call_lost_every

    @property
    def _is_large(self) -> bool:
        return len(self._roster) > self._rules.large

    def next(self, now: float) -> list[Target]:
        """Whom to call in the next round."""
        self._rounds += 1
        there = self.partners(now)
        targets = [target_at(known) for known in self._some(there)]
        if not there or self._rounds % self.lost_every == 0:
            targets += self._lost(now, 1 if there else self._rules.fanout)
        return targets

    def partners(self, now: float) -> list[KnownMember]:
        """Those who may be called: everyone that is there in a small federation, else a few."""
        if self._is_large:
            return self._few(now)
        return [known for known in self._roster.sample() if self._standing.is_there(known, now)]

    def _some(self, there: list[KnownMember]) -> list[KnownMember]:
        """The one that has said nothing itself for the longest time, and others at random; in a large federation, the
        one or the other."""
        if not there or (self._is_large and self._rounds % 2):
            return self._draws.some(there, 1)
        longest = min(there, key=lambda known: known.spoke)
        others = [known for known in there if known is not longest]
        return [longest, *self._draws.some(others, 0 if self._is_large else self._rules.fanout - 1)]

    def _few(self, now: float) -> list[KnownMember]:
        known = {name: member for name in self._partners if (member := self._roster.get(name))}
        kept = {name: member for name, member in known.items() if self._standing.is_there(member, now)}
        if now >= self._partners_until and kept:
            self._partners_until = now + self._rules.partner_s
            del kept[next(iter(kept))]
        for _ in range(4 * (self._rules.partners - len(kept))):
            drawn = self._roster.at(self._draws.place(len(self._roster)))
            if len(kept) < self._rules.partners and self._standing.is_there(drawn, now):
                kept.setdefault(drawn.record.name, drawn)
        self._partners = list(kept)
        return list(kept.values())

    def _lost(self, now: float, count: int) -> list[Target]:
        """Dropped members and bootstrap addresses, in turn with the member that there was no news of for longest."""
        silent = self._longest_silent(now)
        lost = [target_at(known) for known in self._roster if self._standing.of(known, now) == "dropped"]
        if len(self._roster) < self._rules.view or self._draws.number() < _BOOTSTRAP:
            known = {k.record.address for k in self._roster if self._standing.of(k, now) != "left"}
            lost += [Target(address, None) for address in self._bootstrap if address not in known]
        if silent and (not lost or self._rounds // self.lost_every % 2):
            return [target_at(silent)]
        return self._draws.some(lost, count)

    def _longest_silent(self, now: float) -> KnownMember | None:
        """The member without news for the longest time, if for long."""

        def silence(known: KnownMember) -> float:
            return (now - known.heard) * (_URGENT if self._roster.is_neighbour(known.record.name) else 1)

        there = [known for known in self._roster if self._standing.is_there(known, now)]
        longest = max(there, key=silence, default=None)
        return longest if longest and silence(longest) > self._standing.suspect_s / 2 else None


def target_at(known: KnownMember) -> Target:
    """Where to try to reach a member: where its record says or, every other time in vain, where it last answered."""
    elsewhere = known.confirmed if known.missed % 2 else None
    return Target(elsewhere or known.record.address, known.record.name)

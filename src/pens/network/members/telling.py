# SPDX-License-Identifier: Apache-2.0
"""Telling: which records a member tells in a call of gossip, so few that its traffic is bounded.

Each message has this member's own record and `told` others: first news, the latest first, each told a few times; then
records that are only passing through, because the members that they are about are not in the roster, each told once;
then members of the sample at random. So news travel fast in a federation of any size, records of all members reach
every member where rosters hold only a part of them, and nothing is ever told that was not checked.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Collection
from itertools import islice

from pens.network.members.draws import Draws
from pens.network.members.roster import Roster
from pens.network.transport.interface import MemberRecord

_TIMES = 3  # that a piece of news is told
_MOST_NEWS = 256
_PASSING = 64


class Telling:
    """What is to be told next."""

    def __init__(self, roster: Roster, draws: Draws) -> None:
        self._roster, self._draws = roster, draws
        self._news: OrderedDict[str, int] = OrderedDict()  # how often each is still to be told; the latest last
        self._passing: deque[MemberRecord] = deque(maxlen=_PASSING)

    def add(self, name: str) -> None:
        """There is news of a member of the roster."""
        self._news[name] = _TIMES
        self._news.move_to_end(name)
        if len(self._news) > _MOST_NEWS:
            self._news.popitem(last=False)

    def pass_on(self, record: MemberRecord) -> None:
        """Tell a record that is not kept, once."""
        self._passing.append(record)

    def choose(self, count: int, known: Collection[tuple[str, tuple[int, int]]]) -> list[MemberRecord]:
        """The records to tell somebody. `known`: names and versions that need not be told."""
        chosen: dict[str, MemberRecord] = {}
        latest = list(islice(reversed(self._news), 2 * count))
        for name in latest:
            if len(chosen) < (count + 1) // 2:
                self._tell_news(name, chosen, known)
        while self._passing and len(chosen) < count - count // 4:
            record = self._passing.pop()
            if (record.name, record.version) not in known:
                chosen[record.name] = record
        for _ in range(2 * count):
            if len(chosen) >= count or not len(self._roster):
                break
            record = self._roster.at(self._draws.place(len(self._roster))).record
            if (record.name, record.version) not in known:
                chosen.setdefault(record.name, record)
        return list(chosen.values())

    def _tell_news(
        self, name: str, chosen: dict[str, MemberRecord], known: Collection[tuple[str, tuple[int, int]]]
    ) -> None:
        entry = self._roster.get(name)
        if entry is None:
            del self._news[name]
        elif (name, entry.record.version) not in known:
            chosen[name] = entry.record
            self._news[name] -= 1
            if not self._news[name]:
                del self._news[name]

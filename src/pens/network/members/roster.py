# SPDX-License-Identifier: Apache-2.0
"""Roster: the members that this one keeps track of, a random sample of all where there are more than it has room for.

The sample is a bottom-k sketch. Every name has a rank, a random number that depends on the name and on a secret of this
member; the `size` names of lowest rank are in the sample. So every member is in it with the same probability, however
often others name it, and nobody can choose a name that will be. A rank is drawn anew every `redraw_s` seconds, at
another moment for each name, so that the sample slowly becomes another one. Where there are no more members than
`size`, all of them are in the sample. Where there are more, the median of the ranks in it tells how many there are.

Beside the sample there are guests, whose records are kept so that this member can reach them: its neighbours, those who
sent it models, and those who called it last.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from statistics import median_low

from pens import rng
from pens.network.transport.interface import Address, MemberRecord

_GUESTS = 128  # senders of models, and as many callers
_REVIEW_S = 30.0  # between two reviews of the sample: whose rank was drawn anew, and who is gone


@dataclass(slots=True)
class KnownMember:
    """A member in the roster."""

    record: MemberRecord
    heard: float
    """When there last was news of it."""
    spoke: float
    """When it last said something itself."""
    confirmed: Address | None = None
    """Where it last answered."""
    missed: int = 0
    """Calls since then that it did not answer."""
    silent: int = 0
    """Calls since the last news of it that it did not answer."""
    sampled: bool = False
    key: int = 0
    """Of the random numbers that are its ranks."""


class Roster:
    """The members that this one keeps track of."""

    def __init__(self, size: int, secret: int, redraw_s: float, is_gone: Callable[[KnownMember, float], bool]) -> None:
        """`is_gone`: whether a member makes way for any other."""
        self._size, self._secret, self._redraw_s, self._is_gone = size, secret, redraw_s, is_gone
        self._known: dict[str, KnownMember] = {}
        self._sample: list[str] = []
        self._places: dict[str, int] = {}
        self._neighbours: frozenset[str] = frozenset()
        self._senders: OrderedDict[str, None] = OrderedDict()
        self._callers: OrderedDict[str, None] = OrderedDict()
        self._ranks: list[tuple[float, str]] = []  # a heap of the sample's ranks, negative: the highest first
        self._gone: list[str] = []
        self._reviewed = -_REVIEW_S
        self.estimate = 0.0
        """About how many members there are."""

    def __len__(self) -> int:
        """How many members are in the sample."""
        return len(self._sample)

    def __iter__(self) -> Iterator[KnownMember]:
        return iter(self._known.values())

    def get(self, name: str) -> KnownMember | None:
        """A member, in the sample or a guest; None for one that is not kept track of."""
        return self._known.get(name)

    def sample(self) -> list[KnownMember]:
        """The members of the sample."""
        return [self._known[name] for name in self._sample]

    def at(self, place: int) -> KnownMember:
        """The member at a place of the sample."""
        return self._known[self._sample[place]]

    # --- the sample ---------------------------------------------------------------------------------------------------

    def has_room_for(self, name: str, now: float) -> bool:
        """Whether a member belongs to the sample, now that it was heard of."""
        if len(self._sample) < self._size:
            return True
        self._review(now)
        return bool(self._gone) or self._rank(self._key(name), now) < -self._ranks[0][0]

    def add(self, record: MemberRecord, heard: float, spoke: float, now: float) -> KnownMember | None:
        """Keep track of a member if it belongs to the sample or is a guest; None if it is neither."""
        name = record.name
        known = self._known.get(name) or KnownMember(record, heard, spoke, key=self._key(name))
        if not known.sampled and self.has_room_for(name, now):
            self._known[name] = known
            self._enter(known, now)
        elif self._is_guest(name):
            self._known[name] = known
        return self._known.get(name)

    def remove(self, name: str) -> None:
        """Keep track of a member no longer."""
        known = self._known.get(name)
        if known is None:
            return
        for guests in (self._senders, self._callers):
            guests.pop(name, None)
        self._neighbours -= {name}
        self._leave(known) if known.sampled else self._known.pop(name)

    def _enter(self, known: KnownMember, now: float) -> None:
        if len(self._sample) >= self._size:
            self._leave(self._known[self._gone.pop() if self._gone else self._ranks[0][1]])
        known.sampled = True
        self._places[known.record.name] = len(self._sample)
        self._sample.append(known.record.name)
        heapq.heappush(self._ranks, (-self._rank(known.key, now), known.record.name))
        self.estimate = max(self.estimate, len(self._sample))

    def _leave(self, known: KnownMember) -> None:
        name, last = known.record.name, self._sample.pop()
        place = self._places.pop(name)
        if last != name:
            self._sample[place], self._places[last] = last, place
        known.sampled = False
        if name in self._gone:
            self._gone.remove(name)
        while self._ranks and self._ranks[0][1] not in self._places:
            heapq.heappop(self._ranks)
        self._forget_unless_guest(name)

    def _review(self, now: float) -> None:
        """Look again, at times, who is gone, and what the ranks are.

        The highest ranks are those that were drawn anew and wait for a lower one to take their place, so the number of
        members is estimated by the median.
        """
        if self._reviewed <= now < self._reviewed + _REVIEW_S:
            return
        self._reviewed = now
        self._ranks = [(-self._rank(known.key, now), known.record.name) for known in self.sample()]
        heapq.heapify(self._ranks)
        self._gone = [known.record.name for known in self.sample() if self._is_gone(known, now)]
        self.estimate = max(len(self._sample), len(self._sample) / 2 / -median_low(self._ranks)[0])

    def _key(self, name: str) -> int:
        return rng.key(self._secret, "rank", name)

    def _rank(self, key: int, now: float) -> float:
        turn = int(now / self._redraw_s + rng.number(key, 0))
        return rng.number(key, 1 + turn)

    # --- guests -------------------------------------------------------------------------------------------------------

    def keep_neighbours(self, names: Collection[str]) -> None:
        """From now on these are the neighbours; all who are known stay so."""
        before, self._neighbours = self._neighbours, frozenset(names)
        for name in before - self._neighbours:
            self._forget_unless_guest(name)

    def keep_sender(self, name: str) -> None:
        """Note that a member sent a model."""
        self._keep(self._senders, name)

    def keep_caller(self, name: str) -> None:
        """Note that a member called or answered."""
        self._keep(self._callers, name)

    def guests(self) -> list[KnownMember]:
        """Neighbours and senders of models that are not in the sample."""
        names = self._neighbours | self._senders.keys()
        return [self._known[name] for name in names if name in self._known and not self._known[name].sampled]

    def is_neighbour(self, name: str) -> bool:
        """Whether a member is one of the neighbours."""
        return name in self._neighbours

    def _keep(self, guests: OrderedDict[str, None], name: str) -> None:
        guests[name] = None
        guests.move_to_end(name)
        if len(guests) > _GUESTS:
            gone, _ = guests.popitem(last=False)
            self._forget_unless_guest(gone)

    def _is_guest(self, name: str) -> bool:
        return name in self._neighbours or name in self._senders or name in self._callers

    def _forget_unless_guest(self, name: str) -> None:
        known = self._known.get(name)
        if known and not known.sampled and not self._is_guest(name):
            del self._known[name]

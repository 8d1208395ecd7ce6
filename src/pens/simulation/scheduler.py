# SPDX-License-Identifier: Apache-2.0
"""The queue of events, and the virtual clock.

Entries are (time, counter, peer, event): events at the same time come out in the order in which they went in. Events
without delay (in `rounds`, every message) go through a plain queue beside the heap, at a cost that does not grow with
the number of events.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import Any

from pens.protocol.messages import Answered, Event, ModelRef, PeerId, Pulled, Received, Start, Updated, Wake

Entry = tuple[float, int, PeerId, Event]
_BARE: dict[str, Event] = {"start": Start(), "wake": Wake(), "updated": Updated()}
_NAME = {type(event): name for name, event in _BARE.items()}


class EventQueue:
    """The events to come, and the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[Entry] = []
        self._at_once: deque[Entry] = deque()  # of the current time, so that all else of that time came before
        self._counter = 0

    def put(self, delay: float, peer: PeerId, event: Event) -> None:
        """Add an event that happens `delay` from now."""
        entry = (self.now + delay, self._counter, peer, event)
        self._counter += 1
        if delay:
            heapq.heappush(self._heap, entry)
        else:
            self._at_once.append(entry)

    def next_before(self, end: float) -> tuple[PeerId, Event] | None:
        """The next event before `end`, with the clock moved to it. None if there is none, with the clock moved to `end`
        where that is a time to come."""
        upcoming = self._first()
        if upcoming is None or upcoming[0][0] >= end:
            self.now = max(self.now, end) if end < math.inf else self.now
            return None
        self.now, _, peer, event = heapq.heappop(self._heap) if upcoming is self._heap else self._at_once.popleft()
        return peer, event

    def _first(self) -> list[Entry] | deque[Entry] | None:
        """The heap or the queue, whichever holds the next event."""
        if self._heap and self._at_once:
            return self._heap if self._heap[0] < self._at_once[0] else self._at_once
        return self._heap or self._at_once or None

    def state(self) -> dict[str, Any]:
        """The time and all events to come, as plain data, in order."""
        entries = [[t, c, p, *encode_event(e)] for t, c, p, e in sorted([*self._heap, *self._at_once])]
        return {"now": self.now, "counter": self._counter, "entries": entries}

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` described."""
        self.now, self._counter = state["now"], state["counter"]
        # in order, and so a heap
        self._heap = [(t, c, PeerId(p), decode_event(*event)) for t, c, p, *event in state["entries"]]
        self._at_once = deque()


def encode_event(event: Event) -> list[Any]:
    """An event as plain data; of an answer only the name, since the driver knows the rest."""
    if isinstance(event, Received):
        extras = [event.answer, event.note] if event.note is not None else [True] if event.answer else []
        return ["received", *event.model, *extras]
    if isinstance(event, Pulled):
        return ["pulled", *map(list, event.models), *([{"notes": list(event.notes)}] if event.notes else [])]
    if isinstance(event, Answered):
        return ["answered", event.name]
    return [_NAME[type(event)]]


def decode_event(name: str, *parts: Any) -> Event:
    """What `encode_event` made plain data of."""
    values = list(parts)
    if name == "received":
        owner, version, *extras = values
        return Received(_ref(owner, version), *extras)
    if name == "pulled":
        notes = tuple(values.pop()["notes"]) if values and isinstance(values[-1], dict) else ()
        return Pulled(tuple(_ref(*value) for value in values), notes)
    if name == "answered":
        return Answered(values[0], None)
    return _BARE[name]


def _ref(owner: int, version: int) -> ModelRef:
    return ModelRef(PeerId(owner), version)

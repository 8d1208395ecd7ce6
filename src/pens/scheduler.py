"""Event heap and virtual clock.

Entries are (time, counter, peer, event): events at the same time come out in the order in which they went in.
"""

from __future__ import annotations

import heapq
import math
from typing import Any

from pens.messages import Event, ModelRef, PeerId, Received, Start, Updated, Wake

_BARE: dict[str, Event] = {"start": Start(), "wake": Wake(), "updated": Updated()}
_NAME = {type(event): name for name, event in _BARE.items()}


class EventQueue:
    """What will happen, and what time it is."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, PeerId, Event]] = []
        self._counter = 0

    def put(self, delay: float, peer: PeerId, event: Event) -> None:
        """Let an event happen `delay` from now."""
        heapq.heappush(self._heap, (self.now + delay, self._counter, peer, event))
        self._counter += 1

    def next_before(self, end: float) -> tuple[PeerId, Event] | None:
        """The next event before `end`, with the clock moved to it. None if there is none, with the clock moved to `end`
        where that is a time to come."""
        if not self._heap or self._heap[0][0] >= end:
            self.now = end if self.now < end < math.inf else self.now
            return None
        self.now, _, peer, event = heapq.heappop(self._heap)
        return peer, event

    def state(self) -> dict[str, Any]:
        entries = [[t, c, p, *_encode(e)] for t, c, p, e in sorted(self._heap, key=lambda entry: entry[:2])]
        return {"now": self.now, "counter": self._counter, "entries": entries}

    def restore(self, state: dict[str, Any]) -> None:
        self.now, self._counter = state["now"], state["counter"]
        self._heap = [(t, c, PeerId(p), _decode(*event)) for t, c, p, *event in state["entries"]]
        heapq.heapify(self._heap)


def _encode(event: Event) -> list[Any]:
    if isinstance(event, Received):
        return ["received", event.model.owner, event.model.version]
    return [_NAME[type(event)]]


def _decode(name: str, *model: int) -> Event:
    return Received(ModelRef(PeerId(model[0]), model[1])) if name == "received" else _BARE[name]

# SPDX-License-Identifier: Apache-2.0
"""Models that each peer of a simulation sent, received and refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from pens.data.samples import Array
from pens.learning.ledger import Ledger
from pens.protocol.messages import PeerId

Counted = Literal["sent", "received", "refused"]


class MessageCounts:
    """Models that each peer sent, received, and refused because the sender is not one of its neighbours.

    Events run ahead of the end of a run: those that are not certain to lie before it are kept apart, with their times.
    """

    def __init__(self, num_peers: int, certain_until: float = 0.0) -> None:
        self.sent, self.received, self.refused = ([0] * num_peers for _ in range(3))
        self._certain_until = certain_until
        self._uncertain: deque[tuple[float, Counted, PeerId]] = deque()
        self._heard = [0] * num_peers
        self.at_update = Ledger("peer", "version", "received")
        """What each peer had received when it began the update that made this version of its model."""

    def begin_update(self, peer: PeerId, version: int) -> None:
        self.at_update.add(peer, version, self._heard[peer])

    def received_at(self, peer: Array, version: Array) -> Array:
        """Models that peers had received when they began these updates, refused ones included.  [update]"""
        peers, versions = self.at_update.column("peer"), self.at_update.column("version")
        order = np.lexsort((versions, peers))
        begins = np.searchsorted(peers[order], peer)  # a peer's versions are 1, 2, 3, …
        counts: Array = self.at_update.column("received")[order][begins + version - 1]
        return counts

    def count(self, event: Counted, peer: PeerId, time: float, models: int = 1) -> None:
        """Count one model, or several. Times never decrease."""
        if event == "received":
            self._heard[peer] += models
        if time <= self._certain_until:
            getattr(self, event)[peer] += models
        elif models == 1:
            self._uncertain.append((time, event, peer))
        else:
            self._uncertain.extend([(time, event, peer)] * models)

    def count_sent(self, peers: Sequence[PeerId], time: float) -> None:
        """Count one model that each of these peers sent."""
        if time <= self._certain_until:
            for peer in peers:
                self.sent[peer] += 1
        else:
            self._uncertain.extend([(time, "sent", peer) for peer in peers])

    def settle(self, until: float) -> None:
        """Count all events up to that time: they are certain."""
        self._certain_until = max(self._certain_until, until)
        while self._uncertain and self._uncertain[0][0] <= until:
            _, event, peer = self._uncertain.popleft()
            getattr(self, event)[peer] += 1

    def state(self) -> dict[str, list[Any]]:
        counts = {"sent": self.sent, "received": self.received, "refused": self.refused}
        return {**counts, "heard": self._heard, "uncertain": [list(entry) for entry in self._uncertain]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.sent, self.received, self.refused = (list(state[k]) for k in ("sent", "received", "refused"))
        self._heard = list(state["heard"])
        self._uncertain = deque((time, event, PeerId(peer)) for time, event, peer in state["uncertain"])

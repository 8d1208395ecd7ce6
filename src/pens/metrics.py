"""What is measured of a run: accuracy, the neighbours' precision and recall, models sent and received."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import stdtrit

from pens.data.samples import Array
from pens.ledger import Ledger
from pens.messages import PeerId

Kind = Literal["sent", "received", "refused"]


class Traffic:
    """Models that each peer sent, received, and refused because the sender was no neighbour of its.

    A simulation runs ahead of its own end: what is not certain to lie before it is kept apart, with its time.
    """

    def __init__(self, num_peers: int, certain_until: float = 0.0) -> None:
        self.sent, self.received, self.refused = ([0] * num_peers for _ in range(3))
        self._certain_until = certain_until
        self._uncertain: deque[tuple[float, Kind, PeerId]] = deque()
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

    def count(self, kind: Kind, peer: PeerId, time: float, models: int = 1) -> None:
        """One more model, or several. Times never decrease."""
        if kind == "received":
            self._heard[peer] += models
        if time <= self._certain_until:
            getattr(self, kind)[peer] += models
        else:
            self._uncertain.extend([(time, kind, peer)] * models)

    def settle(self, until: float) -> None:
        """All up to that time did happen."""
        self._certain_until = max(self._certain_until, until)
        while self._uncertain and self._uncertain[0][0] <= until:
            _, kind, peer = self._uncertain.popleft()
            getattr(self, kind)[peer] += 1

    def state(self) -> dict[str, list[Any]]:
        counts = {"sent": self.sent, "received": self.received, "refused": self.refused}
        return {**counts, "heard": self._heard, "uncertain": [list(entry) for entry in self._uncertain]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.sent, self.received, self.refused = (list(state[k]) for k in ("sent", "received", "refused"))
        self._heard = list(state["heard"])
        self._uncertain = deque((time, kind, PeerId(peer)) for time, kind, peer in state["uncertain"])


@dataclass(frozen=True)
class Agreement:
    """How well selected neighbours agree with the true kinds (section 6.1, table 5)."""

    precision: float
    """The fraction of peers of the same distribution among those selected; mean over peers."""
    recall: float
    """The fraction selected among the peers of the same distribution; mean over peers."""


def neighbour_agreement(selections: Mapping[PeerId, Sequence[PeerId]], kinds: Sequence[int]) -> Agreement | None:
    """Section 6.1: precision and recall of the selected neighbours. None where nobody selected."""
    precisions, recalls = [], []
    sizes = Counter(kinds)
    for peer, neighbours in selections.items():
        right = sum(kinds[n] == kinds[peer] for n in neighbours)
        alike = sizes[kinds[peer]] - 1
        precisions += [right / len(neighbours)] if neighbours else []
        recalls += [right / alike] if alike else []
    if not precisions or not recalls:
        return None
    return Agreement(float(np.mean(precisions)), float(np.mean(recalls)))


def worst_tenth(accuracy: Array) -> float:
    """Mean accuracy of the worst tenth of the peers, at least one."""
    count = max(1, math.ceil(len(accuracy) / 10))
    return float(np.sort(accuracy)[:count].mean())


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and half the width of its 95 % confidence interval; None with one seed."""

    mean: float
    half_width: float | None

    def __str__(self) -> str:
        return self.percent()

    def percent(self) -> str:
        half = "" if self.half_width is None else f" ± {100 * self.half_width:.1f}"
        return f"{100 * self.mean:.1f}{half}"

    def signed(self) -> str:
        """A difference: +7.0 ± 1.9, in points."""
        sign = "" if round(1000 * self.mean) == 0 else "−" if self.mean < 0 else "+"
        return sign + self.percent().lstrip("-")


def interval(values: Sequence[float]) -> Interval:
    """Section 5.4: mean and 95 % confidence interval over seeds, by Student's t."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(mean, None)
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(mean, float(stdtrit(len(values) - 1, 0.975)) * error)

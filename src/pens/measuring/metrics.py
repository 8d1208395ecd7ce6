# SPDX-License-Identifier: Apache-2.0
"""Metrics of a run: the main metric with its interval, the neighbours' precision and recall, and work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from pens.data.samples import Array
from pens.data.scenarios import UNKNOWN
from pens.protocol.messages import PeerId
from pens.tasks.metric import ACCURACY, Measure


@dataclass(frozen=True)
class Agreement:
    """How well selected neighbours agree with the true clusters (section 6.1, table 5)."""

    precision: float
    """The share of selected neighbours that are in the peer's own cluster; mean over peers."""
    recall: float
    """The share of the reachable peers of its own cluster that a peer selected; mean over peers that can reach some."""


def neighbour_agreement(
    selections: Mapping[PeerId, Sequence[PeerId]],
    clusters: Sequence[int] | None,
    reachable: Sequence[Sequence[PeerId]] | None = None,
) -> Agreement | None:
    """Section 6.1: precision and recall of the selected neighbours. None where nobody selected, or where the clusters
    are not known (None). `reachable`: whom each peer can reach, if not all others; recall counts only those. Peers
    whose cluster is not known, where those of others are, count neither as selecting nor as selected."""
    if clusters is None:
        return None
    precisions, recalls = [], []
    sizes = Counter(clusters)
    for peer, chosen in selections.items():
        if clusters[peer] == UNKNOWN:
            continue
        neighbours = [other for other in chosen if clusters[other] != UNKNOWN]
        right = sum(clusters[n] == clusters[peer] for n in neighbours)
        alike = sizes[clusters[peer]] - 1 if reachable is None else num_alike(peer, reachable[peer], clusters)
        precisions += [right / len(neighbours)] if neighbours else []
        recalls += [right / alike] if alike else []
    if not precisions or not recalls:
        return None
    return Agreement(float(np.mean(precisions)), float(np.mean(recalls)))


def num_alike(peer: int, others: Sequence[PeerId], clusters: Sequence[int]) -> int:
    """The number of these other peers that are in the peer's own cluster."""
    return sum(clusters[other] == clusters[peer] for other in others)


def worst_tenth(scores: Array, higher_is_better: bool = True) -> float:
    """The mean of the worst tenth of the peers, at least one."""
    count, rising = max(1, math.ceil(len(scores) / 10)), np.sort(scores)
    return float((rising[:count] if higher_is_better else rising[-count:]).mean())


UNKNOWN_CLUSTER = "unknown"
"""The name that older records give to a peer's cluster where it is not known."""


def clusters_are_known(clusters: Sequence[int], cluster_names: Sequence[str]) -> bool:
    """Whether the clusters are known, so that neighbours can be right or wrong.

    Older records write unknown clusters as one cluster for each peer, or as clusters of the name `UNKNOWN_CLUSTER`. One
    cluster for each peer means the same today: no neighbour can be right.
    """
    return len(set(clusters)) < len(clusters) and UNKNOWN_CLUSTER not in cluster_names


FORWARDS_PER_TRAINED_SAMPLE = 3
"""The work of training on a sample once, in forward passes: a backward pass costs about two forward passes."""


def forward_passes(trained: float, validated: float, scored: float) -> float:
    """Work in one unit, forward passes of one sample.

    trained:    samples times epochs of local training, three forward passes each
    validated:  validation samples on which a peer's own models were evaluated, one forward pass each
    scored:     samples on which other peers' models were evaluated, one forward pass each
    """
    return FORWARDS_PER_TRAINED_SAMPLE * trained + validated + scored


FEWEST_SEEDS = 3
"""The smallest number of seeds that gives an interval and a test. With two seeds t is 12.7, and the interval may span
the whole scale."""


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and half the width of its 95 % confidence interval; None with fewer than `FEWEST_SEEDS`."""

    mean: float
    half_width: float | None
    values: tuple[float, ...] = ()
    """The single values, where there are several of them but too few for an interval."""
    measure: Measure = ACCURACY
    """What it is of, which says how it is written: fractions in per cent."""

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Without its unit: 85.3 ± 1.2; of two seeds 85.3 (2 seeds: 84.1, 86.5); of one seed 85.3"""
        return f"{self._plain(self.mean)}{self._spread(f'{len(self.values)} seeds: ', self._plain)}"

    def percent(self) -> str:
        """The same, of fractions."""
        return self.text()

    def words(self) -> str:
        """With its unit: 85.3 ± 1.2 %"""
        return f"{self.text()} {self.measure.unit}".rstrip()

    def brief(self) -> str:
        """The same for a narrow table: 85.3 (84.1, 86.5)"""
        return f"{self._plain(self.mean)}{self._spread('', self._plain)}"

    def short(self) -> str:
        """Without single values, for a picture that shows them: 85.3 ± 1.2, or 85.3"""
        return replace(self, values=()).text()

    def signed(self) -> str:
        """A difference, in points: +7.0 ± 1.9"""
        return f"{self._signed(self.mean)}{self._spread(f'{len(self.values)} seeds: ', self._signed)}"

    def _spread(self, lead: str, form: Callable[[float], str]) -> str:
        if self.half_width is not None:
            return f" ± {self._plain(self.half_width)}"
        return f" ({lead}{', '.join(map(form, self.values))})" if self.values else ""

    def _plain(self, value: float) -> str:
        return self.measure.number(value, like=self.mean)

    def _signed(self, value: float) -> str:
        size = self._plain(value).lstrip("-")
        sign = "" if not float(size) else "−" if value < 0 else "+"
        return sign + size


def interval(values: Sequence[float], measure: Measure = ACCURACY) -> Interval:
    """Section 5.4: mean and 95 % confidence interval over seeds, by Student's t; no interval for one or two seeds."""
    mean = float(np.mean(values))
    if len(values) < FEWEST_SEEDS:
        return Interval(mean, None, tuple(map(float, values)) if len(values) > 1 else (), measure)
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(mean, float(stdtrit(len(values) - 1, 0.975)) * error, measure=measure)

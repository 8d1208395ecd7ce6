# SPDX-License-Identifier: Apache-2.0
"""How evenly a method serves the clusters: the worst cluster, the gap between clusters, and fair accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pens.data.samples import Array
from pens.data.scenarios import UNKNOWN
from pens.tasks.metric import Measure

_PERFECT_SHARE = 1.0  # the best value of a metric in per cent of which more is better


@dataclass(frozen=True)
class Fairness:
    """Of one run: each cluster counts once, however many peers it has."""

    worst: float
    """The mean score of the peers of the worst cluster."""
    gap: float
    """By how much the best cluster is better than the worst one; never negative."""
    fair: float | None
    """Fair accuracy (`fair_score`); None for a metric whose perfect value is not known."""


def cluster_means(scores: Array, clusters: Sequence[int] | None) -> dict[int, float]:
    """The mean score of each cluster's peers. Peers whose cluster is not known are left out.  scores [peer]"""
    if clusters is None:
        return {}
    members = np.array(clusters)
    return {int(of): float(scores[members == of].mean()) for of in np.unique(members) if of != UNKNOWN}


def fairness(scores: Array, clusters: Sequence[int] | None, measure: Measure) -> Fairness | None:
    """How evenly these scores are spread over the clusters; None where no cluster is known.  scores [peer]"""
    means = sorted(cluster_means(scores, clusters).values(), key=measure.goodness)
    if not means:
        return None
    gap = abs(means[-1] - means[0])
    return Fairness(means[0], gap, fair_score(float(np.mean(means)), gap, measure))


def fair_score(mean: float, gap: float, measure: Measure) -> float | None:
    """Fair accuracy as FACADE defines it (Biswas et al. 2025): (2 × mean + similarity) / 3, where the similarity of the
    clusters is 1 − gap, and the mean is over clusters.

    Of errors, which are 0 at best, the same rule makes (2 × mean + gap) / 3: a fair error rate is then 1 minus the fair
    accuracy. None for other metrics, which have no known best value.
    """
    if not measure.higher_is_better:
        return (2 * mean + gap) / 3
    return (2 * mean + _PERFECT_SHARE - gap) / 3 if measure.unit == "%" else None


def fair_words(measure: Measure) -> str:
    """What the three numbers mean."""
    gap, similar = ("best minus worst", "1 − gap") if measure.higher_is_better else ("worst minus best", "gap")
    rule = f"Fair {measure.name}: (2 × mean over clusters + {similar}) / 3."
    words = f"Worst cluster: the mean of its peers. Gap: {gap} cluster."
    return words if fair_score(0, 0, measure) is None else f"{words} {rule}"


def fair_measure(measure: Measure) -> Measure:
    """What fair accuracy is called and measured in."""
    return replace(measure, name=f"fair {measure.name}")

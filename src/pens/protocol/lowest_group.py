# SPDX-License-Identifier: Apache-2.0
"""Neighbours as the group of peers whose models have the lowest losses, which is not in the paper: the rule of `pens+`
(docs/decisions/0040).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from statistics import median

from pens.settings.schema import Score

_LEAST_LOSS = 1e-3
"""Lower losses are not told apart."""
_LEAST_DISTANCE = 1e-9
"""Lower distances are not told apart: those of cosines between models that began alike are small."""

_OF_MEDIAN = 0.1
"""The share of a comparison's median that is added to each of its losses. Without it, the lowest losses of a peer's own
cluster, which is where a model knows its very samples, would lie as far apart as clusters do."""

_MOST_GROUPS = 6

_HEIGHTS_PER_GROUP = 3
"""On average, at least: with fewer, any heights would look like groups."""

_MOST_CUTS = 512  # bounds the work where thousands of peers were heard: peers of adjacent heights go together

_WIDE_GAP = 0.5
"""A gap between two groups counts as one between clusters if it is at least so wide beside the widest."""

_OF_ONE_GROUP = 3
"""One in so many peers is a neighbour where one group explains the heights as well as several."""

_LEAST_SPREAD = 0.01
"""Groups are not narrower than a hundredth of a loss."""


def heights_of(scores: Sequence[float], by: Score) -> list[float]:
    """How high the losses of one comparison are: on a logarithmic scale, on which a peer's data set apart its own
    cluster by about as much early in step 1 as late; and so are distances. A main metric, which may be negative, is a
    height itself."""
    if by == "accuracy":
        return list(scores)
    least = _LEAST_LOSS if by == "loss" else _LEAST_DISTANCE
    added = _OF_MEDIAN * median([score for score in scores if math.isfinite(score)] or [0.0])
    return [math.log(max(score, least) + added) if math.isfinite(score) else math.inf for score in scores]


def lowest_group(heights: Sequence[float]) -> list[bool]:
    """Not in the paper: which peers are in the group whose models have the lowest losses (docs/decisions/0040).

    Models of a peer's own cluster lie around one height, those of each other cluster around another. The sorted heights
    are cut into at most _MOST_GROUPS groups, which are normal with one common variance; how many groups there are is
    decided by the Bayesian information criterion. However few the peers of the lowest group are, they are found if they
    lie apart from the others: counts of selections cannot tell a few peers from the best of many others. But a gap less
    than half as wide as the widest one between two neighbouring groups' means is not one between clusters: where the
    best few models lie a little below the others of their cluster, the next group is in, too.

    Where one group explains the heights as well as several, the lowest third is in, and whoever is as low: peers of one
    cluster lose nothing by that, and where peers differ without being in clusters, the most similar count.
    """
    if not heights:
        return []
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    ascending = [heights[i] for i in order]
    sizes = _group_sizes(ascending)
    if len(sizes) == 1:
        limit = ascending[(len(heights) - 1) // _OF_ONE_GROUP] + 1e-12
        return [height <= limit for height in heights]
    lowest = set(order[: _below_wide_gap(ascending, sizes)])
    return [i in lowest for i in range(len(heights))]


def _below_wide_gap(heights: Sequence[float], sizes: Sequence[int]) -> int:
    """How many of these sorted heights lie below the first wide gap between the means of groups of these sizes."""
    ends = [0, *accumulate(sizes)]
    means = [math.fsum(heights[a:b]) / (b - a) for a, b in pairwise(ends)]
    gaps = [b - a for a, b in pairwise(means)]
    return next(end for end, gap in zip(ends[1:], gaps, strict=False) if gap >= _WIDE_GAP * max(gaps))


def _group_sizes(heights: Sequence[float]) -> list[int]:
    """How many of these sorted heights are in each group, the lowest first.

    With n heights in groups of n_1, n_2, … of which each lies around its own mean, the criterion is
    n log(s / n) − 2 Σ n_i log(n_i / n) + 2 k log n, where s is the sum of squared distances from the means: a group has
    a mean and a share, and the variance is common. It is least over all sizes of the lowest group; the other heights
    are cut such that s is least.
    """
    n = len(heights)
    best, found = math.inf, [n]
    for sizes, spread in _Cuts(heights).candidates():
        shares = math.fsum(size * math.log(size / n) for size in sizes)
        criterion = n * math.log(max(spread / n, _LEAST_SPREAD**2)) - 2 * shares + 2 * len(sizes) * math.log(n)
        if criterion < best - 1e-9:
            best, found = criterion, sizes[::-1]
    return found


class _Cuts:
    """Cuts of sorted heights into groups, the highest first.

    Where the last of several groups begins never falls as more heights are cut into as many groups, so the best cuts of
    n heights take about n log n steps for each number of groups.
    """

    def __init__(self, heights: Sequence[float]) -> None:
        mean = math.fsum(heights) / len(heights)
        centred = [height - mean for height in reversed(heights)]
        self._sums = [0.0, *accumulate(centred)]
        self._squares = [0.0, *accumulate(height * height for height in centred)]
        n, most = len(heights), min(len(heights), _MOST_CUTS)
        self._ends = [n - round(i * n / most) for i in range(most, -1, -1)]
        """Where a group may end."""

    def candidates(self) -> Iterator[tuple[list[int], float]]:
        """The sizes of groups, the lowest last, and the squared distances from the groups' means: for each number of
        groups and each size of the lowest one, where the others are cut best."""
        last = len(self._ends) - 1
        yield [self._ends[last]], self._spread(0, last)
        least, tables = [math.inf, *(self._spread(0, end) for end in range(1, last + 1))], [[0] * (last + 1)]
        for others in range(1, min(_MOST_GROUPS, last // _HEIGHTS_PER_GROUP)):
            for begin in range(others, last):
                yield self._sizes(tables, begin), least[begin] + self._spread(begin, last)
            least, table = self._with_one_more(least, others)
            tables.append(table)

    def _sizes(self, tables: Sequence[Sequence[int]], begin: int) -> list[int]:
        """The sizes of the groups, of which the lowest begins here. `tables`: where the last of so many groups begins,
        by where it ends."""
        places = [len(self._ends) - 1, begin]
        for table in reversed(tables):
            places.append(table[places[-1]])
        return [self._ends[end] - self._ends[start] for end, start in pairwise(places)][::-1]

    def _with_one_more(self, least: Sequence[float], groups: int) -> tuple[list[float], list[int]]:
        """The least squared distances of the first heights in one group more, and where the last group begins."""
        last = len(self._ends) - 1
        new, begins = [math.inf] * (last + 1), [0] * (last + 1)
        spans = [(groups + 1, last, groups, last - 1)]
        while spans:
            first, final, earliest, latest = spans.pop()
            if first > final:
                continue
            end = (first + final) // 2
            found = min(
                (least[begin] + self._spread(begin, end), begin) for begin in range(earliest, min(latest, end - 1) + 1)
            )
            new[end], begins[end] = found
            spans += [(first, end - 1, earliest, found[1]), (end + 1, final, found[1], latest)]
        return new, begins

    def _spread(self, begin: int, end: int) -> float:
        """The squared distances from their mean of the heights between two places."""
        a, b = self._ends[begin], self._ends[end]
        total = self._sums[b] - self._sums[a]
        return max(0.0, self._squares[b] - self._squares[a] - total * total / (b - a))

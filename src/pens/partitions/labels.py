# SPDX-License-Identifier: Apache-2.0
"""Label skew: how many samples of each label every peer gets, and which.

A peer's label law is the shares of its labels. Its training, validation and test data follow the same law: each has
as many samples of a label as the law says, less than one more or fewer (`pens.partitions.cells`).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from pens.data.samples import Array, Samples
from pens.errors import DataError

FINE = 1 << 40
"""Shares as whole numbers: those of which `apportion` makes numbers of samples."""
_TRIES = 10  # to round the sizes of test sets such that there are samples enough


def apportion(weights: Array, size: int | Array, generator: np.random.Generator) -> Array:
    """Whole numbers in proportion to weights, which add up to `size`, each less than one away from its exact share, and
    equal to it on average. Computed in whole numbers, so that the bounds hold to the last unit; real weights are
    rounded to a 2⁻⁴⁰th of their sum first.

    Weights 1, 1, 2 and size 2: 0.5, 0.5 and 1 exactly, so 1, 0, 1 or 0, 1, 1.

    weights [..., label]; size: one for all, or [...]  → [..., label]
    """
    weights = np.asarray(weights)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any(-1).all()):
        raise ValueError("weights are finite numbers of at least 0, some of them above 0 for each peer")
    if weights.dtype.kind == "f":
        weights = np.rint(weights / weights.sum(-1, keepdims=True) * FINE).astype(np.int64)
    totals = weights.sum(-1, keepdims=True)
    ends = (np.cumsum(weights, -1) * np.asarray(size)[..., None] + generator.integers(0, totals)) // totals
    counts: Array = np.diff(ends, prepend=0)
    return counts


def count_labels(samples: Samples, num_classes: int) -> Array:
    """Samples of each label.  [label]"""
    if samples.y.ndim != 1 or samples.y.dtype.kind not in "iu":
        raise DataError(
            f"targets have shape {samples.y.shape} and type {samples.y.dtype}, so that they are no labels to count: "
            "share these samples out in another way"
        )
    return np.bincount(samples.y, minlength=num_classes)


def draw_from(there: Array, sizes: Array, generator: np.random.Generator) -> Array:
    """How many samples of each label every peer gets where all draw from the same samples at random, without putting
    any back.

    there [label], sizes [peer]: together at most as many as there are  → [peer, label]
    """
    labels = generator.permutation(np.repeat(np.arange(len(there)), there))[: sizes.sum()]
    cells = np.repeat(np.arange(len(sizes)), sizes) * len(there) + labels
    counts: Array = np.bincount(cells, minlength=len(sizes) * len(there)).reshape(len(sizes), len(there))
    return counts


def within(counts: Array, there: Array, generator: np.random.Generator) -> Array:
    """As near to these counts as the samples allow. Of a label that too many want, each peer gives up the same share
    of what it wanted, and gets other labels for it, in proportion to what is left of them.

    Two peers want 4 of label 0, a third 4 of label 1, and there are 4 and 8: the first two get 2 and 2.

    counts [peer, label], there [label]  → [peer, label], with the same sums over labels
    """
    counts, missing = counts.copy(), np.zeros(len(counts), np.int64)
    for label in np.flatnonzero(counts.sum(0) > there):
        taken = apportion(counts[:, label], int(counts[:, label].sum() - there[label]), generator)
        counts[:, label] -= taken
        missing += taken
    left = there - counts.sum(0)
    for peer in np.flatnonzero(missing):
        more = apportion(left, int(missing[peer]), generator)
        counts[peer] += more
        left -= more
    return counts


def deal(labels: Array, counts: Array, generator: np.random.Generator) -> list[Array]:
    """Positions of samples for each holder, so many of each label, none twice, in random order. A holder may get none.

    labels [sample], counts [holder, label]
    """
    begins = np.cumsum(counts, 0) - counts
    found: list[list[Array]] = [[] for _ in counts]
    for label in np.flatnonzero(counts.any(0)):
        pool = generator.permutation(np.flatnonzero(labels == label))
        for holder in np.flatnonzero(counts[:, label]):
            begin = begins[holder, label]
            found[holder].append(pool[begin : begin + counts[holder, label]])
    nothing = np.zeros(0, np.int64)
    return [generator.permutation(np.concatenate(parts)) if parts else nothing for parts in found]


def counts_of_tests(
    shares: Array, there: Array, most: int, shared: bool, generator: np.random.Generator
) -> Array | None:
    """How many samples of each cluster and label every test set gets, all of one size: `most`, or fewer where rounding
    asks for more than there are of some label; None where there are too few for one each. `shared`: each draws from all
    samples, so that sets may overlap.

    shares [test, cluster, label]: as whole weights, there [label]  → [test, cluster, label]
    """
    flat = shares.reshape(len(shares), -1)
    for size in (size for size in range(most, 0, -1) for _ in range(_TRIES)):
        wanted = apportion(flat, size, generator).reshape(shares.shape)
        if ((wanted.sum(1).max(0) if shared else wanted.sum((0, 1))) <= there).all():
            return wanted
    return None


def largest_test(counts: Array, there: Array, shared: bool) -> int:
    """How many samples each test set can have, before they are rounded.  counts [test, label], there [label]"""
    sizes = counts.sum(1)
    wanted = np.zeros(len(there), object)  # of each label, for a sample in each test set
    for size in np.unique(sizes):
        of_it = counts[sizes == size]
        shares = np.array([Fraction(int(count), int(size)) for count in (of_it.max(0) if shared else of_it.sum(0))])
        wanted = np.maximum(wanted, shares) if shared else wanted + shares
    return min(int(of // share) for of, share in zip(there.tolist(), wanted, strict=True) if share)

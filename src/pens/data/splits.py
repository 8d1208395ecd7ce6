# SPDX-License-Identifier: Apache-2.0
"""Splits a peer's samples into training, validation and test data, seeded, with the same mix of classes in each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pens import rng
from pens.data.samples import Array, Samples
from pens.errors import DataError, NotEnoughData

PARTS = ("training", "validation", "test")


def split(name: str, samples: Samples, shares: Sequence[float], seed: int) -> list[Samples]:
    """One part for each share, and the rest before them: `split("a", samples, [0.2, 0.1], 0)` gives 70, 20 and 10 %.

    Each part has at least one sample. Parts have the same shares of each class, up to one sample. The same name, seed
    and samples give the same parts.
    """
    order = np.random.default_rng(rng.key(seed, "split", name)).permutation(len(samples))
    if samples.y.ndim == 1 and samples.y.dtype.kind in "iu":
        order = order[np.argsort(samples.y[order], kind="stable")]
    left, taken = order, []
    counts = _counts(name, len(samples), shares)
    for count in reversed(counts[1:]):
        chosen = _evenly(len(left), count)
        taken.append(left[chosen])
        left = left[~chosen]
    return [samples.take(np.sort(index)) for index in (left, *reversed(taken))]


def _counts(name: str, total: int, shares: Sequence[float]) -> list[int]:
    """How many samples each part has, the rest first."""
    if sum(shares) >= 1 or min(shares, default=1.0) <= 0:
        listed = " and ".join(f"{share:g}" for share in shares)
        raise DataError(
            f"shares of {listed} for validation and test data: each has to be above 0, and together they have to be "
            "below 1, so that each part has samples"
        )
    if total < 1 + len(shares):
        raise NotEnoughData(
            f"peer {name} has {total} sample{'s' if total != 1 else ''}, but needs one for each of "
            f"{', '.join((PARTS[0], *PARTS[-len(shares) :])) if shares else PARTS[0]}: give it more, or leave it out"
        )
    counts = [max(1, round(share * total)) for share in shares]
    while sum(counts) >= total:
        counts[counts.index(max(counts))] -= 1
    return [total - sum(counts), *counts]


def _evenly(total: int, count: int) -> Array:
    """Which of so many places are chosen, spread evenly: of places in the order of classes, each class gives its share.
    [place] bool"""
    marks = (np.arange(total + 1) * count + count // 2) // total
    chosen: Array = np.diff(marks) > 0
    return chosen

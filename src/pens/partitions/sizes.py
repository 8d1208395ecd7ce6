# SPDX-License-Identifier: Apache-2.0
"""Unequal sizes as whole numbers: exactly as many samples together as asked for, and no peer with too few."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pens.data.samples import Array
from pens.partitions.labels import FINE, apportion

_LARGEST = 1 << 62  # of the numbers that `apportion` computes with


def bounded(weights: Array, total: int, smallest: int, generator: np.random.Generator) -> Array:
    """Sizes in proportion to weights above 0, rounded, which add up to `total`. Peers whose share would be below
    `smallest` have exactly that many, and the others share out the rest.

    Weights 1, 1, 6, 8, 16 samples and at least 2: the first two get 2 each, the others 12 by 6 : 8, so 5 and 7, or 6
    and 6.

    weights [peer]; total: at least smallest × peers  → [peer]
    """
    sizes, free = np.full(len(weights), smallest), np.ones(len(weights), bool)
    while True:
        rest = total - smallest * int((~free).sum())
        low = free & (weights * rest < smallest * weights[free].sum())
        if not low.any() or (low == free).all():  # all only where rounding says so: then each has `smallest`
            break
        free &= ~low
    shares = weights[free] / weights[free].sum()
    fine = min(FINE, _LARGEST // max(1, rest))
    sizes[free] = apportion(np.rint(shares * fine).astype(np.int64), rest, generator)
    return _raised(sizes, smallest)


def _raised(sizes: Array, smallest: int) -> Array:
    """Sizes of which rounding left some one too small: the largest peers give what is missing."""
    lacking = np.maximum(smallest - sizes, 0)
    sizes = sizes + lacking
    for _ in range(int(lacking.sum())):
        sizes[sizes.argmax()] -= 1
    return sizes


def divided(shares: Sequence[int], total: int) -> list[int]:
    """Whole numbers in proportion to shares, at least 1 each, which add up to `total`: each starts with one, and each
    further one goes where most is lacking.

    30 : 2 of 32 are 30 and 2, of 16 15 and 1, and of 6 5 and 1.
    """
    counts, whole = np.ones(len(shares), np.int64), sum(shares)
    for _ in range(total - len(shares)):
        counts[(np.array(shares) * total - counts * whole).argmax()] += 1
    found: list[int] = counts.tolist()
    return found


def split_off(sizes: Array, train: int, val: int) -> Array:
    """How many of each peer's samples are for validation: by the ratio of these two, rounded, and at least one of each.

    Sizes 5, 6, 2 with 400 and 100: 1, 1 and 1.

    sizes [peer]: at least 2  → [peer]
    """
    each = train + val
    found: Array = np.clip((2 * sizes * val + each) // (2 * each), 1, sizes - 1)
    return found

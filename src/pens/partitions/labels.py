# SPDX-License-Identifier: Apache-2.0
"""Label skew: how many samples of each label every peer gets → a federation.

A peer's label law is the shares of its labels. Its training, validation and test data follow the same law: each has
as many samples of a label as the law says, less than one more or fewer. No sample is handed out twice, test samples
included, unless `test = full`, where each peer draws from the whole test set.
"""

from __future__ import annotations

import numpy as np

from pens import rng
from pens.data.samples import Array, Dataset, Samples
from pens.data.scenarios import Federation, PeerData
from pens.errors import DataError, NotEnoughData
from pens.settings.schema import ScenarioSettings

_TRIES = 10  # to round the sizes of test sets such that there are samples enough


def apportion(weights: Array, size: int, generator: np.random.Generator) -> Array:
    """Whole numbers in proportion to whole weights, which add up to `size`, each less than one away from its exact
    share, and equal to it on average. Computed in whole numbers, so that the bounds hold to the last unit.

    Weights 1, 1, 2 and size 2: 0.5, 0.5 and 1 exactly, so 1, 0, 1 or 0, 1, 1.

    weights [..., label]: without a sum of zero  → [..., label]
    """
    totals = weights.sum(-1, keepdims=True)
    ends = (np.cumsum(weights, -1) * size + generator.integers(0, totals)) // totals
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


def federation_of(dataset: Dataset, counts: Array, scenario: ScenarioSettings, seed: int) -> Federation:
    """Peers that hold so many samples of each label, without clusters; each is tested on samples of its own law.

    counts [peer, label]: of training and validation samples together
    """
    generator = np.random.default_rng(rng.key(seed, "labels"))
    train = apportion(counts, scenario.train_per_peer, generator)
    held = deal(dataset.train.y, np.concatenate([train, counts - train]), generator)
    peers = [
        PeerData(dataset.train.take(mine), dataset.train.take(val))
        for mine, val in zip(held[: len(counts)], held[len(counts) :], strict=True)
    ]
    return Federation(tuple(peers), None, _tests(dataset, counts, scenario, generator))


def deal(labels: Array, counts: Array, generator: np.random.Generator) -> list[Array]:
    """Positions of samples for each holder, so many of each label, none twice, in random order.

    labels [sample], counts [holder, label]
    """
    begins = np.cumsum(counts, 0) - counts
    found: list[list[Array]] = [[] for _ in counts]
    for label in np.flatnonzero(counts.any(0)):
        pool = generator.permutation(np.flatnonzero(labels == label))
        for holder in np.flatnonzero(counts[:, label]):
            begin = begins[holder, label]
            found[holder].append(pool[begin : begin + counts[holder, label]])
    return [generator.permutation(np.concatenate(parts)) for parts in found]


def _tests(
    dataset: Dataset, counts: Array, scenario: ScenarioSettings, generator: np.random.Generator
) -> tuple[Samples, ...]:
    """A test set for each peer, all of one size: the largest that there are samples for, or `test_samples`."""
    there, shared = count_labels(dataset.test, counts.shape[1]), scenario.test == "full"
    most = min(_largest_test(counts, there, shared), scenario.test_samples or len(dataset.test))
    wanted = _test_counts(counts, there, most, shared, generator)
    if wanted is None:
        raise NotEnoughData(
            f"{dataset.name} has {len(dataset.test)} test samples, too few for one of its own labels for each of "
            f"{len(counts)} peers: use fewer peers or test = full, and test data of all labels"
        )
    if shared:
        taken = [deal(dataset.test.y, mine[None], generator)[0] for mine in wanted]
    else:
        taken = deal(dataset.test.y, wanted, generator)
    return tuple(dataset.test.take(mine) for mine in taken)


def _test_counts(counts: Array, there: Array, most: int, shared: bool, generator: np.random.Generator) -> Array | None:
    """Test samples of each label for every peer, fewer than `most` where rounding asks for more than there are of some
    label; None where there are too few for one each.  → [peer, label]"""
    for size in (size for size in range(most, 0, -1) for _ in range(_TRIES)):
        wanted = apportion(counts, size, generator)
        if shared or (wanted.sum(0) <= there).all():
            return wanted
    return None


def _largest_test(counts: Array, there: Array, shared: bool) -> int:
    """How many test samples each peer can have, before they are rounded.  counts [peer, label], there [label]"""
    size = int(counts[0].sum())
    wanted = counts.max(0) if shared else counts.sum(0)
    some = wanted > 0
    return int((there[some] * size // wanted[some]).min())

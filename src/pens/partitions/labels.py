# SPDX-License-Identifier: Apache-2.0
"""Label skew: how many samples of each label every peer gets → a federation.

A peer's label law is the shares of its labels. Its training, validation and test data follow the same law: each has
as many samples of a label as the law says, less than one more or fewer. No sample is handed out twice, test samples
included, unless `test = full`, where each peer draws from the whole test set.
Peers may hold unequal numbers of samples.
"""

from __future__ import annotations

import numpy as np

from pens import rng
from pens.data.samples import Array, Dataset, Samples
from pens.data.scenarios import Federation, PeerData
from pens.errors import DataError, NotEnoughData
from pens.settings.schema import ScenarioSettings

_TRIES = 10  # to round the sizes of test sets such that there are samples enough
_FINE = 1 << 40  # shares as whole numbers
_TINY = 1e-9  # more than rounding loses of a whole quotient


def apportion(weights: Array, size: int | Array, generator: np.random.Generator) -> Array:
    """Whole numbers in proportion to weights, which add up to `size`, each less than one away from its exact share, and
    equal to it on average. Computed in whole numbers, so that the bounds hold to the last unit; real weights are
    rounded to a 2⁻⁴⁰th of their sum first.

    Weights 1, 1, 2 and size 2: 0.5, 0.5 and 1 exactly, so 1, 0, 1 or 0, 1, 1.

    weights [..., label], size: one number, or [..., 1]  → [..., label]
    """
    weights = np.asarray(weights)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any(-1).all()):
        raise ValueError("weights are finite numbers of at least 0, some of them above 0 for each peer")
    if weights.dtype.kind == "f":
        weights = np.rint(weights / weights.sum(-1, keepdims=True) * _FINE).astype(np.int64)
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
    """Peers that hold so many samples of each label, without clusters; each is tested on samples with its own shares of
    labels. Of each peer's samples train_per_peer / (train_per_peer + val_per_peer) are for training.

    counts [peer, label]: of training and validation samples together
    """
    counts = _whole(counts, dataset)
    generator = np.random.default_rng(rng.key(seed, "labels"))
    train = apportion(counts, _training_sizes(counts, scenario), generator)
    held = deal(dataset.train.y, np.concatenate([train, counts - train]), generator)
    peers = [
        PeerData(dataset.train.take(mine), dataset.train.take(val))
        for mine, val in zip(held[: len(counts)], held[len(counts) :], strict=True)
    ]
    return Federation(tuple(peers), None, _tests(dataset, counts, scenario, generator))


def _whole(counts: Array, dataset: Dataset) -> Array:
    """The counts as whole numbers, for which there are samples enough; errors name the peer or label."""
    given, there = np.asarray(counts), count_labels(dataset.train, dataset.num_classes)
    if given.ndim != 2 or given.shape[1] != len(there):
        raise ValueError(
            f"counts have shape {list(given.shape)}: give a row for each peer and a column for each of the "
            f"{len(there)} labels of {dataset.name}"
        )
    whole: Array = given.astype(np.int64)
    if (wrong := np.argwhere((whole != given) | (whole < 0))).size:
        peer, label = wrong[0]
        raise ValueError(
            f"counts say {given[peer, label]} samples of label {label} for peer {peer}: give whole numbers of at least "
            "0, for instance by pens.apportion"
        )
    if (few := np.flatnonzero(whole.sum(1) < 2)).size:
        raise NotEnoughData(
            f"peer {few[0]} gets {whole[few[0]].sum()} samples: each peer needs at least two, one for training and one "
            "for validation"
        )
    if (scarce := np.flatnonzero(whole.sum(0) > there)).size:
        label = scarce[0]
        raise NotEnoughData(
            f"the peers together get {whole[:, label].sum()} samples of label {label}, but {dataset.name} has "
            f"{there[label]}: use fewer, or smaller peers"
        )
    return whole


def _training_sizes(counts: Array, scenario: ScenarioSettings) -> Array:
    """How many of its samples each peer trains on: all but one at most, and at least one.

    40 training and 20 validation samples: of 90 a peer trains on 60, of 2 on 1.  counts [peer, label]  → [peer, 1]
    """
    sizes, each = counts.sum(1, keepdims=True), scenario.train_per_peer + scenario.val_per_peer
    rounded = (2 * sizes * scenario.train_per_peer + each) // (2 * each)
    trained: Array = np.clip(rounded, 1, sizes - 1)
    return trained


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
    shares = counts / counts.sum(1, keepdims=True)
    wanted = shares.max(0) if shared else shares.sum(0)
    some = wanted > 0
    return int((there[some] / wanted[some] + _TINY).min())

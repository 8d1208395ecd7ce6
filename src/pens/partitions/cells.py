# SPDX-License-Identifier: Apache-2.0
"""How many samples of each cluster and label every peer gets → a federation.

A cell is a cluster and a label. A peer's law is the shares of its cells; its training, validation and test data follow
the same law: each has as many samples of a cell as the law says, less than one more or fewer. No sample is handed out
twice, test samples included, unless `test = full`, where each test set is drawn from the whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pens import rng
from pens.data.samples import Array, Dataset, Samples, concatenate
from pens.data.scenarios import Federation, PeerData
from pens.errors import NotEnoughData
from pens.partitions.labels import apportion, count_labels, counts_of_tests, deal, largest_test
from pens.settings.schema import ScenarioSettings

Part = Literal["train", "test"]
Change = Callable[[Samples, int, Part], Samples]
"""What becomes of samples of a cluster: (samples, cluster, whether they are of the training or the test data)."""


@dataclass(frozen=True)
class Cells:
    """Who gets how many samples of which cells."""

    counts: Array
    """Training and validation samples together.  [peer, cluster, label]"""
    train: Array
    """How many of them are training samples.  [peer]"""
    tests: Array
    """The shares of each test set, as whole weights.  [test, cluster, label]"""
    tested_on: tuple[int, ...]
    """Each peer's test set."""
    clusters: tuple[int, ...] | None = None
    """Each peer's cluster; None: it is not known."""
    cluster_names: tuple[str, ...] = ()


def federation_of(dataset: Dataset, counts: Array, scenario: ScenarioSettings, seed: int) -> Federation:
    """Peers that hold so many samples of each label, without clusters; each is tested on samples with its own shares of
    labels. Of each peer's samples train_per_peer / (train_per_peer + val_per_peer) are for training.

    counts [peer, label]: of training and validation samples together
    """
    counts = _whole(counts, dataset)
    whole, peers = counts[:, None], len(counts)
    cells = Cells(whole, _training_sizes(counts, scenario), whole, tuple(range(peers)))
    return share_out(dataset, (dataset.train.y, dataset.test.y), cells, scenario, seed)


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

    40 training and 20 validation samples: of 90 a peer trains on 60, of 2 on 1.  counts [peer, label]  → [peer]
    """
    sizes, each = counts.sum(1), scenario.train_per_peer + scenario.val_per_peer
    rounded = (2 * sizes * scenario.train_per_peer + each) // (2 * each)
    trained: Array = np.clip(rounded, 1, sizes - 1)
    return trained


def share_out(
    dataset: Dataset,
    labels: tuple[Array, Array],
    cells: Cells,
    scenario: ScenarioSettings,
    seed: int,
    change: Change | None = None,
) -> Federation:
    """The federation of these cells. `labels`: of training and of test samples, [sample] each. `change`: what becomes
    of a cluster's samples; None: they stay as they are."""
    generator = np.random.default_rng(rng.key(seed, "labels"))
    flat = cells.counts.reshape(len(cells.counts), -1)
    train = apportion(flat, cells.train, generator)
    held = np.concatenate([train, flat - train]).reshape(-1, *cells.counts.shape[1:])
    found = _gathered(dataset.train, labels[0], held, generator, change, "train")
    half = len(cells.counts)
    return Federation(
        tuple(PeerData(mine, val) for mine, val in zip(found[:half], found[half:], strict=True)),
        cells.clusters,
        tuple(_tests(dataset, labels[1], cells, scenario, generator, change)),
        cells.cluster_names,
        cells.tested_on,
    )


def _tests(
    dataset: Dataset,
    labels: Array,
    cells: Cells,
    scenario: ScenarioSettings,
    generator: np.random.Generator,
    change: Change | None,
) -> list[Samples]:
    """Test sets, all of one size: the largest that there are samples for, or `test_samples`."""
    shares = cells.tests
    there, shared = np.bincount(labels, minlength=shares.shape[-1]), scenario.test == "full"
    most = min(largest_test(shares.sum(1), there, shared), scenario.test_samples or len(labels))
    wanted = counts_of_tests(shares, there, most, shared, generator)
    if wanted is None:
        whose = "clusters" if cells.tested_on == cells.clusters else "peers"
        raise NotEnoughData(
            f"{dataset.name} has {len(labels)} test samples, too few for one of its own labels for each of "
            f"{len(shares)} {whose}: use fewer {whose} or test = full, and test data of all labels"
        )
    if not shared:
        return _gathered(dataset.test, labels, wanted, generator, change, "test")
    return [_gathered(dataset.test, labels, mine[None], generator, change, "test")[0] for mine in wanted]


def _gathered(
    samples: Samples, labels: Array, counts: Array, generator: np.random.Generator, change: Change | None, part: Part
) -> list[Samples]:
    """The samples of each holder, so many of each cell. What a cluster's samples become is computed for all its holders
    at once, and who has samples of one cluster only holds a piece of that array, not a copy.

    labels [sample], counts [holder, cluster, label]
    """
    holders, clusters = counts.shape[:2]
    dealt = deal(labels, counts.reshape(holders * clusters, -1), generator)
    pieces: list[list[Samples]] = [[] for _ in range(holders)]
    for cluster in range(clusters):
        mine = [(holder, of) for holder in range(holders) if len(of := dealt[holder * clusters + cluster])]
        if not mine:
            continue
        block = samples.take(np.concatenate([of for _, of in mine]))
        block = change(block, cluster, part) if change else block
        begin = 0
        for holder, of in mine:
            pieces[holder].append(block.take(slice(begin, begin + len(of))))
            begin += len(of)
    return [_mixed(of, generator) for of in pieces]


def _mixed(pieces: Sequence[Samples], generator: np.random.Generator) -> Samples:
    """All pieces in one, in random order; a single one as it is, which is in random order already."""
    if len(pieces) == 1:
        return pieces[0]
    whole = concatenate(list(pieces))
    return whole.take(generator.permutation(len(whole)))

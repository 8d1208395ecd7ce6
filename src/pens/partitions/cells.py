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
from pens.partitions.labels import apportion, counts_of_tests, deal, largest_test
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
    """Peers that hold so many samples of each label, without clusters; each is tested on samples of its own law.

    counts [peer, label]: of training and validation samples together
    """
    whole, peers = counts[:, None], len(counts)
    cells = Cells(whole, np.full(peers, scenario.train_per_peer), whole, tuple(range(peers)))
    return share_out(dataset, (dataset.train.y, dataset.test.y), cells, scenario, seed)


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

# SPDX-License-Identifier: Apache-2.0
"""Label skew by shards: the samples are sorted by label and cut into shards, and each peer gets a few of them.

McMahan et al. 2017, section 3: 200 shards of 300 samples of MNIST, two for each of 100 clients, so that most have two
labels. Samples of one label are in random order, so a shard is known by how many samples of each label it has.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pens import rng
from pens.data.samples import Array, Dataset
from pens.data.scenarios import Federation
from pens.errors import SettingsError
from pens.partitions.axes import LabelLaw
from pens.partitions.cells import federation_of
from pens.partitions.labels import apportion, count_labels
from pens.partitions.partition import Partition
from pens.settings.section import Count, Section
from pens.settings.tree import Settings


class ShardsSettings(Section):
    """The partition shards: label skew. The samples are sorted by label and cut, and each peer gets a few pieces."""

    title: ClassVar[str] = "shards"
    shards_per_peer: Count = 2
    """How many shards each peer gets: about as many labels as it has at most. Published: 2."""


class Shards(Partition):
    """Peers without clusters, each with a few shards of the samples sorted by label."""

    name = "shards"
    about = "label skew: samples sorted by label and cut into shards, a few for each peer; no clusters"
    section = ShardsSettings
    keys = ("test",)

    needs_classes = True

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:
        """Refuse peers whose samples cannot be cut into shards of equal size, and too few samples."""
        scenario, shards = settings.scenario, settings.section(ShardsSettings).shards_per_peer
        if over := (scenario.train_per_peer + scenario.val_per_peer) % shards:
            more = scenario.train_per_peer + shards - over
            raise SettingsError(
                f"shards_per_peer = {shards}, but {scenario.train_per_peer} training + {scenario.val_per_peer} "
                f"validation samples cannot be cut into {shards} equal shards: use train_per_peer = {more}"
            )
        super().check(settings, dataset)

    def build(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        scenario, shards = settings.scenario, settings.section(ShardsSettings).shards_per_peer
        there = count_labels(dataset.train, dataset.num_classes)
        size = (scenario.train_per_peer + scenario.val_per_peer) // shards
        generator = np.random.default_rng(rng.key(seed, "shards"))
        return federation_of(dataset, draw_shards(there, scenario.peers, shards, size, generator), scenario, seed)

    def describe(self, settings: Settings) -> str:
        return _words(settings)


class ShardsLaw(LabelLaw):
    """The same as a label law of the partition product: a large peer's shards are larger."""

    name = "shards"
    about = "samples sorted by label and cut into shards, a few for each peer"
    section = ShardsSettings

    def counts(
        self, there: Array, sizes: Array, clusters: Array, settings: Settings, generator: np.random.Generator
    ) -> Array:
        return cut_shards(there, sizes, settings.section(ShardsSettings).shards_per_peer, generator)

    def describe(self, settings: Settings) -> str:
        return _words(settings)


def _words(settings: Settings) -> str:
    shards = settings.section(ShardsSettings).shards_per_peer
    return f"{shards} label shard{'s' if shards > 1 else ''} per peer"


def draw_shards(there: Array, peers: int, shards: int, size: int, generator: np.random.Generator) -> Array:
    """How many samples of each label every peer gets: so many shards of `size` samples, drawn without replacement from
    all whole shards that the sorted samples make.

    Four samples of each of three labels and shards of three: 000, 011, 112, 222.

    there [label]: samples of each label  → [peer, label]
    """
    drawn = generator.permutation(int(there.sum()) // size)[: peers * shards].reshape(peers, shards)
    return _on_the_line(there, drawn * size, (drawn + 1) * size)


def cut_shards(there: Array, sizes: Array, shards: int, generator: np.random.Generator) -> Array:
    """Likewise for peers of any sizes: each peer's samples are cut into so many shards, equal but for rounding. All
    shards lie on the sorted samples in random order, and samples that nobody gets lie between them, evenly.

    there [label], sizes [peer]  → [peer, label]
    """
    lengths = apportion(np.ones((len(sizes), shards), np.int64), sizes, generator).ravel()
    order = generator.permutation(len(lengths))
    gaps = apportion(np.ones(len(order) + 1, np.int64), int(there.sum() - lengths.sum()), generator)
    ends = np.zeros(len(lengths), np.int64)
    ends[order] = np.cumsum(lengths[order] + gaps[:-1])
    return _on_the_line(there, (ends - lengths).reshape(-1, shards), ends.reshape(-1, shards))


def _on_the_line(there: Array, begin: Array, end: Array) -> Array:
    """How many samples of each label lie within each peer's shards of the sorted samples.

    there [label], begin and end [peer, shard]  → [peer, label]
    """
    ends = np.cumsum(there)
    overlap = np.minimum(end[..., None], ends) - np.maximum(begin[..., None], ends - there)  # [peer, shard, label]
    counts: Array = np.maximum(overlap, 0).sum(1)
    return counts

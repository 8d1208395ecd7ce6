# SPDX-License-Identifier: Apache-2.0
"""A partition says who holds which data: a data set and settings → each peer's samples, and what each is tested on.

Write your own as a subclass of `Partition` in a file, and name it in the settings: `partition = "mine.py:Mine"`. It is
found, checked, stored, resumed and reported as those of this package are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from pens.data.samples import Dataset
from pens.data.scenarios import Federation
from pens.errors import DataError, NotEnoughData
from pens.parts import PARTITIONS
from pens.settings.schema import ScenarioSettings
from pens.settings.section import Section
from pens.settings.tree import Settings


class Partition(ABC):
    """How the samples of a data set are shared out among peers."""

    name: ClassVar[str]
    """What `scenario.partition` calls it: small letters, digits, + and -."""
    about: ClassVar[str]
    """What it does, in one sentence."""
    section: ClassVar[type[Section] | None] = None
    """Its own section of the settings; `settings.section(…)` reads it."""
    keys: ClassVar[tuple[str, ...]] = ()
    """Settings of [scenario] that it reads beside those of all partitions: peers, train_per_peer, val_per_peer,
    test_samples."""

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:
        """Refuse settings that cannot work, and, where it is given, a data set that is too small for them. Here: one
        with fewer samples than all peers together are to hold."""
        if dataset:
            check_enough(dataset, settings.scenario)

    @abstractmethod
    def build(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        """Share the data out, after `check` has passed. A seed always gives the same federation: generators come from
        `numpy.random.default_rng(pens.rng.key(seed, "…"))`."""

    def describe(self, settings: Settings) -> str:
        """What the scenario is, in a few words for tables and reports."""
        return self.name

    def cluster_sizes(self, settings: Settings) -> Mapping[str, int] | None:
        """How many peers each cluster has, by the clusters' names; None where clusters are not known."""
        return None

    def smallest_cluster(self, settings: Settings) -> int | None:
        """How many peers the smallest cluster has; None where clusters are not known."""
        sizes = self.cluster_sizes(settings)
        return None if sizes is None else min(sizes.values())


def partition_of(settings: Settings) -> Partition:
    """The partition that these settings name."""
    found: Partition = PARTITIONS.find(settings.scenario.partition)
    return found


def build_federation(dataset: Dataset, settings: Settings, seed: int) -> Federation:
    """Who holds what by the partition of these settings, checked."""
    partition = partition_of(settings)
    partition.check(settings, dataset)
    federation = partition.build(dataset, settings, seed)
    if not isinstance(federation, Federation):
        raise DataError(f"partition {partition.name} built a {type(federation).__name__}: return a pens.Federation")
    if len(federation.peers) != settings.scenario.peers:
        raise DataError(
            f"partition {partition.name} built {len(federation.peers)} peers, but peers = {settings.scenario.peers}: "
            "set peers to the number that it builds"
        )
    if federation.clusters is None and partition.cluster_sizes(settings) is not None:
        raise DataError(
            f"partition {partition.name} has clusters by its `cluster_sizes`, but it built a federation without: "
            "give the federation each peer's cluster, or let `cluster_sizes` return None"
        )
    return federation


def data_words(settings: Settings) -> str:
    """The data set, and the partition where no clusters tell how it is shared out: digits, label shares from
    Dirichlet(0.3)."""
    partition = partition_of(settings)
    known = partition.cluster_sizes(settings) is not None
    return settings.scenario.dataset if known else f"{settings.scenario.dataset}, {partition.describe(settings)}"


def check_enough(dataset: Dataset, scenario: ScenarioSettings) -> None:
    """Refuse a scenario that needs more training and validation samples than there are."""
    each, there = scenario.train_per_peer + scenario.val_per_peer, len(dataset.train)
    if scenario.peers * each <= there:
        return
    train, peers = there // scenario.peers - scenario.val_per_peer, there // each
    fits = [f"train_per_peer = {train}"] if train > 0 else []
    fits += [f"peers = {peers}"] if peers >= 2 else []
    remedy = f"at most {' or '.join(fits)} would fit" if fits else "it is too small for this scenario"
    raise NotEnoughData(
        f"{scenario.peers} peers × ({scenario.train_per_peer} training + {scenario.val_per_peer} validation samples) "
        f"= {scenario.peers * each:,} samples, but {dataset.name} has {there:,}: {remedy}"
    )

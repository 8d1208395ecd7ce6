# SPDX-License-Identifier: Apache-2.0
"""A partition says who holds which data: a data set and settings → each peer's samples, and what each is tested on.

Write your own as a subclass of `Partition` in a file, and name it in the settings: `partition = "mine.py:Mine"`. It is
found, checked, stored, resumed and reported as those of this package are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pens.data.preparation import AS_GIVEN
from pens.data.samples import Dataset
from pens.data.scenarios import Federation, check_own_data
from pens.errors import DataError, NotEnoughData, SettingsError
from pens.hooks import calling, is_ours, place_of, refuse_result
from pens.parts import HUB, PARTITIONS, is_place
from pens.settings.named_parts import parts_in_use
from pens.settings.schema import ScenarioSettings, SettingsTree
from pens.settings.section import Section
from pens.settings.tree import Settings
from pens.tasks.task import task_of


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

    needs_classes: ClassVar[bool] = False
    """Whether it shares samples out by their classes, so that each sample has to be of one class."""

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:
        """Refuse settings that cannot work, and, where it is given, a data set that is too small for them. Here: one
        with fewer samples than all peers together are to hold; and tasks without classes, where it needs them."""
        task = task_of(settings)
        if self.needs_classes and not task.has_one_class:
            raise SettingsError(
                f"partition = {self.name!r} shares samples out by their class, but with task = {task.name!r} a sample "
                "has none: use another partition, rotation for instance, or give each peer its own data in a "
                "pens.Federation. A task of your own whose samples are each of one class is derived from "
                "pens.ClassTask"
            )
        if dataset:
            check_enough(dataset, settings.scenario)

    @abstractmethod
    def build(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        """Share the data out, after `check` has passed. A seed always gives the same federation: generators come from
        `numpy.random.default_rng(pens.rng.key(seed, "…"))`."""

    def indices(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        """Who holds which samples of a data set whose inputs are the samples' numbers, [sample, 1, 1, 1]. Override it
        where `build` computes other inputs or labels than it was given."""
        return self.build(dataset, settings, seed)

    def changes(self, settings: Settings) -> str:
        """What `build` does to samples, which their indices do not say, in a few words; empty: nothing."""
        return ""

    def describe(self, settings: Settings) -> str:
        """What the scenario is, in a few words for tables and reports."""
        return self.name

    def beside_clusters(self, settings: Settings) -> str:
        """What tables say of the scenario beside the clusters' names: nothing where these say it all."""
        return described(self, settings) if sizes_of(self, settings) is None else ""

    def cluster_sizes(self, settings: Settings) -> Mapping[str, int] | None:
        """How many peers each cluster has, by the clusters' names; None where clusters are not known. Which of both may
        depend on the settings."""
        return None

    def smallest_cluster(self, settings: Settings) -> int | None:
        """How many peers the smallest cluster has; None where clusters are not known."""
        sizes = sizes_of(self, settings)
        return None if sizes is None else min(sizes.values())


def sizes_of(partition: Partition, settings: Settings) -> Mapping[str, int] | None:
    """How many peers each cluster has by a partition, checked; None where clusters are not known."""
    with calling(f"partition {partition.name}", partition, "cluster_sizes"):
        sizes = partition.cluster_sizes(settings)
    if sizes is not None and (not isinstance(sizes, Mapping) or not sizes):
        remedy = "return a dict of how many peers each cluster has, or None where clusters are not known"
        refuse_result(f"partition {partition.name}", "cluster_sizes", sizes, remedy)
    return sizes


def partition_of(settings: SettingsTree) -> Partition:
    """The partition that these settings name."""
    found: Partition = PARTITIONS.find(settings.scenario.partition)
    return found


def build_federation(dataset: Dataset, settings: Settings, seed: int, indices: bool = False) -> Federation:
    """Who holds what by the partition of these settings, checked. `indices`: of a data set of samples' numbers."""
    partition = partition_of(settings)
    whose = f"partition {partition.name}"
    if not indices:
        with calling(whose, partition, "check"):
            partition.check(settings, dataset)
    federation = _built(whose, partition, dataset, settings, seed, indices)
    if not isinstance(federation, Federation):
        raise DataError(f"{whose} built a {type(federation).__name__}: return a pens.Federation")
    if len(federation.peers) != settings.scenario.peers:
        raise DataError(
            f"{whose} built {len(federation.peers)} peers, but peers = {settings.scenario.peers}: "
            "set peers to the number that it builds"
        )
    _check_clusters(partition, settings, federation)
    if not _is_ours(settings):
        _check_values(whose, dataset, federation)
        described(partition, settings)
    if dataset.preparation == AS_GIVEN and not dataset.class_names:
        return federation
    names = dataset.class_names or federation.class_names
    return replace(federation, preparation=dataset.preparation, class_names=names)


def _built(
    whose: str, partition: Partition, dataset: Dataset, settings: Settings, seed: int, indices: bool
) -> Federation:
    """What the partition builds. Where it is not ours, errors name it and the line in it: data that are refused do not
    say whose they are."""
    make = partition.indices if indices else partition.build
    try:
        with calling(whose, partition, "build"):
            return make(dataset, settings, seed)
    except DataError as error:
        if is_ours(type(partition)):
            raise
        raise type(error)(f"{whose}: {error}{place_of(error)}") from error


def _check_clusters(partition: Partition, settings: Settings, federation: Federation) -> None:
    """Refuse clusters that are other ones than the partition said before."""
    said = sizes_of(partition, settings)
    if said is None:
        return
    if federation.clusters is None:
        raise DataError(
            f"partition {partition.name} has clusters by its `cluster_sizes`, but it built a federation without: "
            "give the federation each peer's cluster, or let `cluster_sizes` return None"
        )
    sizes = Counter(federation.cluster_names[cluster] for cluster in federation.clusters)
    if {name: size for name, size in said.items() if size} != sizes:
        raise DataError(
            f"partition {partition.name} has the clusters {_listed(said)} by its `cluster_sizes`, but it built "
            f"{_listed(sizes)}: let both say the same names and numbers of peers"
        )


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({size})" for name, size in sizes.items())


def _check_values(whose: str, dataset: Dataset, federation: Federation) -> None:
    """Refuse inputs that are not finite numbers, and classes that the data set does not have."""
    try:
        check_own_data(federation)
    except DataError as error:
        raise DataError(f"{whose}: {error}") from None
    if federation.num_classes > dataset.num_classes:
        raise DataError(
            f"{whose} built samples with label {federation.num_classes - 1}, but the labels of {dataset.name} are 0 to "
            f"{dataset.num_classes - 1}: keep to its classes"
        )


def check_repeats(dataset: Dataset, settings: Settings, seed: int, federation: Federation) -> None:
    """Refuse a partition of others that builds another federation when it is asked again: a run that is stopped would
    go on with other data."""
    partition = partition_of(settings)
    if _is_ours(settings):
        return
    if build_federation(dataset, settings, seed).fingerprint != federation.fingerprint:
        raise DataError(
            f"partition {partition.name} built two different federations for seed {seed}: draw all random numbers from "
            'numpy.random.default_rng(pens.rng.key(seed, "…")), and take nothing from a set or a clock'
        )


def _is_ours(settings: Settings) -> bool:
    """Whether all parts that decide who holds what are of this package."""
    return all(is_ours(type(part)) for part in parts_in_use(settings))


def described(partition: Partition, settings: Settings) -> str:
    """What a partition says of the scenario, in a few words."""
    with calling(f"partition {partition.name}", partition, "describe"):
        words = partition.describe(settings)
    if not isinstance(words, str) or not words.strip():
        refuse_result(f"partition {partition.name}", "describe", words, "return a few words, as a text")
    return words


def data_words(settings: Settings) -> str:
    """The data set, and the partition where no clusters tell how it is shared out: digits, label shares from
    Dirichlet(0.3)."""
    source = settings.data.source
    if is_place(source):
        return Path(source.rpartition(":")[0] or source).name if not source.startswith(HUB) else source
    if settings.data.partition_file is not None:
        return f"{source}, {Path(settings.data.partition_file).name}"
    try:
        partition = partition_of(settings)
    except SettingsError:  # of a record, and not installed here
        return f"{source}, {settings.scenario.partition}"
    words = partition.beside_clusters(settings)
    return f"{source}, {words}" if words else source


def check_enough(dataset: Dataset, scenario: ScenarioSettings, rotations: int | None = None) -> None:
    """Refuse a scenario that needs more training and validation samples than there are. `rotations`: into how many
    equal parts the data are divided, with a cluster each; None: they are not."""
    each, there, clusters = scenario.train_per_peer + scenario.val_per_peer, len(dataset.train), rotations or 1
    part, peers_of_one = there // clusters, scenario.peers // clusters
    if peers_of_one * each <= part:
        return
    train, peers = part // peers_of_one - scenario.val_per_peer, part // each * clusters
    fits = [f"train_per_peer = {train}"] if train > 0 else []
    fits += [f"peers = {peers}"] if peers >= 2 else []
    parts = "" if rotations is None else f", {part:,} for each of {rotations} rotations"
    remedy = f"at most {' or '.join(fits)} would fit" if fits else "it is too small for this scenario"
    raise NotEnoughData(
        f"{scenario.peers} peers × ({scenario.train_per_peer} training + {scenario.val_per_peer} validation samples) "
        f"= {scenario.peers * each:,} samples, but {dataset.name} has {there:,}{parts}: {remedy}"
    )

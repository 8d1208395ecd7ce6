# SPDX-License-Identifier: Apache-2.0
"""Clusters of unequal size, each with a rotation of its own: minorities, which averages forget.

Published on CIFAR-10 (FACADE, SaTML 2025): 0 and 180 degrees with 16 : 16, 24 : 8 and 30 : 2 peers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from pens import rng
from pens.data.samples import Dataset
from pens.data.scenarios import Federation, PeerData
from pens.errors import SettingsError
from pens.partitions.partition import Partition
from pens.partitions.rotation import (
    ROTATION_KEYS,
    check_square,
    check_tests,
    hand_out,
    rotate,
    rotated_tests,
    rotation_names,
    rotation_words,
)
from pens.settings.section import Count, Section
from pens.settings.tree import Settings


class GroupsSettings(Section):
    """The partition groups: clusters of unequal size. The setting `rotations` says how each one's images are turned."""

    title: ClassVar[str] = "groups"
    sizes: Annotated[tuple[Count, ...], Field(min_length=1)] = (16, 4)
    """How many peers each cluster has, one number for each of the rotations. Published: [16, 16], [24, 8], [30, 2]."""


class Groups(Partition):
    """Clusters of given sizes, each with a rotation."""

    name = "groups"
    about = "clusters of unequal size, each with a rotation of the images"
    section = GroupsSettings
    keys = ROTATION_KEYS

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:
        """Refuse sizes that do not fit the rotations and the number of peers, and too few or no images."""
        scenario, sizes = settings.scenario, settings.section(GroupsSettings).sizes
        if len(sizes) != len(scenario.rotations):
            raise SettingsError(
                f"sizes = {list(sizes)} are {len(sizes)} clusters, but rotations = {list(scenario.rotations)} are "
                f"{len(scenario.rotations)}: give each rotation a size"
            )
        if sum(sizes) != scenario.peers:
            raise SettingsError(
                f"sizes = {list(sizes)} are {sum(sizes)} peers together, but peers = {scenario.peers}: "
                f"set peers = {sum(sizes)} or other sizes"
            )
        super().check(settings, dataset)
        if dataset:
            check_tests(dataset, scenario)
            check_square(dataset, scenario)

    def build(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        """Training data in random order, handed out peer by peer and rotated; an equal part of the test data each."""
        scenario, sizes = settings.scenario, settings.section(GroupsSettings).sizes
        order = np.random.default_rng(rng.key(seed, "split train")).permutation(len(dataset.train))
        cuts = np.cumsum([0, *sizes]) * (scenario.train_per_peer + scenario.val_per_peer)
        peers: list[PeerData] = []
        for number, (size, angle) in enumerate(zip(sizes, scenario.rotations, strict=True)):
            part = dataset.train.take(order[cuts[number] : cuts[number + 1]])
            peers += hand_out(rotate(part, angle, scenario.half_turn, scenario.interpolation), size, scenario)
        clusters = tuple(cluster for cluster, size in enumerate(sizes) for _ in range(size))
        return Federation(tuple(peers), clusters, rotated_tests(dataset, scenario, seed), rotation_names(scenario))

    def changes(self, settings: Settings) -> str:
        return rotation_words(settings.scenario)

    def describe(self, settings: Settings) -> str:
        return f"clusters {', '.join(f'{name} ({size})' for name, size in self.cluster_sizes(settings).items())}"

    def cluster_sizes(self, settings: Settings) -> Mapping[str, int]:
        return dict(zip(rotation_names(settings.scenario), settings.section(GroupsSettings).sizes, strict=False))

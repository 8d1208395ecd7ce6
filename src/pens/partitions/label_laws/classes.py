# SPDX-License-Identifier: Apache-2.0
"""Label groups: each cluster of peers has some of the classes only.

Published on CIFAR-10 (DAC, Listo Zec et al. 2022): 40 peers with the four classes of vehicles, 0, 1, 8 and 9, and 60
with the six of animals.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, field_validator

from pens.data.samples import Array, Dataset
from pens.errors import DataError, NotEnoughData
from pens.partitions.axes import LabelLaw
from pens.partitions.labels import apportion, draw_from
from pens.settings.section import Section, Whole
from pens.settings.tree import Settings

Group = Annotated[tuple[Whole, ...], Field(min_length=1)]


class ClassesSettings(Section):
    """The label law classes: clusters of peers, each with some of the classes."""

    title: ClassVar[str] = "classes"
    class_groups: Annotated[tuple[Group, ...], Field(min_length=1)] = ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    """The classes of each cluster; a class may be in several. `cluster_shares` says how many peers each cluster has.
    Published on CIFAR-10: [[0, 1, 8, 9], [2, 3, 4, 5, 6, 7]] with 40 and 60 peers."""

    @field_validator("class_groups")
    @classmethod
    def _once(cls, groups: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        if twice := [group for group in groups if len(set(group)) < len(group)]:
            raise ValueError(f"{list(twice[0])} names a class twice: list each once")
        if len(set(map(frozenset, groups))) < len(groups):
            raise ValueError("two clusters have the same classes: make them one, with the peers of both")
        return groups


class Classes(LabelLaw):
    """Each cluster draws at random from the samples of its classes."""

    name = "classes"
    about = "label groups: each cluster of peers has some of the classes"
    section = ClassesSettings
    by_cluster = True

    def clusters(self, settings: Settings) -> tuple[str, ...]:
        groups = settings.section(ClassesSettings).class_groups
        return tuple(f"{'class' if len(group) == 1 else 'classes'} {'+'.join(map(str, group))}" for group in groups)

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:
        if dataset is None:
            return
        present = np.bincount(dataset.train.y, minlength=dataset.num_classes) > 0
        named = [label for group in settings.section(ClassesSettings).class_groups for label in group]
        if missing := [label for label in named if label >= len(present) or not present[label]]:
            raise DataError(
                f"class_groups names class {missing[0]}, of which {dataset.name} has no training sample: its classes "
                f"are {', '.join(map(str, np.flatnonzero(present)))}"
            )

    def counts(
        self, there: Array, sizes: Array, clusters: Array, settings: Settings, generator: np.random.Generator
    ) -> Array:
        groups = settings.section(ClassesSettings).class_groups
        asked = np.bincount(clusters, weights=sizes, minlength=len(groups)).astype(np.int64)
        counts = np.zeros((len(sizes), len(there)), np.int64)
        for number, supply in enumerate(supplies(there, asked, groups, generator)):
            if supply.sum() < asked[number]:
                raise NotEnoughData(
                    f"cluster {self.clusters(settings)[number]} asks for {asked[number]:,} samples, but its classes "
                    f"have {supply.sum():,} for it: give it fewer peers, or its peers fewer samples"
                )
            mine = clusters == number
            counts[mine] = draw_from(supply, sizes[mine], generator)
        return counts

    def shares(self, there: Array, cluster: int, settings: Settings) -> Array:
        chosen = np.zeros_like(there)
        group = list(settings.section(ClassesSettings).class_groups[cluster])
        chosen[group] = there[group]
        return chosen

    def describe(self, settings: Settings) -> str:
        return " and ".join(self.clusters(settings))


def supplies(there: Array, asked: Array, groups: tuple[tuple[int, ...], ...], generator: np.random.Generator) -> Array:
    """The samples of each label that each cluster may draw from. Clusters that share a class get parts of it in
    proportion to the samples that they ask for.

    Six samples of each of three labels; clusters of labels 0, 1 and 1, 2 that ask for 4 and 8: 6, 2, 0 and 0, 4, 6.

    there [label], asked [cluster]  → [cluster, label]
    """
    wanted = np.zeros((len(there), len(groups)), np.int64)
    for number, group in enumerate(groups):
        wanted[list(group), number] = max(1, asked[number])
    found = np.zeros_like(wanted)
    used = wanted.any(1)
    found[used] = apportion(wanted[used], there[used], generator)
    return found.T

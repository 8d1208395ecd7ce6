# SPDX-License-Identifier: Apache-2.0
"""The three axes that the partition `product` combines, each a part of its own (docs/decisions/0043).

    LabelLaw   which labels a peer has
    SizeLaw    how many samples it has
    Shift      how the samples of its cluster differ from those of others

Write your own as a subclass in a file, and name it in the settings: `label_law = "mine.py:Mine"`. None knows of the
others, so that any label law goes with any size law and any shifts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pens import rng
from pens.data.samples import Array, Dataset, Samples
from pens.errors import SettingsError
from pens.settings.section import Section
from pens.settings.tree import Settings


class Axis(ABC):
    """What all three axes have in common."""

    name: ClassVar[str]
    """What the settings call it: small letters, digits, + and -."""
    about: ClassVar[str]
    """What it does, in a few words."""
    section: ClassVar[type[Section] | None] = None
    """Its own section of the settings; `settings.section(…)` reads it."""
    keys: ClassVar[tuple[str, ...]] = ()
    """Settings of [scenario] that it reads."""
    needs_classes: ClassVar[bool] = False
    """Whether each sample has to be of one class."""

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:  # noqa: B027  nothing to refuse
        """Refuse settings that cannot work, and, where it is given, a data set that does not fit them."""

    def describe(self, settings: Settings) -> str:
        """What it does to these peers, in a few words for tables and reports."""
        return self.name


class LabelLaw(Axis):
    """How many samples of each label every peer holds.

    Most laws give each peer label shares of its own: a peer is then tested on samples by its own shares. A law that
    says `by_cluster` gives the same shares to all peers of a cluster, which then share a test set.
    """

    needs_classes = True
    by_cluster: ClassVar[bool] = False
    """Whether all peers of a cluster have the same label law."""

    def clusters(self, settings: Settings) -> tuple[str, ...]:
        """The names of the clusters that the law itself makes; empty: it makes none. Needs `by_cluster`."""
        return ()

    @abstractmethod
    def counts(
        self, there: Array, sizes: Array, clusters: Array, settings: Settings, generator: np.random.Generator
    ) -> Array:
        """How many samples of each label every peer holds.

        there    [label]: the samples that there are; without `needs_classes` all count as of one label
        sizes    [peer]: the samples that each peer holds, never more than there are together; some may be 0
        clusters [peer]: which of the law's own clusters each peer belongs to; 0 where it makes none
        → [peer, label]: sums over labels are `sizes`; sums over peers are at most `there`
        """

    def shares(self, there: Array, cluster: int, settings: Settings) -> Array:
        """Of a law `by_cluster`: the label shares of a cluster, as whole weights.  there [label] → [label]"""
        return there


class SizeLaw(Axis):
    """How unequal the peers' numbers of samples are."""

    @abstractmethod
    def weights(self, peers: int, settings: Settings, generator: np.random.Generator) -> Array:
        """Weights above 0, to which the numbers of samples are proportional.  → [peer]"""


@dataclass(frozen=True)
class View:
    """What a shift may know beside the samples that it changes."""

    settings: Settings
    dataset: Dataset
    """The samples as they were."""
    seed: int
    cluster: int
    """Which of the shift's own clusters the samples belong to."""
    generator: np.random.Generator
    """For numbers that differ from sample to sample."""

    @property
    def num_classes(self) -> int:
        return self.dataset.num_classes

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest training input, before any change."""
        return self.dataset.bounds

    def shared(self, name: str) -> np.random.Generator:
        """A generator that is the same for all samples and clusters of this seed."""
        return np.random.default_rng(rng.key(self.seed, name))


class Shift(Axis):
    """How samples of different clusters differ: a transformation of features or labels for each cluster."""

    @abstractmethod
    def clusters(self, settings: Settings) -> tuple[str, ...]:
        """The names of its clusters, each with a transformation of its own."""

    @abstractmethod
    def apply(self, samples: Samples, view: View) -> Samples:
        """Samples of the cluster `view.cluster`, changed: as many, in the same order, of the same shape. Training,
        validation and test samples are changed alike."""


def check_once(key: str, values: tuple[float | str, ...]) -> None:
    """Refuse a list of clusters' values that names one twice: two clusters would be the same one."""
    if len(set(values)) < len(values):
        raise SettingsError(f"{key} = {list(values)} names one twice, so that two clusters are alike: list each once")


def as_before(changed: Array, before: Array) -> Array:
    """Numbers of the type that they had before: whole ones are rounded, and kept within the type's bounds."""
    if before.dtype.kind == "f":
        return changed.astype(before.dtype, copy=False)
    bounds = np.iinfo(before.dtype)
    return np.clip(np.rint(changed), bounds.min, bounds.max).astype(before.dtype)

# SPDX-License-Identifier: Apache-2.0
"""Label skew by Dirichlet draws: each peer has label shares of its own.

The shares are drawn from Dirichlet(alpha · C · p), where C is the number of labels and p their shares in the data set:
with equally many samples of each label that is Dirichlet(alpha, …, alpha), and a large alpha is IID whatever p is.
Peers have equally many samples (after Hsu et al. 2019, "Measuring the effects of non-identical data distribution").
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from pens import rng
from pens.data.samples import Array, Dataset
from pens.data.scenarios import Federation
from pens.partitions.axes import LabelLaw
from pens.partitions.cells import federation_of
from pens.partitions.labels import FINE, apportion, count_labels, within
from pens.partitions.partition import Partition
from pens.settings.section import Section
from pens.settings.tree import Settings

_DRAWS = 20  # for a peer, of which one is taken


class DirichletSettings(Section):
    """The partition dirichlet: label skew. Each peer has label shares of its own, drawn at random."""

    title: ClassVar[str] = "dirichlet"
    alpha: Annotated[float, Field(ge=1e-3, le=1e6)] = 0.3
    """How alike the peers' label shares are: at 0.01 nearly every peer has one label, at 100 all peers have the shares
    of the data set. Published: 0.1, 0.3 and 0.5 on CIFAR-10 with 100 peers."""


class Dirichlet(Partition):
    """Peers without clusters, each with label shares drawn from a Dirichlet distribution."""

    name = "dirichlet"
    about = "label skew: each peer's label shares are drawn from Dirichlet(alpha); no clusters"
    section = DirichletSettings
    keys = ("test",)
    needs_classes = True

    def build(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        scenario, alpha = settings.scenario, settings.section(DirichletSettings).alpha
        there = count_labels(dataset.train, dataset.num_classes)
        generator = np.random.default_rng(rng.key(seed, "dirichlet"))
        counts = draw_counts(there, scenario.peers, scenario.train_per_peer + scenario.val_per_peer, alpha, generator)
        return federation_of(dataset, counts, scenario, seed)

    def describe(self, settings: Settings) -> str:
        return f"label shares from Dirichlet({settings.section(DirichletSettings).alpha:g})"


class DirichletLaw(LabelLaw):
    """The same as a label law of the partition product, for peers of any sizes."""

    name = "dirichlet"
    about = "each peer's label shares are drawn from Dirichlet(alpha)"
    section = DirichletSettings

    def counts(
        self, there: Array, sizes: Array, clusters: Array, settings: Settings, generator: np.random.Generator
    ) -> Array:
        return draw_counts(there, len(sizes), sizes, settings.section(DirichletSettings).alpha, generator)

    def describe(self, settings: Settings) -> str:
        return f"labels from Dirichlet({settings.section(DirichletSettings).alpha:g})"


def draw_counts(there: Array, peers: int, size: int | Array, alpha: float, generator: np.random.Generator) -> Array:
    """How many samples of each label every peer gets, `size` in all: peer by peer, of some draws that for which most
    samples are left; at the end what there is not is taken back.

    there [label]: samples of each label, together at least those that all peers get; size: one for all, or [peer]
    → [peer, label]
    """
    present = there > 0
    concentration = alpha * there[present] * present.sum() / there.sum()
    left, counts = there.copy(), np.zeros((peers, len(there)), np.int64)
    for mine, in_all in zip(counts, np.broadcast_to(size, peers), strict=True):
        shares = generator.dirichlet(concentration, _DRAWS)
        wanted = apportion(np.rint(shares * FINE).astype(np.int64), in_all, generator)
        mine[present] = wanted[lacking(wanted, left[present]).argmin()]
        left -= mine
    return within(counts, there, generator)


def lacking(wanted: Array, left: Array) -> Array:
    """How many samples each draw wants that are not left; `left` is negative where others took too many.

    Draws 3, 1 and 0, 4 with 2 and −1 left: 1 + 1 and 0 + 4.  wanted [draw, label], left [label]  → [draw]
    """
    missing: Array = np.maximum(wanted - np.maximum(left, 0), 0).sum(1)
    return missing

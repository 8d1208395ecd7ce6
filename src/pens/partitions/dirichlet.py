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
from pens.partitions.labels import apportion, count_labels, federation_of
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


def draw_counts(there: Array, peers: int, size: int, alpha: float, generator: np.random.Generator) -> Array:
    """How many samples of each label every peer gets, `size` in all: peer by peer, of some draws that for which most
    samples are left; at the end what there is not is taken back.

    there [label]: samples of each label, together at least peers × size  → [peer, label]
    """
    present = there > 0
    concentration = alpha * there[present] * present.sum() / there.sum()
    left, counts = there.copy(), np.zeros((peers, len(there)), np.int64)
    for mine in counts:
        shares = generator.dirichlet(concentration, _DRAWS)
        wanted = apportion(shares, size, generator)
        mine[present] = wanted[lacking(wanted, left[present]).argmin()]
        left -= mine
    return within(counts, there, generator)


def lacking(wanted: Array, left: Array) -> Array:
    """How many samples each draw wants that are not left; `left` is negative where others took too many.

    Draws 3, 1 and 0, 4 with 2 and −1 left: 1 + 1 and 0 + 4.  wanted [draw, label], left [label]  → [draw]
    """
    missing: Array = np.maximum(wanted - np.maximum(left, 0), 0).sum(1)
    return missing


def within(counts: Array, there: Array, generator: np.random.Generator) -> Array:
    """As near to these counts as the samples allow. Of a label that too many want, each peer gives up the same share
    of what it wanted, and gets other labels for it, in proportion to what is left of them.

    Two peers want 4 of label 0, a third 4 of label 1, and there are 4 and 8: the first two get 2 and 2.

    counts [peer, label], there [label]  → [peer, label], with the same sums over labels
    """
    counts, missing = counts.copy(), np.zeros(len(counts), np.int64)
    for label in np.flatnonzero(counts.sum(0) > there):
        taken = apportion(counts[:, label], int(counts[:, label].sum() - there[label]), generator)
        counts[:, label] -= taken
        missing += taken
    left = there - counts.sum(0)
    for peer in np.flatnonzero(missing):
        more = apportion(left, int(missing[peer]), generator)
        counts[peer] += more
        left -= more
    return counts

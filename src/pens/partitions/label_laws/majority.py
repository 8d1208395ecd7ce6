# SPDX-License-Identifier: Apache-2.0
"""Label skew by a majority class: a share of each peer's samples is of one class, the rest of all classes.

The rest has the classes' shares in the data set, the majority class among them. With ten equally frequent classes and a
share of 0.8, a peer has 0.8 + 0.2 / 10 = 82 % of its class, and 2 % of each other.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from pens.data.samples import Array
from pens.partitions.axes import LabelLaw
from pens.partitions.labels import FINE, apportion, within
from pens.settings.section import Fraction, Section
from pens.settings.tree import Settings


class MajoritySettings(Section):
    """The label law majority: each peer has samples of one class mostly."""

    title: ClassVar[str] = "majority"
    majority_share: Fraction = 0.8
    """The share of each peer's samples that is of its majority class; the rest is drawn from all classes, this one
    among them. 0: no skew."""


class Majority(LabelLaw):
    """Each peer has a majority class; each class is that of as many peers as its samples allow."""

    name = "majority"
    about = "a share of each peer's samples is of one class, the rest of all"
    section = MajoritySettings

    def counts(
        self, there: Array, sizes: Array, clusters: Array, settings: Settings, generator: np.random.Generator
    ) -> Array:
        share = settings.section(MajoritySettings).majority_share
        favourites = choose_classes(there, sizes, generator)
        weights = np.rint((1 - share) * FINE * there / there.sum()).astype(np.int64)[None].repeat(len(sizes), 0)
        weights[np.arange(len(sizes)), favourites] += round(share * FINE)
        return within(apportion(weights, sizes, generator), there, generator)

    def describe(self, settings: Settings) -> str:
        return f"{settings.section(MajoritySettings).majority_share:.0%} of one class"


def choose_classes(there: Array, sizes: Array, generator: np.random.Generator) -> Array:
    """A majority class for each peer, so that a class has as large a part of the peers' samples as of all samples: the
    peers, in random order, lie on a line of their sizes, the classes on one of the same length. A peer's class is the
    one at its middle.

    Two classes of 30 and 10 samples, four peers of equal size: three peers for class 0, one for class 1.

    there [label], sizes [peer]  → [peer]
    """
    order = generator.permutation(len(sizes))
    ends = np.cumsum(sizes[order])
    middles = (2 * ends - sizes[order]) * int(there.sum())  # in units of 1 / (2 · total of sizes · total of samples)
    found = np.zeros(len(sizes), np.int64)
    found[order] = np.searchsorted(2 * np.cumsum(there) * int(ends[-1]), middles, side="left")
    return found

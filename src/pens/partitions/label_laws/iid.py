# SPDX-License-Identifier: Apache-2.0
"""No label skew: each peer draws from all samples at random. Labels are not looked at, so any task will do."""

from __future__ import annotations

import numpy as np

from pens.data.samples import Array
from pens.partitions.axes import LabelLaw
from pens.partitions.labels import draw_from
from pens.settings.tree import Settings


class Iid(LabelLaw):
    """All peers draw from the same distribution."""

    name = "iid"
    about = "no skew: each peer draws at random"
    needs_classes = False
    by_cluster = True

    def counts(
        self, there: Array, sizes: Array, clusters: Array, settings: Settings, generator: np.random.Generator
    ) -> Array:
        return draw_from(there, sizes, generator)

    def describe(self, settings: Settings) -> str:
        return "labels at random"

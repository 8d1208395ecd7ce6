# SPDX-License-Identifier: Apache-2.0
"""All peers have equally many samples."""

from __future__ import annotations

import numpy as np

from pens.data.samples import Array
from pens.partitions.axes import SizeLaw
from pens.settings.tree import Settings


class Equal(SizeLaw):
    """Equally many samples for each peer."""

    name = "equal"
    about = "equally many samples for each peer"

    def weights(self, peers: int, settings: Settings, generator: np.random.Generator) -> Array:
        return np.ones(peers)

    def describe(self, settings: Settings) -> str:
        return "equal sizes"

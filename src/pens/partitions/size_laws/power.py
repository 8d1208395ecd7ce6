# SPDX-License-Identifier: Apache-2.0
"""Unequal sizes by a power law: the peer of rank r has a share in proportion to r to the power of −exponent."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from pens.data.samples import Array
from pens.partitions.axes import SizeLaw
from pens.settings.section import Section
from pens.settings.tree import Settings


class PowerSettings(Section):
    """The size law power: a few peers have most of the samples."""

    title: ClassVar[str] = "power"
    exponent: Annotated[float, Field(ge=0, le=5)] = 1.0
    """With 1 the second largest peer has half of the largest one's samples, the third a third. 0: equal sizes."""


class Power(SizeLaw):
    """Sizes by rank, in random order."""

    name = "power"
    about = "a power law of the ranks: a few peers have most of the samples"
    section = PowerSettings

    def weights(self, peers: int, settings: Settings, generator: np.random.Generator) -> Array:
        ranks = 1.0 + generator.permutation(peers)
        drawn: Array = ranks ** -settings.section(PowerSettings).exponent
        return drawn

    def describe(self, settings: Settings) -> str:
        return f"sizes by a power law ({settings.section(PowerSettings).exponent:g})"

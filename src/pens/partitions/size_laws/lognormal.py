# SPDX-License-Identifier: Apache-2.0
"""Unequal sizes by a log-normal law: many small peers and few large ones."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from pens.data.samples import Array
from pens.partitions.axes import SizeLaw
from pens.settings.section import Section
from pens.settings.tree import Settings


class LognormalSettings(Section):
    """The size law lognormal: the logarithms of the peers' sizes are normally distributed."""

    title: ClassVar[str] = "lognormal"
    spread: Annotated[float, Field(ge=0, le=5)] = 1.0
    """The standard deviation of the logarithms: with 1 a third of the peers has less than 0.37 times, or more than 2.7
    times, as many samples as the median. 0: equal sizes."""


class Lognormal(SizeLaw):
    """Sizes whose logarithms are normally distributed."""

    name = "lognormal"
    about = "log-normal sizes: many small peers, few large ones"
    section = LognormalSettings

    def weights(self, peers: int, settings: Settings, generator: np.random.Generator) -> Array:
        drawn: Array = np.exp(settings.section(LognormalSettings).spread * generator.standard_normal(peers))
        return drawn

    def describe(self, settings: Settings) -> str:
        return f"log-normal sizes ({settings.section(LognormalSettings).spread:g})"

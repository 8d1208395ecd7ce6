# SPDX-License-Identifier: Apache-2.0
"""Feature noise: normally distributed numbers are added to all inputs, with another deviation for each cluster."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from pens.data.samples import Dataset, Samples
from pens.errors import DataError
from pens.partitions.axes import Shift, View, check_once
from pens.settings.section import NotNegative, Section
from pens.settings.tree import Settings


class NoiseSettings(Section):
    """The shift noise: each cluster's inputs are more or less noisy."""

    title: ClassVar[str] = "noise"
    noise_levels: Annotated[tuple[NotNegative, ...], Field(min_length=1)] = (0.0, 0.5)
    """Each cluster's standard deviation, in units of the inputs: built-in images lie between -1 and 1."""


class Noise(Shift):
    """Independent noise on each input, drawn once: a sample looks the same in each epoch."""

    name = "noise"
    about = "each cluster's inputs have noise of another strength"
    section = NoiseSettings

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:
        check_once("noise_levels", settings.section(NoiseSettings).noise_levels)
        if dataset and dataset.train.x.dtype.kind != "f":
            raise DataError(
                f"{dataset.name} has inputs of type {dataset.train.x.dtype}, to which no noise can be added: give real "
                "numbers, for instance bytes divided by 255"
            )

    def clusters(self, settings: Settings) -> tuple[str, ...]:
        return tuple(f"noise {level:g}" for level in settings.section(NoiseSettings).noise_levels)

    def apply(self, samples: Samples, view: View) -> Samples:
        level = view.settings.section(NoiseSettings).noise_levels[view.cluster]
        if not level:
            return samples
        noise = view.generator.standard_normal(samples.x.shape, np.float32)
        return Samples((samples.x + level * noise).astype(samples.x.dtype, copy=False), samples.y)

# SPDX-License-Identifier: Apache-2.0
"""Blur: each cluster's images are out of focus by another amount."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from pens.data.samples import Array, Dataset, Samples
from pens.errors import DataError
from pens.partitions.axes import Shift, View, as_before, check_once
from pens.settings.section import Section
from pens.settings.tree import Settings

_REACH = 3  # standard deviations; beyond them a Gaussian has 0.3 % of its weight


class BlurSettings(Section):
    """The shift blur: each cluster's images are blurred."""

    title: ClassVar[str] = "blur"
    blur_pixels: Annotated[tuple[Annotated[float, Field(ge=0, le=50)], ...], Field(min_length=1)] = (0.0, 1.5)
    """The standard deviation of each cluster's Gaussian blur, in pixels; 0: none."""


class Blur(Shift):
    """A Gaussian blur of images. Beyond its edge an image goes on as at its edge."""

    name = "blur"
    about = "each cluster's images are blurred more or less"
    section = BlurSettings

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:
        check_once("blur_pixels", settings.section(BlurSettings).blur_pixels)
        if dataset and len(dataset.sample_shape) < 2:
            raise DataError(
                f"{dataset.name} has samples of shape {dataset.sample_shape}, which cannot be blurred: use another "
                "shift, such as noise"
            )

    def clusters(self, settings: Settings) -> tuple[str, ...]:
        return tuple(f"blur {pixels:g}" for pixels in settings.section(BlurSettings).blur_pixels)

    def apply(self, samples: Samples, view: View) -> Samples:
        pixels = view.settings.section(BlurSettings).blur_pixels[view.cluster]
        return Samples(blurred(samples.x, pixels), samples.y) if pixels else samples


def blurred(images: Array, pixels: float) -> Array:
    """Images [..., height, width] after a Gaussian blur, of the same type."""
    height, width = images.shape[-2:]
    kind = np.float32 if images.dtype == np.float32 else np.float64
    down, right = weights_of(height, pixels).astype(kind), weights_of(width, pixels).astype(kind)
    return as_before(np.matmul(down, np.matmul(images.astype(kind, copy=False), right.T)), images)


def weights_of(side: int, pixels: float) -> Array:
    """Of how much of each pixel of a line a blurred pixel is made.

    With one pixel on either side, weights w, 1, w and a line of three: row 0 has (1 + w, w, 0) / (1 + 2w), since the
    first pixel stands for the one before it, too.

    → [blurred pixel, pixel]: rows add up to 1
    """
    reach = max(1, math.ceil(_REACH * pixels))
    steps = np.arange(-reach, reach + 1)
    kernel = np.exp(-0.5 * (steps / pixels) ** 2)
    kernel /= kernel.sum()
    weights = np.zeros((side, side))
    for step, weight in zip(steps, kernel, strict=True):
        np.add.at(weights, (np.arange(side), np.clip(np.arange(side) + step, 0, side - 1)), weight)
    return weights

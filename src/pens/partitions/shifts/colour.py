# SPDX-License-Identifier: Apache-2.0
"""Colour: each cluster's images are as they are, grey, negatives, or of another hue."""

from __future__ import annotations

import math
import re
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, field_validator

from pens.data.samples import Array, Dataset, Samples
from pens.errors import DataError
from pens.partitions.axes import Shift, View, as_before, check_once
from pens.settings.section import Section
from pens.settings.tree import Settings

_HUE = re.compile(r"hue(-?\d{1,3})")
_LUMA = (0.299, 0.587, 0.114)  # how bright red, green and blue look (ITU-R BT.601)


class ColourSettings(Section):
    """The shift colour: each cluster's images have other colours."""

    title: ClassVar[str] = "colour"
    colours: Annotated[tuple[str, ...], Field(min_length=1)] = ("plain", "inverted")
    """What becomes of each cluster's colours. plain: nothing; grey: they go, and brightness stays; inverted: a negative
    of the image; hue120: hues are turned by 120 degrees, red to green, green to blue, blue to red; likewise any whole
    number of degrees."""

    @field_validator("colours")
    @classmethod
    def _known(cls, colours: tuple[str, ...]) -> tuple[str, ...]:
        for colour in colours:
            if colour not in ("plain", "grey", "inverted") and not _HUE.fullmatch(colour):
                raise ValueError(
                    f"{colour!r} is not known: use plain, grey, inverted, or hue and degrees, as in hue120"
                )
        return colours


class Colour(Shift):
    """Colours are changed alike in all of a cluster's images [sample, channel, height, width]."""

    name = "colour"
    about = "each cluster's images are plain, grey, inverted, or of another hue"
    section = ColourSettings

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:
        colours = settings.section(ColourSettings).colours
        check_once("colours", colours)
        for colour in colours if dataset else ():
            shape = dataset.sample_shape if dataset else ()
            if colour not in ("plain", "inverted") and (len(shape) != 3 or shape[0] != 3):
                raise DataError(
                    f"colours name {colour!r}, which needs images of three channels, but samples have shape {shape}: "
                    "use plain and inverted alone"
                )

    def clusters(self, settings: Settings) -> tuple[str, ...]:
        return settings.section(ColourSettings).colours

    def apply(self, samples: Samples, view: View) -> Samples:
        colour = view.settings.section(ColourSettings).colours[view.cluster]
        if colour == "plain":
            return samples
        low, high = view.bounds
        if colour == "inverted":
            return Samples(as_before(low + high - samples.x, samples.x), samples.y)
        mixing = np.array([_LUMA] * 3) if colour == "grey" else hue_turn(int(colour.removeprefix("hue")))
        return Samples(as_before(np.clip(mixed(samples.x, mixing), low, high), samples.x), samples.y)


def hue_turn(degrees: int) -> Array:
    """How channels mix where hues are turned: a rotation of the colour space about its grey axis, so that grey stays
    grey. By 120 degrees green becomes what red was, blue what green was, red what blue was.

    → [new channel, channel]
    """
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees)) / math.sqrt(3)
    same, after, before = (1 + 2 * cosine) / 3, (1 - cosine) / 3 - sine, (1 - cosine) / 3 + sine
    return np.array([[same, after, before], [before, same, after], [after, before, same]])


def mixed(images: Array, mixing: Array) -> Array:
    """Each channel a mixture of all.  images [sample, channel, height, width], mixing [new channel, channel]"""
    flat = images.reshape(len(images), images.shape[1], -1)
    kind = np.float32 if images.dtype == np.float32 else np.float64
    new: Array = (mixing.astype(kind) @ flat.astype(kind, copy=False)).reshape(images.shape)
    return new

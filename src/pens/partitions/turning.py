# SPDX-License-Identifier: Apache-2.0
"""Images turned by any angle, counter-clockwise about their centre.

Multiples of 90 degrees only move pixels. Any other angle needs values between pixels, by one of two interpolations;
what lies outside the image becomes 0, which is mid-grey where inputs lie between −1 and 1, as in built-in data sets.
The published code of DAC (and of FACADE, whose angles are multiples of 90) turns images after scaling them so, with
torchvision's defaults: the nearest pixel, and 0 outside.
"""

from __future__ import annotations

import math

import numpy as np

from pens.data.samples import Array
from pens.settings.schema import Interpolation

_AT_ONCE = 1 << 22  # numbers turned together: what fits a processor's cache is fastest


def turned(images: Array, angle: int, interpolation: Interpolation = "bilinear", outside: float = 0.0) -> Array:
    """Images [..., height, width] turned by this angle, of the same shape; 90 degrees need square ones."""
    if angle % 90 == 0:
        return np.ascontiguousarray(np.rot90(images, angle // 90 % 4, axes=(-2, -1)))
    height, width = images.shape[-2:]
    kind = images.dtype if images.dtype.kind == "f" else np.dtype(np.float64)
    sources, weights = weights_of(height, width, angle, interpolation)
    weights = weights.astype(kind)
    flat = images.reshape(-1, height * width)
    found = np.empty_like(flat)
    step = max(1, _AT_ONCE // flat.shape[1])
    for begin in range(0, len(flat), step):
        pixels = flat[begin : begin + step].T.astype(kind, order="C")  # [pixel, image]: a source is a row
        new = np.full_like(pixels, outside) * (1 - weights.sum(0))[:, None]
        for source, weight in zip(sources, weights, strict=True):
            new += pixels[source] * weight[:, None]
        found[begin : begin + step] = (new if images.dtype.kind == "f" else np.rint(new)).T
    return found.reshape(images.shape)


def weights_of(height: int, width: int, angle: int, interpolation: Interpolation) -> tuple[Array, Array]:
    """From which pixels each new pixel is made: their numbers, row by row, and their weights, which are 0 for what lies
    outside. Bilinear: the four pixels around the place that a new pixel comes from, by how near they are.

    → two arrays [source, height × width]
    """
    radians = math.radians(angle % 360)
    cosine, sine = math.cos(radians), math.sin(radians)
    down, right = np.mgrid[:height, :width].reshape(2, -1) - np.array([[(height - 1) / 2], [(width - 1) / 2]])
    row = right * sine + down * cosine + (height - 1) / 2
    column = right * cosine - down * sine + (width - 1) / 2
    if interpolation == "nearest":
        corners = [(np.rint(row), np.rint(column), np.ones_like(row))]
    else:
        top, left = np.floor(row), np.floor(column)
        lower, farther = row - top, column - left
        corners = [
            (top + i, left + j, (lower if i else 1 - lower) * (farther if j else 1 - farther))
            for i in (0, 1)
            for j in (0, 1)
        ]
    sources, weights = [], []
    for r, c, weight in corners:
        inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
        sources.append(np.where(inside, r * width + c, 0).astype(np.int64))
        weights.append(np.where(inside, weight, 0))
    return np.array(sources), np.array(weights)

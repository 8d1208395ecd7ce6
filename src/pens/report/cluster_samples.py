# SPDX-License-Identifier: Apache-2.0
"""What samples of each cluster look like: some images of each, with their labels, as one picture."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.figure import SubFigure

from pens.data.samples import Array, Samples, concatenate
from pens.data.scenarios import Federation

_COLUMNS, _MOST_CLUSTERS, _MOST_PEERS = 10, 16, 50
_INCHES = 0.75  # a tile, with what stands above it


class Tiles(NamedTuple):
    """Images of some clusters."""

    clusters: tuple[str, ...]
    images: tuple[Array, ...]
    """Of each cluster, between 0 and 1.  [image, height, width, channel], one channel or three"""
    labels: tuple[tuple[str, ...], ...]

    @property
    def height(self) -> float:
        """In inches."""
        return 0.3 + _INCHES * len(self.clusters)


def tiles_of(federation: Federation) -> Tiles | None:
    """Test images of each cluster, one of each class as far as there is room; None where samples are no images, or
    clusters are not known."""
    shape = federation.sample_shape
    if federation.clusters is None or len(shape) != 3 or shape[0] not in (1, 3) or min(shape[1:]) < 2:
        return None
    if federation.tests[0].y.ndim != 1:
        return None
    members = sorted(federation.members().items())[:_MOST_CLUSTERS]
    shown = [_one_of_each(_tests_of(federation, peers)) for _, peers in members]
    low, high = max(of.x.min() for of in shown), min(of.x.max() for of in shown)  # noise reaches beyond
    scale = max(float(high - low), 1e-12)
    images = tuple(np.moveaxis(((of.x.astype(np.float64) - low) / scale).clip(0, 1), 1, -1) for of in shown)
    labels = tuple(tuple(_label(federation, y) for y in of.y) for of in shown)
    return Tiles(tuple(federation.cluster_names[cluster] for cluster, _ in members), images, labels)


def _tests_of(federation: Federation, peers: tuple[int, ...]) -> Samples:
    """The test samples of some peers: one peer may lack some classes."""
    places = dict.fromkeys(federation.tested_on[peer] for peer in peers)
    return concatenate([federation.tests[place] for place in list(places)[:_MOST_PEERS]])


def _one_of_each(samples: Samples) -> Samples:
    """The first sample of each class, in the order of the classes; of many classes those that come first."""
    _, first = np.unique(samples.y, return_index=True)
    return samples.take(first[:_COLUMNS])


def _label(federation: Federation, y: float) -> str:
    return federation.class_names[int(y)] if federation.class_names else f"{y:g}"


def draw_tiles(figure: SubFigure, tiles: Tiles) -> None:
    """A row for each cluster: its name, and images with their labels above them."""
    axes = figure.subplots(len(tiles.clusters), _COLUMNS, squeeze=False)
    for row, name, images, labels in zip(axes, tiles.clusters, tiles.images, tiles.labels, strict=True):
        for axis in row:
            axis.set_axis_off()
        for axis, image, label in zip(row, images, labels, strict=False):
            axis.imshow(image.squeeze(-1) if image.shape[-1] == 1 else image, cmap="gray", vmin=0, vmax=1)
            axis.set_title(label, fontsize=7, pad=2)
        row[0].text(-0.15, 0.5, name, transform=row[0].transAxes, ha="right", va="center", fontsize=8)

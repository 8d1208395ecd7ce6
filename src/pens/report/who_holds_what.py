# SPDX-License-Identifier: Apache-2.0
"""Who holds what: the samples of each peer, by part and by class, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure, SubFigure
from rich.markup import escape
from rich.table import Table

from pens.data.samples import Array, Samples
from pens.data.scenarios import UNKNOWN as NO_CLUSTER
from pens.data.scenarios import Federation
from pens.report.cluster_samples import draw_tiles, tiles_of

_MOST_BARS, _MOST_CLASSES, _MOST_ROWS = 60, 12, 40
_MOST_NAMES = 16  # clusters that are named above a map
_CHARACTERS = 80  # that fit above a map
_BLUE = "#0067b0"


class Holder(NamedTuple):
    """What one peer holds."""

    name: str
    cluster: str
    parts: tuple[int, int, int]
    """Training, validation and test samples."""
    classes: Array
    """The peer's own samples of each class, test data left out.  [class]"""


def holders(federation: Federation) -> list[Holder]:
    """Each peer, in order. Peers of a cluster may share its test data."""
    count = federation.num_classes if _has_classes(federation) else 0
    found = []
    for number, peer in enumerate(federation.peers):
        test = federation.tests[federation.tested_on[number]]
        cluster = NO_CLUSTER if federation.clusters is None else federation.clusters[number]
        name = "" if cluster == NO_CLUSTER else federation.cluster_names[cluster]
        classes = _by_class((peer.train, peer.val), count)
        found.append(Holder(federation.name_of(number), name, (len(peer.train), len(peer.val), len(test)), classes))
    return found


def _has_classes(federation: Federation) -> bool:
    y = federation.peers[0].train.y
    return y.ndim == 1 and y.dtype.kind in "iu"


def _by_class(parts: Sequence[Samples], count: int) -> Array:
    if not count:
        return np.zeros(0, np.int64)
    return np.bincount(np.concatenate([part.y for part in parts]), minlength=count)


def class_names(federation: Federation) -> tuple[str, ...]:
    """The classes' names, or their numbers."""
    return federation.class_names or tuple(map(str, range(federation.num_classes)))


def holders_table(federation: Federation, title: str) -> Table:
    """A row for each peer, or for the first ones of many."""
    found = holders(federation)
    names = class_names(federation) if _has_classes(federation) else ()
    shown = names if len(names) <= _MOST_CLASSES else ()
    table = Table(title=title, title_justify="left")
    table.add_column("peer")
    if any(holder.cluster for holder in found):
        table.add_column("cluster")
    for heading in ("training", "validation", "test"):
        table.add_column(heading, justify="right")
    for name in shown or (["classes"] if names else []):
        table.add_column(escape(name), justify="right")
    for holder in found[:_MOST_ROWS]:
        cluster = [escape(holder.cluster)] if any(each.cluster for each in found) else []
        counts = holder.classes.tolist() if shown else [f"{np.count_nonzero(holder.classes)}"] if names else []
        table.add_row(escape(holder.name), *cluster, *map(_number, holder.parts), *map(_number, counts))
    return table


def _number(value: int | str) -> str:
    return value if isinstance(value, str) else f"{value:,}" if value else "·"


def more_words(federation: Federation) -> str:
    """What the table leaves out, and how unequal peers are."""
    sizes = sorted(len(peer.train) for peer in federation.peers)
    left_out = f"… and {len(sizes) - _MOST_ROWS:,} more peers. " if len(sizes) > _MOST_ROWS else ""
    return f"{left_out}Training samples of a peer: {sizes[0]:,} to {sizes[-1]:,}, median {sizes[len(sizes) // 2]:,}."


def draw_holders(federation: Federation, path: Path) -> None:
    """Samples and classes per peer: a bar for each peer, divided by class; of many peers a map of shares, and sizes,
    cluster by cluster. Below it, of images, what samples of each cluster look like."""
    found = holders(federation)
    names = class_names(federation) if _has_classes(federation) else ()
    few = len(found) <= _MOST_BARS and len(names) <= 20
    height = 1.4 + 0.24 * len(found) if few else 5 if names else 3
    tiles = tiles_of(federation)
    figure = Figure(figsize=(9, height + (tiles.height if tiles else 0)), layout="constrained")
    ratios = [height, tiles.height] if tiles else [height]
    places = figure.subfigures(len(ratios), 1, squeeze=False, height_ratios=ratios)[:, 0]
    (_bars if few else _map)(places[0], found, names)
    if tiles:
        draw_tiles(places[1], tiles)
    figure.savefig(path, dpi=140)


def _bars(figure: SubFigure, found: Sequence[Holder], names: Sequence[str]) -> None:
    from matplotlib import colormaps

    axis = figure.subplots()
    places, begun = np.arange(len(found)), np.zeros(len(found))
    colours = colormaps["tab20" if len(names) > 10 else "tab10"].colors  # type: ignore[attr-defined]
    for number, name in enumerate(names):
        counts = np.array([holder.classes[number] for holder in found])
        axis.barh(places, counts, left=begun, color=colours[number % len(colours)], label=name, height=0.8)
        begun = begun + counts
    if not names:
        axis.barh(places, [sum(holder.parts[:2]) for holder in found], color=_BLUE, height=0.8)
    labels = [f"{holder.name} ({holder.cluster})" if holder.cluster else holder.name for holder in found]
    axis.set_yticks(places, labels)
    axis.set_ylim(len(found) - 0.4, -0.6)
    axis.set(xlabel="training and validation samples")
    axis.spines[["top", "right"]].set_visible(False)
    if names:
        axis.legend(frameon=False, title="class", loc="center left", bbox_to_anchor=(1, 0.5))


def _map(figure: SubFigure, found: Sequence[Holder], names: Sequence[str]) -> None:
    """For many peers: sizes in descending order within each cluster, and below each the shares of its classes."""
    clusters = list(dict.fromkeys(holder.cluster for holder in found))
    order = sorted(found, key=lambda holder: (clusters.index(holder.cluster), -sum(holder.parts[:2])))
    axes = figure.subplots(2 if names else 1, 1, squeeze=False, sharex=True)[:, 0]
    sizes = np.array([sum(holder.parts[:2]) for holder in order])
    axes[0].bar(np.arange(len(sizes)), sizes, width=1, color=_BLUE, linewidth=0)
    axes[0].set(ylabel="samples", ylim=(0, None), xlim=(-0.5, len(sizes) - 0.5))
    axes[0].spines[["top", "right"]].set_visible(False)
    if names:
        shares = np.array([holder.classes / max(1, holder.classes.sum()) for holder in order]).T
        image = axes[1].imshow(shares, aspect="auto", interpolation="nearest", cmap="viridis", vmin=0, vmax=1)
        axes[1].set(ylabel="class")
        if len(names) <= 30:
            axes[1].set_yticks(range(len(names)), names)
        figure.colorbar(image, ax=axes[1], label="share of the peer's samples")
    first = "those with most samples first" if clusters == [""] else "by cluster, those with most samples first"
    axes[-1].set(xlabel=f"{len(found):,} peers, {first}")
    if clusters != [""]:
        _name_clusters(axes, [holder.cluster for holder in order])


def _name_clusters(axes: Array, of: Sequence[str]) -> None:
    """Lines between clusters, and their names above them: slanted where many or narrow ones would overlap.

    axes [panel], of [peer]
    """
    begins = [peer for peer in range(len(of)) if peer == 0 or of[peer] != of[peer - 1]]
    ends = [*begins[1:], len(of)]
    for axis in axes:
        for begin in begins[1:]:
            axis.axvline(begin - 0.5, color="#d55e00", linewidth=1)
    places = list(zip(begins, ends, strict=True))
    is_wide = all((end - begin) / len(of) * _CHARACTERS > len(of[begin]) + 5 for begin, end in places)
    for begin, end in places[:_MOST_NAMES]:
        axes[0].annotate(
            f"{of[begin] or '?'} ({end - begin})",
            ((begin + end - 1) / 2, 1),
            (0, 4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center" if is_wide else "left",
            rotation=0 if is_wide else 30,
            rotation_mode="anchor",
            fontsize=8,
        )

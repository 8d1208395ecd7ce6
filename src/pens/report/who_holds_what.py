# SPDX-License-Identifier: Apache-2.0
"""Who holds what: the samples of each peer, by part and by class, as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.markup import escape
from rich.table import Table

from pens.data.samples import Array, Samples
from pens.data.scenarios import UNKNOWN as NO_CLUSTER
from pens.data.scenarios import Federation

_MOST_BARS, _MOST_CLASSES, _MOST_ROWS = 60, 12, 40


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
    """Samples and classes per peer: a bar for each peer, divided by class; of many peers a map of shares, and sizes in
    order."""
    found = holders(federation)
    names = class_names(federation) if _has_classes(federation) else ()
    few = len(found) <= _MOST_BARS and len(names) <= 20
    (_bars if few else _map)(found, names).savefig(path, dpi=140)


def _bars(found: Sequence[Holder], names: Sequence[str]) -> Figure:
    from matplotlib import colormaps

    figure = Figure(figsize=(7.5, 1.4 + 0.24 * len(found)), layout="constrained")
    axis = figure.subplots()
    places, begun = np.arange(len(found)), np.zeros(len(found))
    colours = colormaps["tab20" if len(names) > 10 else "tab10"].colors  # type: ignore[attr-defined]
    for number, name in enumerate(names):
        counts = np.array([holder.classes[number] for holder in found])
        axis.barh(places, counts, left=begun, color=colours[number % len(colours)], label=name, height=0.8)
        begun = begun + counts
    if not names:
        axis.barh(places, [sum(holder.parts[:2]) for holder in found], color="#0067b0", height=0.8)
    labels = [f"{holder.name} ({holder.cluster})" if holder.cluster else holder.name for holder in found]
    axis.set_yticks(places, labels)
    axis.invert_yaxis()
    axis.set(xlabel="training and validation samples")
    axis.spines[["top", "right"]].set_visible(False)
    if names:
        axis.legend(frameon=False, title="class", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _map(found: Sequence[Holder], names: Sequence[str]) -> Figure:
    """For many peers: sizes in descending order, and below each the shares of its classes."""
    order = sorted(found, key=lambda holder: -sum(holder.parts[:2]))
    figure = Figure(figsize=(9, 5 if names else 3), layout="constrained")
    axes = figure.subplots(2 if names else 1, 1, squeeze=False, sharex=True)[:, 0]
    sizes = np.array([sum(holder.parts[:2]) for holder in order])
    axes[0].fill_between(np.arange(len(sizes)), sizes, step="mid", color="#0067b0", linewidth=0)
    axes[0].set(ylabel="samples", ylim=(0, None))
    axes[0].spines[["top", "right"]].set_visible(False)
    if names:
        shares = np.array([holder.classes / max(1, holder.classes.sum()) for holder in order]).T
        image = axes[1].imshow(shares, aspect="auto", interpolation="nearest", cmap="viridis", vmin=0, vmax=1)
        axes[1].set(ylabel="class")
        if len(names) <= 30:
            axes[1].set_yticks(range(len(names)), names)
        figure.colorbar(image, ax=axes[1], label="share of the peer's samples")
    axes[-1].set(xlabel=f"{len(found):,} peers, those with most samples first")
    return figure

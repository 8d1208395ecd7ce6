# SPDX-License-Identifier: Apache-2.0
"""Pictures: who merged whose models (the paper's figure 2), and learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from pens.data.samples import Array
from pens.measuring.results import ExperimentResult, RunResult
from pens.methods.names import method_of, selecting
from pens.report.discovered import Discovered, discover

_CELLS = 1000  # of a heatmap, along each side
_MOST_NAMES = 30  # of peers, along each side


def write_heatmaps(result: ExperimentResult, path: Path) -> bool:
    """Figure 2: how often each peer merged each other's models, one map per method, first seed. Peers of one cluster
    stand together, or, where clusters are not known, those that chose each other. False where nothing was merged."""
    runs = [runs[0] for runs in _by_method(result) if runs[0].communication.merged.sum()]
    if not runs:
        return False
    figure = Figure(figsize=(3.6 * len(runs) + 0.9, 3.9), layout="constrained")
    axes = figure.subplots(1, len(runs), squeeze=False)[0]
    names = selecting(run.method for run in result.runs)
    found = [groups for name in names if (groups := discover(result.of(name)))]
    for axis, run in zip(axes, runs, strict=True):
        image = _draw_heatmap(axis, run, found[0] if found else None)
    axes[0].set_ylabel("receiving peer")
    figure.colorbar(image, ax=list(axes), label="merges, relative to the largest", shrink=0.9)
    figure.savefig(path, dpi=140)
    return True


def _draw_heatmap(axis: Axes, run: RunResult, discovered: Discovered | None) -> AxesImage:
    order, numbers, names = _arranged(run, discovered)
    matrix = _merge_map(run, order)
    image = axis.imshow(matrix / max(1, matrix.max()), cmap="magma", vmin=0, vmax=1, interpolation="nearest")
    sizes = numbers * len(matrix) / run.num_peers
    ends = np.cumsum(sizes)
    for end in ends[:-1]:
        axis.axhline(end - 0.5, color="white", linewidth=0.8)
        axis.axvline(end - 0.5, color="white", linewidth=0.8)
    if not run.clusters_known and len(order) <= _MOST_NAMES:
        places, names = np.arange(len(order), dtype=np.float64), [run.peer_label(peer) for peer in order]
    else:
        places = ends - sizes / 2 - 0.5
    small = 7 if len(names) > 12 else 10
    axis.set_xticks(places, names, rotation=90 if max(map(len, names)) > 4 else 0, fontsize=small)
    axis.set_yticks(places, names, fontsize=small)
    axis.tick_params(length=0)
    axis.set_title(run.method)
    axis.set_xlabel("sending peer")
    return image


def _arranged(run: RunResult, discovered: Discovered | None) -> tuple[list[int], Array, Sequence[str]]:
    """The peers in order, and how many of them each part of a map has, and its name."""
    if run.clusters is not None:
        order = np.argsort(run.clusters, kind="stable").tolist()
        return order, np.bincount(run.clusters, minlength=len(run.cluster_names)), run.cluster_names
    if discovered is None:
        return list(range(run.num_peers)), np.array([run.num_peers]), [""]
    sizes = [len(group) for group in discovered.groups]
    names = [f"group {number}" if size > 1 else "" for number, size in enumerate(sizes, 1)]
    return list(discovered.order), np.array(sizes), names


def _merge_map(run: RunResult, order: Sequence[int]) -> Array:
    """Merge counts with peers in this order; many peers share a cell.  [receiver, sender]"""
    peers, cells = run.num_peers, min(run.num_peers, _CELLS)
    place = np.empty(peers, np.int64)
    place[list(order)] = np.arange(peers) * cells // peers
    matrix = np.zeros((cells, cells), np.int64)
    np.add.at(matrix, (place[run.pairs.receiver], place[run.pairs.sender]), run.pairs.merged)
    return matrix


def write_curves(result: ExperimentResult, path: Path, clock: str = "virtual time") -> None:
    """Validation accuracy over time: mean over peers and seeds, with the middle half of the peers as a band."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axis = figure.subplots()
    longest = 0.0
    for runs in _by_method(result):
        method = runs[0].method
        colour, _ = method_of(method).colours
        times, values = _curves(runs)
        low, high = np.percentile(values, [25, 75], axis=0)
        axis.fill_between(times, 100 * low, 100 * high, color=colour, alpha=0.15, linewidth=0)
        axis.plot(times, 100 * values.mean(0), color=colour, label=method, linewidth=1.8)
        longest = max(longest, times[-1])
    unit = "round" if result.settings.gossip.schedule == "rounds" else clock
    axis.set(xlabel=unit, ylabel="validation accuracy %", xlim=(0, longest))
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right")
    axis.set_title("mean over peers and seeds; band: the middle half of the peers", fontsize=10)
    figure.savefig(path, dpi=140)


def _curves(runs: Sequence[RunResult]) -> tuple[Array, Array]:
    """Each peer's validation accuracy on a common time axis; a peer's last value holds.  → [time], [peer, time]"""
    end = max(float(run.history.time.max()) for run in runs)
    times = np.linspace(0, end, 200) if end > 200 else np.arange(0.5, end + 0.25, 0.5)
    curves = []
    for run in runs:
        order = np.argsort(run.history.peer, kind="stable")
        cuts = np.flatnonzero(np.diff(run.history.peer[order])) + 1
        for mine in np.split(order, cuts):
            when, what = run.history.time[mine], run.history.val_accuracy[mine]
            curves.append(what[np.clip(np.searchsorted(when, times, side="right") - 1, 0, None)])
    return times, np.stack(curves)


def _by_method(result: ExperimentResult) -> list[tuple[RunResult, ...]]:
    return [result.of(method) for method in dict.fromkeys(run.method for run in result.runs)]

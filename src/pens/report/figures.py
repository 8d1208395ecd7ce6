# SPDX-License-Identifier: Apache-2.0
"""Pictures of a run: merge counts as heatmaps (the paper's figure 2), and learning curves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from pens.measuring.results import ExperimentResult
from pens.methods.names import method_of
from pens.report.discovered import discovered_in
from pens.report.learning_curves import curve_at, traces_of
from pens.report.merge_maps import MergeMap, merge_map, stretches

_CELLS = 1000  # the largest number of rows and columns of a heatmap
_MOST_NAMES = 30  # the largest number of peers named along each side


def write_heatmaps(result: ExperimentResult, path: Path) -> bool:
    """Figure 2: how often each peer merged the models of each other peer, one map per method, for the first seed. Peers
    are sorted by cluster or, where clusters are not known, by discovered group. False where nothing was merged."""
    _, discovered = discovered_in(result.by_method())
    maps = [merges for runs in result.by_method() if (merges := merge_map(runs[0], _CELLS, discovered))]
    if not maps:
        return False
    figure = Figure(figsize=(3.6 * len(maps) + 0.9, 3.9), layout="constrained")
    axes = figure.subplots(1, len(maps), squeeze=False)[0]
    for axis, merges in zip(axes, maps, strict=True):
        image = _draw_heatmap(axis, merges)
    axes[0].set_ylabel("receiving peer")
    figure.colorbar(image, ax=list(axes), label="merges, relative to the largest", shrink=0.9)
    figure.savefig(path, dpi=140)
    return True


def _draw_heatmap(axis: Axes, merges: MergeMap) -> AxesImage:
    image = axis.imshow(merges.mean / merges.mean.max(), cmap="magma", vmin=0, vmax=1, interpolation="nearest")
    parts = stretches(merges.sections)
    for _, begin, _ in parts[1:]:
        axis.axhline(begin - 0.5, color="white", linewidth=0.8)
        axis.axvline(begin - 0.5, color="white", linewidth=0.8)
    shown = stretches(merges.names) if 0 < len(merges.names) <= _MOST_NAMES else parts
    places, names = [(begin + end - 1) / 2 for _, begin, end in shown], [name for name, _, _ in shown]
    small = 7 if len(names) > 12 else 10
    axis.set_xticks(places, names, rotation=90 if max(map(len, names)) > 4 else 0, fontsize=small)
    axis.set_yticks(places, names, fontsize=small)
    axis.tick_params(length=0)
    axis.set_title(merges.method)
    axis.set_xlabel("sending peer")
    return image


def write_curves(result: ExperimentResult, path: Path, clock: str = "virtual time") -> None:
    """The main metric on validation data over time: mean over peers and seeds, and their middle half."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axis = figure.subplots()
    longest, measure = 0.0, result.runs[0].metric
    scale = measure.scale
    for runs in result.by_method():
        end = max(float(run.history.time.max()) for run in runs)
        times = np.linspace(0, end, 200) if end > 200 else np.arange(0.5, end + 0.25, 0.5)
        traces = [trace for run in runs for trace in traces_of(run, run.history.time)]
        curve = curve_at(runs[0].method, traces, times)
        colour, _ = method_of(curve.method).colours
        axis.fill_between(times, scale * curve.low, scale * curve.high, color=colour, alpha=0.15, linewidth=0)
        axis.plot(times, scale * curve.mean, color=colour, label=curve.method, linewidth=1.8)
        longest = max(longest, times[-1])
    unit = "round" if result.settings.gossip.schedule == "rounds" else clock
    axis.set(xlabel=unit, ylabel=measure.label("validation"), xlim=(0, longest))
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right" if measure.higher_is_better else "upper right")
    axis.set_title("mean over peers and seeds; band: the middle half of the peers", fontsize=10)
    figure.savefig(path, dpi=140)

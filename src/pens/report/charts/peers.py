# SPDX-License-Identifier: Apache-2.0
"""Charts of the distribution over peers of accuracy and of gains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pens.data.samples import Array
from pens.report.analysis import PeerOutcome
from pens.report.panel import Chart, draw_columns
from pens.report.svg import WIDTH, Canvas, scale_over
from pens.settings.tree import MethodName
from pens.tasks.metric import ACCURACY, Measure


def peers_chart(outcomes: Sequence[PeerOutcome], tested: bool = True, measure: Measure = ACCURACY) -> Chart:
    """How accuracy, or what else was measured, is distributed over peers, per method. `tested`: whether all is test
    data."""
    name = measure.name
    axis = f"{'test ' if tested else ''}{name} of a peer{f', {measure.unit}' if measure.unit else ''}"
    rows = tuple((o.method, o.seed, o.peer, o.name, o.cluster, o.score, o.gain) for o in outcomes)
    by_method = _grouped(outcomes, lambda o: o.score, measure)
    svg = _histograms(f"{measure.title} of the peers", axis, by_method, not measure.higher_is_better)
    caption = f"Each row: how {name} is distributed over the peers of all seeds. Line: mean. Triangle: the worst peer."
    columns = ("method", "seed", "peer", "name", "cluster", name, "gain_over_local")
    return Chart("peers", caption, svg, columns, rows)


def gains_chart(outcomes: Sequence[PeerOutcome], alone: MethodName | None, measure: Measure = ACCURACY) -> Chart:
    """What each peer gained over training alone, per method. `alone`: the method with which it did."""
    paired = [o for o in outcomes if o.gain is not None and o.method != alone]
    rows = tuple((o.method, o.seed, o.peer, o.name, o.cluster, o.score, o.gain) for o in paired)
    by_method = _grouped(paired, lambda o: o.gain or 0.0, measure)
    what = f"{measure.gap_unit} {'over' if measure.higher_is_better else 'better than'} training alone"
    svg = _histograms("What each peer gained over training alone", what, by_method, zero=True)
    caption = "Each row: how the gains over "
    caption += f"{alone} with the same seed are distributed over peers; peers left of zero lost {measure.name}."
    caption = caption if measure.higher_is_better else caption.replace(f"lost {measure.name}", "became worse")
    columns = ("method", "seed", "peer", "name", "cluster", measure.name, "gain_over_local")
    return Chart("gains", caption, svg, columns, rows)


def _grouped(
    outcomes: Sequence[PeerOutcome], value: Callable[[PeerOutcome], float], measure: Measure
) -> dict[MethodName, Array]:
    methods = dict.fromkeys(o.method for o in outcomes)
    return {method: measure.scale * np.array([value(o) for o in outcomes if o.method == method]) for method in methods}


def _histograms(
    title: str, axis: str, by_method: dict[MethodName, Array], highest_is_worst: bool = False, zero: bool = False
) -> str:
    """One row of bars per method, with its mean and its worst peer. `zero`: the scale has a line there."""
    row, left, right = 52.0, 62.0, WIDTH - 10.0
    height = row * len(by_method) + 44
    canvas = Canvas(title, height)
    every = np.concatenate(list(by_method.values()))
    low, high = float(every.min()), float(every.max())
    x = scale_over(min(low, 0.0) if zero else low, max(high, 0.0) if zero else high, left, right)
    draw_columns(canvas, x, 4, height - 34, axis)
    edges = np.linspace(x.low, x.high, 41)
    shares = {
        method: np.histogram(np.clip(values, x.low, x.high), edges)[0] / len(values)
        for method, values in by_method.items()
    }
    tallest = max(float(share.max()) for share in shares.values())
    for number, (method, values) in enumerate(by_method.items()):
        floor = row * (number + 1)
        canvas.text(0, floor - 12, method, method, bold=True)
        canvas.line(left, floor, right, floor, "grid")
        for begin, end, share in zip(edges, edges[1:], shares[method], strict=False):
            if share:
                tall = (row - 12) * float(share) / tallest
                canvas.rect(x(begin) + 0.4, floor - tall, x(end) - x(begin) - 0.8, tall, method, 0.75)
        mean, worst = x(float(values.mean())), x(float(values.max() if highest_is_worst else values.min()))
        canvas.line(mean, floor - row + 10, mean, floor, "ink", 1.5)
        canvas.area([(worst - 4, floor + 7), (worst + 4, floor + 7), (worst, floor + 1)], "ink", 1)
    if zero:
        canvas.line(x(0), 4, x(0), height - 34, "ink", 1)
    return canvas.svg()

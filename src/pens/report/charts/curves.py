# SPDX-License-Identifier: Apache-2.0
"""A chart of learning curves."""

from __future__ import annotations

from collections.abc import Sequence

from pens.report.learning_curves import Axis, Curve
from pens.report.panel import Chart, Row, draw_axes, points_at
from pens.report.svg import Canvas, Scale, scale_over, spread
from pens.settings.tree import MethodName
from pens.tasks.metric import ACCURACY, Measure

AXIS_TITLES: dict[Axis, str] = {
    "rounds": "rounds (updates of a peer after its first training)",
    "time": "virtual time",
    "seconds": "seconds",
    "bytes": "received by a peer, MB",
    "forwards": "work of a peer, thousand forward passes",
}
AXIS_COLUMNS: dict[Axis, str] = {
    "rounds": "rounds",
    "time": "virtual_time",
    "seconds": "seconds",
    "bytes": "megabytes_received",
    "forwards": "thousand_forward_passes",
}
AXIS_UNITS: dict[Axis, float] = {"rounds": 1, "time": 1, "seconds": 1, "bytes": 1e6, "forwards": 1e3}


def curves_chart(
    curves: Sequence[Curve], still: dict[MethodName, float], axis: Axis, measure: Measure = ACCURACY
) -> Chart:
    """The main metric on validation data along an axis. `still`: the last value of methods that do not move on it."""
    height, bottom, right = 256.0, 212.0, 280.0
    unit = AXIS_UNITS[axis]
    scale = measure.scale
    canvas = Canvas(f"Validation {measure.name} over {AXIS_COLUMNS[axis].replace('_', ' ')}", height)
    lows = [scale * float(c.low.min()) for c in curves] + [scale * v for v in still.values()]
    highs = [scale * float(c.high.max()) for c in curves] + [scale * v for v in still.values()]
    y = scale_over(max(0.0, min(lows)) if measure.unit == "%" else min(lows), max(highs), bottom, 30)
    x = Scale(0, max(float(c.at[-1]) for c in curves) / unit, 34, right)
    draw_axes(canvas, x, y, AXIS_TITLES[axis], measure.label("validation", comma=True))
    for curve in curves:
        at = curve.at / unit
        canvas.area(points_at(x, y, at, curve.high, scale) + points_at(x, y, at, curve.low, scale)[::-1], curve.method)
    for curve in curves:
        canvas.path(points_at(x, y, curve.at / unit, curve.mean, scale), curve.method)
    for method, value in still.items():
        canvas.path([(x(0), y(scale * value)), (right, y(scale * value))], method, 1.5, "4 4")
    ends = {c.method: y(scale * float(c.mean[-1])) for c in curves} | {m: y(scale * v) for m, v in still.items()}
    for (method, _), place in zip(ends.items(), spread(list(ends.values()), 14), strict=True):
        canvas.text(right + 6, place + 4, method, method, bold=True)
    rows: list[Row] = [
        (c.method, float(at) / unit, float(m), float(lo), float(hi))
        for c in curves
        for at, m, lo, hi in zip(c.at, c.mean, c.low, c.high, strict=True)
    ]
    rows += [(method, None, value, None, None) for method, value in still.items()]
    columns = ("method", AXIS_COLUMNS[axis], "mean", "low", "high")
    caption = "Line: mean over peers and seeds. Band: the middle half of them."
    caption += " Dashed: the last value of a method that receives nothing." if still else ""
    return Chart(f"curves-{axis}", caption, canvas.svg(), columns, tuple(rows))

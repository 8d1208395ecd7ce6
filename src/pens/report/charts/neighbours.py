# SPDX-License-Identifier: Apache-2.0
"""A chart of precision and recall of the neighbours over the rounds of step 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pens.data.samples import Array
from pens.paper.cells import PaperValue
from pens.report.panel import Chart, Row, draw_axes, points_at
from pens.report.selection_curves import SelectionCurve
from pens.report.svg import Canvas, Scale, scale_over, spread
from pens.settings.tree import MethodName


def neighbours_chart(
    method: MethodName, curves: Sequence[SelectionCurve], paper: tuple[PaperValue, PaperValue] | None, lowest: float
) -> Chart:
    """Precision and recall if step 1 ended after each round: mean over seeds, and their range. `lowest`: the smallest
    value that the charts side by side show."""
    rounds = max((s.rounds for s in curves), key=len)
    lines = {
        "precision": np.stack([_extended(s.precision, len(rounds)) for s in curves]),  # [seed, round]
        "recall": np.stack([_extended(s.recall, len(rounds)) for s in curves]),
    }
    canvas, right = Canvas(f"{method}: precision and recall of the neighbours over the rounds of step 1", 256), 268.0
    y = scale_over(100 * lowest, 100, 212, 30)
    x = Scale(0, float(rounds[-1]), 34, right)
    draw_axes(canvas, x, y, "rounds of step 1", f"{method}, %")
    rows: list[Row] = []
    for (name, each), dash in zip(lines.items(), ("", "5 3"), strict=True):
        mean, low, high = each.mean(0), each.min(0), each.max(0)
        if len(curves) > 1:
            canvas.area(points_at(x, y, rounds, high) + points_at(x, y, rounds, low)[::-1], method)
        canvas.path(points_at(x, y, rounds, mean), method, dash=dash)
        numbers = zip(rounds.tolist(), mean.tolist(), low.tolist(), high.tolist(), strict=True)
        rows += [(name, *numbers_of_round) for numbers_of_round in numbers]
    for name, cell in zip(lines, paper or (), strict=False):
        value, half = cell.value.mean, cell.value.half_width or 0.0
        canvas.diamond(x(float(rounds[-1])), y(100 * value), "soft")
        rows.append((f"{name}, paper", None, value, value - half, value + half))
    ends = [y(100 * float(each.mean(0)[-1])) for each in lines.values()]
    for name, place in zip(lines, spread(ends, 14), strict=True):
        canvas.text(right + 8, place + 4, name, method, bold=True)
    caption = "Line: mean over seeds. Band: their range." if len(curves) > 1 else "One seed."
    caption += " Diamonds: the paper's table 5, at the end of its step 1." if paper else ""
    columns = ("measure", "round", "mean", "lowest", "highest")
    return Chart(f"neighbours-{method}", caption, canvas.svg(), columns, tuple(rows))


def _extended(values: Array, length: int) -> Array:
    """Values extended to a length by repeating the last one."""
    return np.concatenate([values, np.repeat(values[-1:], length - len(values))])

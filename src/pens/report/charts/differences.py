# SPDX-License-Identifier: Apache-2.0
"""A chart of the differences between methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pens.report.analysis import Difference
from pens.report.panel import Chart, draw_columns
from pens.report.svg import WIDTH, Canvas, scale_over


def differences_chart(differences: Sequence[Difference]) -> Chart:
    """By how much the better of two methods is better, with intervals: a row each, all on one scale."""
    measure = differences[0].mean.measure
    axis = f"points of {measure.name}" if measure.unit == "%" else f"better by, {measure.unit or measure.name}"
    scale = measure.scale
    row, left, right = 24.0, 126.0, WIDTH - 88.0
    height = row * len(differences) + 44
    canvas = Canvas("Differences between methods with their 95 % intervals", height)
    reach = [end for d in differences for end in _ends(d)]
    x = scale_over(min(0.0, *reach), max(0.0, *reach), left, right, about=3)
    draw_columns(canvas, x, 4, height - 34, axis)
    canvas.line(x(0), 4, x(0), height - 34, "ink", 1)
    for number, d in enumerate(differences):
        middle, colour = row * number + 16, d.better if d.is_clear else "soft"
        canvas.text(0, middle + 4, f"{d.better} − {d.other}", bold=True)
        canvas.text(WIDTH, middle + 4, replace(d.mean, values=()).signed(), "ink", "end")
        if d.mean.half_width is not None:
            begin, end = (x(each) for each in _ends(d))
            canvas.line(begin, middle, end, middle, colour, 2)
        for single in d.mean.values:
            canvas.line(x(scale * single), middle - 4, x(scale * single), middle + 4, colour, 1.5)
        canvas.dot(x(scale * d.mean.mean), middle, colour)
    rows = tuple(
        (d.better, d.other, len(d.seeds), d.mean.mean, d.mean.half_width, d.p_t, d.p_holm, d.p_wilcoxon)
        for d in differences
    )
    columns = ("better", "other", "seeds", "difference", "half_width_95", "p_paired_t", "p_holm", "p_wilcoxon")
    caption = "Dot: mean of the seeds' differences."
    if any(d.mean.half_width is not None for d in differences):
        caption += " Bar: 95 % interval. Grey: no interval, or an interval that contains zero."
    if any(d.mean.values for d in differences):
        caption += " Ticks: single seeds, too few for an interval."
    return Chart("differences", caption, canvas.svg(), columns, rows)


def _ends(difference: Difference) -> tuple[float, float]:
    """Of its interval, as it is drawn; of the single values where there are too few for one."""
    mean, half, scale = difference.mean.mean, difference.mean.half_width, difference.mean.measure.scale
    if half is None:
        return scale * min(difference.values), scale * max(difference.values)
    return scale * (mean - half), scale * (mean + half)

"""Differences between methods."""

from __future__ import annotations

from collections.abc import Sequence

from pens.report.analysis import Difference
from pens.report.panel import Chart, draw_columns
from pens.report.svg import WIDTH, Canvas, scale_over


def differences_chart(found: Sequence[Difference]) -> Chart:
    """Paired differences with their intervals."""
    row, left, right = 40.0, 10.0, WIDTH - 10.0
    height = row * len(found) + 44
    canvas = Canvas("Differences between methods with their 95 % intervals", height)
    ends = [100 * (d.mean.mean + s * (d.mean.half_width or 0)) for d in found for s in (-1, 1)]
    x = scale_over(min(0.0, *ends), max(0.0, *ends), left, right)
    draw_columns(canvas, x, 4, height - 34, "points of accuracy")
    canvas.line(x(0), 4, x(0), height - 34, "ink", 1)
    for number, d in enumerate(found):
        top = row * number
        canvas.text(left, top + 17, f"{d.better} − {d.other}", bold=True, halo=True)
        canvas.text(right, top + 17, d.mean.signed(), "ink", "end", halo=True)
        colour = d.better if d.is_clear else "soft"
        if d.mean.half_width:
            begin, end = (x(100 * (d.mean.mean + s * d.mean.half_width)) for s in (-1, 1))
            canvas.line(begin, top + 29, end, top + 29, colour, 2)
        canvas.dot(x(100 * d.mean.mean), top + 29, colour)
    rows = tuple(
        (d.better, d.other, len(d.seeds), d.mean.mean, d.mean.half_width, d.p_t, d.p_holm, d.p_wilcoxon) for d in found
    )
    columns = ("better", "other", "seeds", "difference", "half_width_95", "p_paired_t", "p_holm", "p_wilcoxon")
    caption = "Dot: mean of the seeds' differences. Bar: 95 % interval. Grey: no interval, or one that holds zero."
    return Chart("differences", caption, canvas.svg(), columns, rows)

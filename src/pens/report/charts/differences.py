"""Differences between methods."""

from __future__ import annotations

from collections.abc import Sequence

from pens.report.analysis import Difference
from pens.report.panel import Chart, draw_columns
from pens.report.svg import WIDTH, Canvas, scale_over


def differences_chart(found: Sequence[Difference]) -> Chart:
    """Paired differences with their intervals, a row each. Those from `local` are often so large that nothing could be
    told apart beside them: what reaches further than all others is an arrow at the edge."""
    row, left, right = 24.0, 126.0, WIDTH - 88.0
    height = row * len(found) + 44
    canvas = Canvas("Differences between methods with their 95 % intervals", height)
    shown = [d for d in found if "local" not in (d.better, d.other)] or found
    reach = [end for d in shown for end in _ends(d)]
    x = scale_over(min(0.0, *reach), max(0.0, *reach), left, right, about=3)
    draw_columns(canvas, x, 4, height - 34, "points of accuracy")
    canvas.line(x(0), 4, x(0), height - 34, "ink", 1)
    far = [x(_ends(d)[1]) > right + 0.01 for d in found]
    for number, (d, is_far) in enumerate(zip(found, far, strict=True)):
        middle, colour = row * number + 16, d.better if d.is_clear else "soft"
        canvas.text(0, middle + 4, f"{d.better} − {d.other}", bold=True)
        canvas.text(WIDTH, middle + 4, d.mean.signed(), "ink", "end")
        if is_far:
            canvas.area([(right - 8, middle - 5), (right, middle), (right - 8, middle + 5)], colour, 1.0)
            continue
        begin, end = (x(each) for each in _ends(d))
        canvas.line(max(begin, left), middle, end, middle, colour, 2)
        canvas.dot(x(100 * d.mean.mean), middle, colour)
    rows = tuple(
        (d.better, d.other, len(d.seeds), d.mean.mean, d.mean.half_width, d.p_t, d.p_holm, d.p_wilcoxon) for d in found
    )
    columns = ("better", "other", "seeds", "difference", "half_width_95", "p_paired_t", "p_holm", "p_wilcoxon")
    caption = "Dot: mean of the seeds' differences. Bar: 95 % interval. Grey: no interval, or one that holds zero."
    if any(far):
        caption += " Arrow: further than the axis goes."
    return Chart("differences", caption, canvas.svg(), columns, rows)


def _ends(found: Difference) -> tuple[float, float]:
    """Of its interval, in points."""
    mean, half = found.mean.mean, found.mean.half_width or 0.0
    return 100 * (mean - half), 100 * (mean + half)

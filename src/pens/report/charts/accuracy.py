# SPDX-License-Identifier: Apache-2.0
"""A chart of the accuracy of each method, and the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from pens.measuring.results import Summary
from pens.paper.cells import PaperValue
from pens.report.panel import Chart, Row, draw_columns, draw_interval, interval_ends
from pens.report.svg import WIDTH, Canvas, scale_over
from pens.settings.tree import MethodName
from pens.tasks.metric import ACCURACY


def accuracy_chart(table: Sequence[Summary], paper: dict[MethodName, PaperValue], tested: bool = True) -> Chart:
    """The mean and interval of each method, with the paper's below where it has one. `tested`: whether all scores are
    on test data."""
    measure = table[0].score.measure
    before = "test" if tested else ""
    cells = {row.method: [(row.score, False)] for row in table}
    for method, cell in paper.items():
        cells[method].append((cell.value, True))
    ends = [end for values in cells.values() for value, _ in values for end in interval_ends(value)]
    step = 22.0
    height = 40 + sum(step * len(c) + 10 for c in cells.values())
    what = f"{before} {measure.name}".strip()
    canvas = Canvas(f"{what[0].upper()}{what[1:]} of each method with its 95 % interval", height)
    x = scale_over(min(ends), max(ends), 62, 252, about=4)
    draw_columns(canvas, x, 4, height - 34, measure.label(before, comma=True))
    top = 8.0
    for method, values in cells.items():
        canvas.text(0, top + 14, method, method, bold=True)
        for value, of_paper in values:
            draw_interval(canvas, x, top + 10, value, method, "diamond" if of_paper else "dot")
            canvas.text(WIDTH, top + 14, value.short(), "soft" if of_paper else "ink", "end", bold=not of_paper)
            if of_paper:
                canvas.text(0, top + 14, "paper", "soft")
            top += step
        top += 10
    rows: list[Row] = [(row.method, "runs", row.seeds, row.score.mean, row.score.half_width) for row in table]
    rows += [(m, f"paper, {c.where}", 4, c.value.mean, c.value.half_width) for m, c in paper.items()]
    columns = ("method", "source", "seeds", measure.name, "half_width_95")
    shown = [value for values in cells.values() for value, _ in values]
    caption = "Dot: mean over peers and seeds."
    caption += " Bar: 95 % interval over seeds (Student t)." if any(v.half_width is not None for v in shown) else ""
    caption += " Ticks: single seeds, too few for an interval." if any(row.score.values for row in table) else ""
    caption += " Diamond: the paper." if paper else ""
    return Chart("accuracy" if measure == ACCURACY else "score", caption, canvas.svg(), columns, tuple(rows))

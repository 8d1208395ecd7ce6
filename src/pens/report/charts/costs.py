# SPDX-License-Identifier: Apache-2.0
"""Charts of the bytes that a peer receives and of the work that it does."""

from __future__ import annotations

from collections.abc import Sequence

from pens.report.analysis import Cost
from pens.report.panel import Chart, draw_columns
from pens.report.svg import Canvas, scale_over
from pens.settings.tree import MethodName


def bytes_chart(costs: Sequence[Cost]) -> Chart:
    """The bytes that a peer receives, by what it does with the models."""
    per_model = {c.method: c.bytes_received / c.received / 1e6 if c.received else 0.0 for c in costs}
    parts = {c.method: [per_model[c.method] * n for n in (c.merged, max(0.0, c.received - c.merged))] for c in costs}
    svg = _bars("Megabytes received per peer", "received per peer, MB", parts, (1.0, 0.35))
    rows = tuple((c.method, c.received, c.merged, c.scored, c.refused, c.bytes_received) for c in costs)
    columns = ("method", "models_received", "models_merged", "models_scored", "models_refused", "bytes_received")
    return Chart("bytes", "Strong: merged. Pale: scored only, refused or unused.", svg, columns, rows)


def work_chart(costs: Sequence[Cost]) -> Chart:
    """The work of a peer: training, validation and scoring."""
    known = [c for c in costs if c.forwards is not None]
    parts = {c.method: [(p or 0.0) / 1e3 for p in (c.training, c.validation, c.scoring)] for c in known}
    svg = _bars("Work per peer", "thousand forward passes per peer", parts, (1.0, 0.62, 0.3))
    rows = tuple((c.method, c.training, c.validation, c.scoring, c.forwards, c.seconds) for c in known)
    columns = ("method", "training", "validation", "scoring", "forward_passes", "seconds_per_seed")
    caption = "From strong to pale: training (three forward passes a sample), validation, scoring of others' models."
    return Chart("work", caption, svg, columns, rows)


def _bars(title: str, axis: str, parts: dict[MethodName, list[float]], shades: Sequence[float]) -> str:
    """One bar per method, with its parts in these strengths of the method's colour."""
    row, left, right = 34.0, 62.0, 282.0
    height = row * len(parts) + 46
    canvas = Canvas(title, height)
    x = scale_over(0, max(max(sum(p) for p in parts.values()), 1e-9), left, right, about=4)
    draw_columns(canvas, x, 4, height - 34, axis)
    for number, (method, amounts) in enumerate(parts.items()):
        top, begin = row * number + 10, 0.0
        canvas.text(0, top + 14, method, method, bold=True)
        for amount, shade in zip(amounts, shades, strict=True):
            canvas.rect(x(begin), top, x(begin + amount) - x(begin), 18, "paper")  # no grid behind pale colours
            canvas.rect(x(begin), top, x(begin + amount) - x(begin), 18, method, shade)
            begin += amount
        canvas.text(x(begin) + 5, top + 14, _short(begin))
    return canvas.svg()


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 or not value else f"{value:.2g}"

# SPDX-License-Identifier: Apache-2.0
"""A panel of a report: one picture as SVG, the table of its numbers, and the axes that panels share."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pens.data.samples import Array
from pens.measuring.metrics import Interval
from pens.report.svg import Canvas, Scale, tick_label

Row = tuple[str | float | int | None, ...]


@dataclass(frozen=True)
class Chart:
    """One panel of a report, and its numbers as a table."""

    name: str
    """The name of its files."""
    caption: str
    svg: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def as_csv(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """A table as CSV text."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return file.getvalue()


def draw_axes(canvas: Canvas, x: Scale, y: Scale, x_title: str, y_title: str) -> None:
    """Draw the axes of curves: horizontal lines, numbers on both axes, and their titles."""
    for tick in y.ticks():
        canvas.line(x.start, y(tick), x.end, y(tick))
        canvas.text(x.start - 6, y(tick) + 4, tick_label(tick), "soft", "end")
    for tick in x.ticks(4):
        canvas.text(x(tick), y.start + 18, tick_label(tick), "soft", "middle")
    canvas.text(0, 10, y_title, "soft")
    canvas.text((x.start + x.end) / 2, y.start + 38, x_title, "soft", "middle")


def points_at(x: Scale, y: Scale, at: Array, values: Array, times: float = 100.0) -> list[tuple[float, float]]:
    """Where values stand, drawn `times` their size: fractions in per cent; what is not a number is left out."""
    return [(x(float(a)), y(times * float(v))) for a, v in zip(at, values, strict=True) if not np.isnan(v)]


def draw_columns(canvas: Canvas, x: Scale, top: float, bottom: float, title: str) -> None:
    """Draw the axis of rows of marks or bars: vertical lines, with numbers and a title below."""
    for tick in x.ticks():
        canvas.line(x(tick), top, x(tick), bottom)
        canvas.text(x(tick), bottom + 15, tick_label(tick), "soft", "middle")
    canvas.text((x.start + x.end) / 2, bottom + 31, title, "soft", "middle")


def interval_ends(value: Interval) -> tuple[float, float]:
    """Of an interval, as it is drawn: of fractions in per cent, within what is possible; of the single values where
    there are too few for an interval."""
    scale, half = value.measure.scale, value.half_width or 0
    if value.half_width is None and value.values:
        return scale * min(value.values), scale * max(value.values)
    low, high = scale * (value.mean - half), scale * (value.mean + half)
    return (max(0.0, low), min(100.0, high)) if value.measure.unit == "%" else (low, high)


Mark = Literal["dot", "square", "diamond"]


def draw_mark(canvas: Canvas, x: float, y: float, colour: str, mark: Mark) -> None:
    """Draw the mark of a mean: a dot for ours, a hollow diamond for the paper's, a hollow square for others."""
    if mark == "dot":
        canvas.dot(x, y, colour, 3.5)
    elif mark == "diamond":
        canvas.diamond(x, y, colour, 4)
    else:
        canvas.square(x, y, colour, 3)


def draw_interval(canvas: Canvas, x: Scale, y: float, value: Interval, colour: str, mark: Mark) -> None:
    """Draw a mean with a horizontal interval. Two seeds have no interval: each is drawn as a tick."""
    low, high = interval_ends(value)
    if value.half_width is not None:
        canvas.line(x(low), y, x(high), y, colour, 2)
    for single in value.values:
        place = x(value.measure.scale * single)
        canvas.line(place, y - 4, place, y + 4, colour, 1.5)
    draw_mark(canvas, x(value.measure.scale * value.mean), y, colour, mark)

# SPDX-License-Identifier: Apache-2.0
"""Draws tables and figures as pictures, and writes their numbers as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pens.measuring.metrics import Interval
from pens.paper.exhibits import Exhibit, exhibits
from pens.parts import METHODS
from pens.planning.store import RunStore
from pens.report.charts.merges import merge_chart
from pens.report.merge_maps import merge_map
from pens.report.panel import (
    Chart,
    Mark,
    Row,
    as_csv,
    draw_axes,
    draw_columns,
    draw_interval,
    draw_mark,
    interval_ends,
)
from pens.report.svg import Canvas, Scale, scale_over, spread, standalone
from pens.reproduce.compare import Beside, Comparison, Finding
from pens.reproduce.keep import write_text
from pens.settings.tree import MethodName


def write_files(comparison: Comparison, store: RunStore, folder: Path, beside: Beside | None = None) -> list[Path]:
    """Write the pictures and numbers of a comparison, and return the files."""
    files = {f"{comparison.name}.csv": as_csv(*_numbers(comparison, beside))}
    charts = _charts(comparison, store, beside)
    for chart in charts:
        if chart.name != comparison.name:
            files[f"{chart.name}.csv"] = as_csv(chart.columns, chart.rows)
    return [*_write(folder, files), *_write(folder, _drawn(charts))]


def write_pictures(comparison: Comparison, store: RunStore, folder: Path, beside: Beside | None = None) -> list[Path]:
    """Write the pictures of a comparison, and return the files."""
    return _write(folder, _drawn(_charts(comparison, store, beside)))


def _drawn(charts: Iterable[Chart]) -> dict[str, str]:
    return {f"{chart.name}.svg": standalone(chart.svg, METHODS.built_in) for chart in charts}


def _write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / name for name in files]


def _charts(comparison: Comparison, store: RunStore, beside: Beside | None) -> list[Chart]:
    """The charts of a table or figure. Merge maps are drawn from the runs themselves, where these exist."""
    if comparison.x_title:
        return [curve_chart(comparison, beside)]
    exhibit = exhibits([comparison.name])[0]
    if any(cell.quantity == "own cluster" for column in exhibit.columns for cell in column.cells):
        return _maps(exhibit, comparison, store)
    return [table_chart(comparison, beside)]


Source = Literal["paper", "beside", "ours"]


def _values(label: str, finding: Finding, beside: Beside | None) -> dict[Source, Interval | None]:
    """The numbers of one cell, the paper's first, so that ours are drawn over them."""
    values: dict[Source, Interval | None] = {"paper": finding.paper}
    if beside:
        other = beside.finding(label, finding)
        values["beside"] = other.ours if other else None
    return {**values, "ours": finding.ours}


def table_chart(comparison: Comparison, beside: Beside | None = None) -> Chart:
    """A table as a picture, with a row for each number: ours as a dot with its 95 % interval, the paper's below it as a
    hollow diamond, and the verdict."""
    step, first, left, right = 34.0 if beside else 26.0, 48.0, 152.0, 360.0
    width = right + (478 if beside else 292)
    num_headings = sum(column.has_heading for column in comparison.columns)
    height = first + 60 + 26 * num_headings + step * len(comparison.findings)
    canvas = Canvas(comparison.title, height, width)
    cells = [_values(label, finding, beside) for label, finding in comparison.findings]
    ends = [end for values in cells for value in values.values() if value for end in interval_ends(value)]
    x = scale_over(min(ends), max(ends), left, right)
    quantities = {finding.quantity for _, finding in comparison.findings}
    canvas.text(0, 14, comparison.title, bold=True)
    draw_columns(canvas, x, first, height - 60, "test accuracy, %" if quantities == {"accuracy"} else "%")
    places = _text_places(right, beside)
    headings: dict[Source, str] = {"paper": "paper", "beside": beside.label if beside else "", "ours": "ours"}
    for source, (at, verdict_at) in places.items():
        canvas.text(at, first - 8, headings[source], "soft", "end")
        if verdict_at:
            canvas.text(verdict_at, first - 8, "verdict", "soft")
    top, number = first, 0
    for column in comparison.columns:
        if column.has_heading:
            canvas.text(0, top + 17, column.label, "ink", halo=True)
            top += 26
        for finding in column.findings:
            name = finding.name if column.has_heading else column.label
            canvas.text(12, top + step / 2 + 4, name, finding.method, bold=True)
            other = beside.finding(column.label, finding) if beside else None
            _draw_row(canvas, x, top + step / 2, finding, cells[number], places, has_beside=other is not None)
            if other:
                _draw_verdict(canvas, places["beside"][1], top + step / 2, other)
            _draw_verdict(canvas, places["ours"][1], top + step / 2, finding)
            top, number = top + step, number + 1
    square = f"square: {beside.label}; " if beside else ""
    intervals = "with 95 % intervals over seeds; verdict: Welch's test at 5 %"
    canvas.text(0, height - 2, f"dot: ours; {square}diamond: the paper's, {intervals}", "soft")
    return Chart(
        comparison.name,
        "Ours and the paper's, with 95 % intervals over seeds.",
        canvas.svg(),
        *_numbers(comparison, beside),
    )


def _text_places(right: float, beside: Beside | None) -> dict[Source, tuple[float, float]]:
    """Where the numbers of a source end and where its verdicts begin; the paper has no verdicts."""
    if not beside:
        return {"paper": (right + 177, 0.0), "ours": (right + 92, right + 189)}
    return {"paper": (right + 92, 0.0), "beside": (right + 190, right + 198), "ours": (right + 368, right + 376)}


def _draw_row(
    canvas: Canvas,
    x: Scale,
    y: float,
    finding: Finding,
    values: Mapping[Source, Interval | None],
    places: Mapping[Source, tuple[float, float]],
    has_beside: bool,
) -> None:
    """Draw the marks of a row below each other, ours on top, and their numbers. `has_beside`: whether the other rules
    have the cell."""
    lines: dict[Source, float] = {"ours": -8.0, "beside": 0.0, "paper": 8.0}
    if "beside" not in values:
        lines = {"ours": -4.0, "paper": 5.0}
    for source, value in values.items():
        if value:
            colour = "soft" if source == "paper" else finding.method
            draw_interval(canvas, x, y + lines[source], value, colour, _MARKS[source])
        might_be_run = source == "ours" or (source == "beside" and has_beside)
        words = value.short() if value else "not run" if might_be_run else "–"
        strong = bool(value) and source == "ours"
        canvas.text(places[source][0], y + 4, words, "ink" if strong else "soft", "end", bold=strong)


def _draw_verdict(canvas: Canvas, x: float, y: float, finding: Finding) -> None:
    if finding.paper and finding.values:
        canvas.text(x, y + 4, str(finding.verdict), "soft" if finding.verdict.agrees else "ink")


_MARKS: dict[Source, Mark] = {"ours": "dot", "beside": "square", "paper": "diamond"}


def curve_chart(comparison: Comparison, beside: Beside | None = None) -> Chart:
    """Figure 1: the accuracy of each method along an axis with its 95 % interval; the paper's is dashed and hollow."""
    height, bottom, right = 334.0 if beside else 318.0, 252.0, 268.0
    canvas = Canvas(comparison.title, height)
    curves = list(_curves(comparison, beside))
    values = [value for _, _, points in curves for _, value in points]
    ends = [end for value in values for end in interval_ends(value)]
    y = scale_over(min(ends), max(ends), bottom, 30)
    places = [column.x or 0.0 for column in comparison.columns]
    margin = (max(places) - min(places)) / 16
    x = Scale(min(places) - margin, max(places) + margin, 34, right)
    draw_axes(canvas, x, y, comparison.x_title, "test accuracy, %")
    for method, source, points in curves:
        _draw(canvas, x, y, method, source, points, places)
    # A label stands where a curve ends at the right edge, if one does.
    by_end = sorted(curves, key=lambda curve: curve[2][-1][0] == max(places))
    labels = {method: y(100 * points[-1][1].mean) for method, _, points in by_end}
    for method, place in zip(labels, spread(list(labels.values()), 14), strict=True):
        canvas.text(right + 6, place + 4, method, method, bold=True)
    if beside:
        canvas.text(0, height - 18, f"square and dots: {beside.label}", "soft")
    canvas.text(0, height - 2, "dot and line: ours; diamond and dashes: the paper's", "soft")
    caption = "Mean over peers and seeds with the 95 % interval over seeds; the paper's dashed."
    return Chart(comparison.name, caption, canvas.svg(), *_numbers(comparison, beside))


Points = list[tuple[float, Interval]]


def _curves(comparison: Comparison, beside: Beside | None) -> Iterator[tuple[MethodName, Source, Points]]:
    """The curves as (method, source, points), the paper's first, so that ours are drawn over them."""
    methods = dict.fromkeys(finding.method for _, finding in comparison.findings)
    sources: tuple[Source, ...] = ("paper", "beside", "ours") if beside else ("paper", "ours")
    for source in sources:
        for method in methods:
            points = [
                (column.x or 0.0, value)
                for column in comparison.columns
                for finding in column.findings
                if finding.method == method and (value := _values(column.label, finding, beside)[source])
            ]
            if points:
                yield method, source, points


_DASHES: dict[Source, str] = {"paper": "4 4", "beside": "1 3", "ours": ""}


def _draw(
    canvas: Canvas, x: Scale, y: Scale, method: MethodName, source: Source, points: Points, places: Sequence[float]
) -> None:
    """Draw the curve of one method and source. No line crosses a place that was not run."""
    known, wide = dict(points), 2.0 if source == "ours" else 1.2
    for here, there in pairwise(places):
        if here in known and there in known:
            line = [(x(at), y(100 * known[at].mean)) for at in (here, there)]
            canvas.path(line, method, wide, _DASHES[source])
    for at, value in points:
        low, high = interval_ends(value)
        if value.half_width is not None:
            canvas.line(x(at), y(low), x(at), y(high), method, wide)
        for single in value.values:  # too few for an interval
            canvas.line(x(at) - 4, y(100 * single), x(at) + 4, y(100 * single), method, wide)
        draw_mark(canvas, x(at), y(100 * value.mean), method, _MARKS[source])


def _maps(exhibit: Exhibit, comparison: Comparison, store: RunStore) -> list[Chart]:
    """Figure 2: a merge map for each method, all on one scale."""
    column = exhibit.columns[0]
    settings = column.settings(comparison.changed)
    runs = [run for m in column.methods for run in store.runs(settings, m, comparison.planned_seeds[:1])]
    maps = [merges for run in runs if (merges := merge_map(run, cells=settings.scenario.peers))]
    most = max((float(merges.mean.max()) for merges in maps), default=1.0)
    charts = [merge_chart(merges, most) for merges in maps]
    return [
        Chart(f"{exhibit.name}-{merges.method}", chart.caption, chart.svg, chart.columns, chart.rows)
        for merges, chart in zip(maps, charts, strict=True)
    ]


def _numbers(comparison: Comparison, beside: Beside | None = None) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    """The numbers of a comparison as a table for other programs: a row for each number of ours, and of the results
    beside it."""
    columns = (
        "source", "setting", "method", "quantity", "seeds", "mean", "half_width_95", "paper", "paper_half_width_95",
        "verdict", "detectable", "models_received", "bytes_received", "forward_passes",
    )  # fmt: skip
    sources = [("ours", comparison)] + ([(beside.label, beside.comparison)] if beside else [])
    rows: list[Row] = []
    for name, each in sources:
        for label, finding in each.findings:
            mean, paper, cost = finding.ours, finding.paper, finding.cost
            rows.append(
                (
                    name,
                    label,
                    finding.method,
                    finding.quantity,
                    len(finding.seeds),
                    mean.mean if mean else None,
                    mean.half_width if mean else None,
                    paper.mean if paper else None,
                    paper.half_width if paper else None,
                    str(finding.verdict),
                    finding.verdict.detectable,
                    cost.models_received if cost else None,
                    cost.bytes_received if cost else None,
                    cost.work if cost else None,
                )
            )
    return columns, tuple(rows)

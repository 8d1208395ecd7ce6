"""Tables and figures as pictures, and their numbers as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from pens.config import Method
from pens.metrics import Interval
from pens.report.charts.merges import merge_chart
from pens.report.course import merge_map
from pens.report.panel import Chart, Row, as_csv, draw_axes, draw_columns, draw_interval, interval_ends
from pens.report.svg import Canvas, Scale, scale_over, spread, standalone
from pens.reproduce.compare import ColumnFindings, Comparison, Finding, complete_runs
from pens.reproduce.keep import write_text
from pens.reproduce.plan import Exhibit, exhibits
from pens.reproduce.store import RunStore


def write_files(comparison: Comparison, store: RunStore, folder: Path) -> list[Path]:
    """Pictures and numbers."""
    files = {f"{comparison.name}.csv": as_csv(*_numbers(comparison))}
    charts = _charts(comparison, store)
    for chart in charts:
        if chart.name != comparison.name:
            files[f"{chart.name}.csv"] = as_csv(chart.columns, chart.rows)
    return [*_write(folder, files), *_write(folder, _drawn(charts))]


def write_pictures(comparison: Comparison, store: RunStore, folder: Path) -> list[Path]:
    """Pictures alone."""
    return _write(folder, _drawn(_charts(comparison, store)))


def _drawn(charts: Iterable[Chart]) -> dict[str, str]:
    return {f"{chart.name}.svg": standalone(chart.svg) for chart in charts}


def _write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / name for name in files]


def _charts(comparison: Comparison, store: RunStore) -> list[Chart]:
    """Maps of merges are drawn from the runs themselves, those that are there."""
    if comparison.x_title:
        return [curve_chart(comparison)]
    exhibit = exhibits([comparison.name])[0]
    if any(cell.quantity == "own kind" for column in exhibit.columns for cell in column.cells):
        return _maps(exhibit, comparison, store)
    return [table_chart(comparison)]


def table_chart(comparison: Comparison) -> Chart:
    """A table, a row for each number: ours a dot with its 95 % interval, below it the paper's, hollow."""
    step, first, left, width, right = 26.0, 48.0, 152.0, 560.0, 380.0
    height = first + 60 + step * sum(len(c.findings) + _has_heading(c) for c in comparison.columns)
    canvas = Canvas(comparison.title, height, width)
    values = [value for _, finding in comparison.findings for value in (finding.ours, finding.paper) if value]
    ends = [end for value in values for end in interval_ends(value)]
    x = scale_over(min(ends), max(ends), left, right)
    quantities = {finding.quantity for _, finding in comparison.findings}
    canvas.text(0, 14, comparison.title, bold=True)
    draw_columns(canvas, x, first, height - 60, "test accuracy, %" if quantities == {"accuracy"} else "%")
    for at, words in ((width - 90, "ours"), (width, "paper")):
        canvas.text(at, first - 8, words, "soft", "end")
    top = first
    for column in comparison.columns:
        if _has_heading(column):
            canvas.text(0, top + 17, column.label, "ink", halo=True)
            top += step
        for finding in column.findings:
            _draw_row(canvas, x, top + 13, finding, _row_name(column, finding))
            top += step
    canvas.text(0, height - 2, "dot: ours, diamond: the paper's, each with its 95 % interval over seeds", "soft")
    return Chart(
        comparison.name, "Ours and the paper's, with 95 % intervals over seeds.", canvas.svg(), *_numbers(comparison)
    )


def _has_heading(column: ColumnFindings) -> bool:
    return len(column.findings) > 1


def _row_name(column: ColumnFindings, finding: Finding) -> str:
    if not _has_heading(column):
        return column.label
    return finding.method if finding.quantity == "accuracy" else finding.quantity


def _draw_row(canvas: Canvas, x: Scale, y: float, finding: Finding, name: str) -> None:
    canvas.text(12, y + 4, name, finding.method, bold=True)
    for value, of_paper in ((finding.paper, True), (finding.ours, False)):
        if value:
            colour, below = ("soft", 5) if of_paper else (finding.method, -4)
            draw_interval(canvas, x, y + below, value, colour, of_paper)
        words = value.percent() if value else "–" if of_paper else "not run"
        strong = bool(value) and not of_paper
        place = canvas.width if of_paper else canvas.width - 90
        canvas.text(place, y + 4, words, "ink" if strong else "soft", "end", bold=strong)


def curve_chart(comparison: Comparison) -> Chart:
    """Figure 1: accuracy of each method along an axis with its 95 % interval, and the paper's, dashed and hollow."""
    height, bottom, right = 318.0, 252.0, 268.0
    canvas = Canvas(comparison.title, height)
    curves = list(_curves(comparison))
    values = [value for _, _, points in curves for _, value in points]
    ends = [end for value in values for end in interval_ends(value)]
    y = scale_over(min(ends), max(ends), bottom, 30)
    places = [column.x or 0.0 for column in comparison.columns]
    margin = (max(places) - min(places)) / 16
    x = Scale(min(places) - margin, max(places) + margin, 34, right)
    draw_axes(canvas, x, y, comparison.x_title, "test accuracy, %")
    for method, of_paper, points in curves:
        _draw(canvas, x, y, method, of_paper, points, places)
    by_end = sorted(curves, key=lambda curve: curve[2][-1][0] == max(places))  # a curve that ends at the edge decides
    labels = {method: y(100 * points[-1][1].mean) for method, _, points in by_end}
    for method, place in zip(labels, spread(list(labels.values()), 14), strict=True):
        canvas.text(right + 6, place + 4, method, method, bold=True)
    canvas.text(0, height - 2, "dot and line: ours; diamond and dashes: the paper's", "soft")
    caption = "Mean over peers and seeds with the 95 % interval over seeds; the paper's dashed."
    return Chart(comparison.name, caption, canvas.svg(), *_numbers(comparison))


Points = list[tuple[float, Interval]]


def _curves(comparison: Comparison) -> Iterator[tuple[Method, bool, Points]]:
    """(method, whether the paper's, points), the paper's first: ours are drawn over them."""
    methods = dict.fromkeys(finding.method for _, finding in comparison.findings)
    for of_paper in (True, False):
        for method in methods:
            points = [
                (column.x or 0.0, value)
                for column in comparison.columns
                for finding in column.findings
                if finding.method == method and (value := finding.paper if of_paper else finding.ours)
            ]
            if points:
                yield method, of_paper, points


def _draw(
    canvas: Canvas, x: Scale, y: Scale, method: Method, of_paper: bool, points: Points, places: Sequence[float]
) -> None:
    """No line leads over a place in between that was not run."""
    known = dict(points)
    for here, there in pairwise(places):
        if here in known and there in known:
            line = [(x(at), y(100 * known[at].mean)) for at in (here, there)]
            canvas.path(line, method, 1.2 if of_paper else 2.0, "4 4" * of_paper)
    for at, value in points:
        low, high = interval_ends(value)
        canvas.line(x(at), y(low), x(at), y(high), method, 1.2 if of_paper else 2.0)
        if of_paper:
            canvas.diamond(x(at), y(100 * value.mean), method, 4)
        else:
            canvas.dot(x(at), y(100 * value.mean), method, 3.5)


def _maps(exhibit: Exhibit, comparison: Comparison, store: RunStore) -> list[Chart]:
    """Figure 2: a map for each method, all on one scale."""
    column = exhibit.columns[0]
    settings = column.settings(comparison.changed)
    runs = [run for m in column.methods for run in complete_runs(store, settings, m, comparison.planned_seeds[:1])]
    maps = [found for run in runs if (found := merge_map(run, cells=settings.scenario.peers))]
    most = max((float(found.mean.max()) for found in maps), default=1.0)
    charts = [merge_chart(found, most) for found in maps]
    return [
        Chart(f"{exhibit.name}-{found.method}", chart.caption, chart.svg, chart.columns, chart.rows)
        for found, chart in zip(maps, charts, strict=True)
    ]


def _numbers(comparison: Comparison) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    columns = (
        "setting", "method", "quantity", "seeds", "ours", "half_width_95", "paper", "paper_half_width_95", "verdict",
    )  # fmt: skip
    rows: list[Row] = []
    for label, finding in comparison.findings:
        ours, paper = finding.ours, finding.paper
        rows.append(
            (
                label,
                finding.method,
                finding.quantity,
                len(finding.seeds),
                ours.mean if ours else None,
                ours.half_width if ours else None,
                paper.mean if paper else None,
                paper.half_width if paper else None,
                finding.verdict,
            )
        )
    return columns, tuple(rows)

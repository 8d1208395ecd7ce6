# SPDX-License-Identifier: Apache-2.0
"""The findings of a comparison as one picture: of each method the mean with its interval, and its worst cluster."""

from __future__ import annotations

from pathlib import Path

from pens.comparing.kept import NAME, to_csv, to_json
from pens.comparing.results import Findings, Measured, MethodFindings, ScenarioFindings
from pens.measuring.metrics import Interval
from pens.report.panel import draw_columns, draw_interval, draw_mark, interval_ends
from pens.report.raster import write_png
from pens.report.svg import Canvas, Scale, scale_over, standalone
from pens.storage.files import replace_file, write_json

_LEFT, _PLOT, _NUMBERS = 96.0, 234.0, 230.0
"""The widths of the names, at the least, of the axis, and of the numbers."""
_STEP, _HEAD, _FOOT = 21.0, 40.0, 50.0
_LETTER = 8.2  # about what a bold letter takes
_TEXTS: dict[Measured, float] = {"score": 96.0, "worst_cluster": 166.0, "fair": 226.0}
"""Where the numbers of each column end, from the end of the axis."""


def write_files(found: Findings, folder: Path) -> list[Path]:
    """Write the findings as JSON, CSV, SVG and PNG into a folder, and return the files."""
    picture = standalone(findings_picture(found), found.methods)
    json_file, csv_file, svg_file, png_file = (folder / f"{NAME}.{ending}" for ending in ("json", "csv", "svg", "png"))
    write_json(json_file, to_json(found))
    for path, text in ((csv_file, to_csv(found)), (svg_file, picture)):
        replace_file(path, lambda place, text=text: place.write_text(text, encoding="utf-8"))  # type: ignore[misc]
    replace_file(png_file, lambda place: write_png(picture, place))
    return [json_file, csv_file, svg_file, png_file]


def findings_picture(found: Findings) -> str:
    """A panel for each scenario, one below the other, as SVG."""
    shown = [scenario for scenario in found.scenarios if any(each.seeds for each in scenario.methods)]
    height = sum(map(_height, shown)) + 18
    left = max(_LEFT, 12 + _LETTER * max(map(len, found.methods), default=0))
    canvas = Canvas(f"{found.name}: each method in each scenario", height, left + _PLOT + _NUMBERS)
    top = 0.0
    for scenario in shown:
        _draw_panel(canvas, scenario, top, left)
        top += _height(scenario)
    canvas.text(0, height - 3, "dot: mean over peers, 95 % interval over seeds; square: the worst cluster", "soft")
    return canvas.svg()


def _known(scenario: ScenarioFindings) -> list[MethodFindings]:
    return [each for each in scenario.methods if each.seeds]


def _height(scenario: ScenarioFindings) -> float:
    return _HEAD + _STEP * len(_known(scenario)) + _FOOT


def _draw_panel(canvas: Canvas, scenario: ScenarioFindings, top: float, left: float) -> None:
    methods, measure = _known(scenario), scenario.measure
    sizes = ", ".join(f"{name} ({size})" for name, size in scenario.clusters.items())
    canvas.text(0, top + 14, scenario.name, bold=True, size=13)
    words = f"{scenario.num_peers:,} peers{', ' if sizes else ''}{sizes}"
    canvas.text(max(left, 12 + _LETTER * len(scenario.name)), top + 14, words, "soft")
    x = _scale(scenario, methods, left)
    heads: dict[Measured, str] = {"score": measure.name, "worst_cluster": "worst cl.", "fair": "fair"}
    for name, at in _TEXTS.items():
        if any(each.over_seeds(name, measure) for each in methods):
            canvas.text(x.end + at, top + 32, heads[name], "soft", "end")
    bottom = top + _HEAD + _STEP * len(methods)
    better = "" if measure.higher_is_better else ", lower is better"
    draw_columns(canvas, x, top + _HEAD - 4, bottom + 2, f"test {measure.label(comma=True)}{better}")
    for place, each in enumerate(methods):
        _draw_row(canvas, x, top + _HEAD + _STEP * (place + 0.5), each, scenario)


def _scale(scenario: ScenarioFindings, methods: list[MethodFindings], left: float) -> Scale:
    shown = [of for each in methods for of in (_score(each, scenario), _worst(each, scenario)) if of]
    ends = [end for of in shown for end in interval_ends(of)]
    return scale_over(min(ends), max(ends), left, left + _PLOT)


def _score(each: MethodFindings, scenario: ScenarioFindings) -> Interval | None:
    return each.over_seeds("score", scenario.measure)


def _worst(each: MethodFindings, scenario: ScenarioFindings) -> Interval | None:
    """The worst cluster without its interval, which would hide that of all peers."""
    found = each.over_seeds("worst_cluster", scenario.measure)
    return Interval(found.mean, None, measure=found.measure) if found else None


def _draw_row(canvas: Canvas, x: Scale, y: float, each: MethodFindings, scenario: ScenarioFindings) -> None:
    canvas.text(0, y + 4, each.method, each.method, bold=True)
    score, worst = _score(each, scenario), _worst(each, scenario)
    fair = each.over_seeds("fair", scenario.measure)
    if score is None:
        return
    if worst:
        at = x(scenario.measure.scale * worst.mean)
        canvas.line(at, y, x(scenario.measure.scale * score.mean), y, each.method, 0.8)
        draw_mark(canvas, at, y, each.method, "square")
        canvas.text(x.end + _TEXTS["worst_cluster"], y + 4, worst.short(), "soft", "end")
    draw_interval(canvas, x, y, score, each.method, "dot")
    canvas.text(x.end + _TEXTS["score"], y + 4, score.short(), "ink", "end", bold=True)
    if fair:
        canvas.text(
            x.end + _TEXTS["fair"], y + 4, Interval(fair.mean, None, measure=fair.measure).short(), "soft", "end"
        )

# SPDX-License-Identifier: Apache-2.0
"""The findings of a comparison as one picture: of each method the mean with its interval, and its worst cluster."""

from __future__ import annotations

from pathlib import Path

from pens.comparing.kept import NAME, to_csv, to_json
from pens.comparing.results import Findings, MethodFindings, ScenarioFindings
from pens.measuring.metrics import Interval
from pens.report.panel import draw_columns, draw_interval, draw_mark, interval_ends
from pens.report.raster import write_png
from pens.report.svg import Canvas, Scale, scale_over, standalone
from pens.storage.files import replace_file, write_json

_LEFT, _RIGHT, _WIDTH = 96.0, 330.0, 560.0
_STEP, _HEAD, _FOOT = 21.0, 40.0, 50.0
_TEXTS = {"score": _RIGHT + 96, "worst_cluster": _RIGHT + 166, "fair": _RIGHT + 226}
"""Where the numbers of each column end."""


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
    canvas = Canvas(f"{found.name}: each method in each scenario", height, _WIDTH)
    top = 0.0
    for scenario in shown:
        _draw_panel(canvas, scenario, top)
        top += _height(scenario)
    canvas.text(0, height - 3, "dot: mean over peers, 95 % interval over seeds; square: the worst cluster", "soft")
    return canvas.svg()


def _known(scenario: ScenarioFindings) -> list[MethodFindings]:
    return [each for each in scenario.methods if each.seeds]


def _height(scenario: ScenarioFindings) -> float:
    return _HEAD + _STEP * len(_known(scenario)) + _FOOT


def _draw_panel(canvas: Canvas, scenario: ScenarioFindings, top: float) -> None:
    methods, measure = _known(scenario), scenario.measure
    sizes = ", ".join(f"{name} ({size})" for name, size in scenario.clusters.items())
    canvas.text(0, top + 14, scenario.name, bold=True, size=13)
    canvas.text(_LEFT, top + 14, f"{scenario.num_peers:,} peers{', ' if sizes else ''}{sizes}", "soft")
    heads = {"score": measure.name, "worst_cluster": "worst cl.", "fair": "fair"}
    for name, at in _TEXTS.items():
        if name == "score" or any(each.over_seeds(name, measure) for each in methods):  # type: ignore[arg-type]
            canvas.text(at, top + 32, heads[name], "soft", "end")
    x = _scale(scenario, methods)
    bottom = top + _HEAD + _STEP * len(methods)
    better = "" if measure.higher_is_better else ", lower is better"
    draw_columns(canvas, x, top + _HEAD - 4, bottom + 2, f"test {measure.label(comma=True)}{better}")
    for place, each in enumerate(methods):
        _draw_row(canvas, x, top + _HEAD + _STEP * (place + 0.5), each, scenario)


def _scale(scenario: ScenarioFindings, methods: list[MethodFindings]) -> Scale:
    shown = [of for each in methods for of in (_score(each, scenario), _worst(each, scenario)) if of]
    ends = [end for of in shown for end in interval_ends(of)]
    return scale_over(min(ends), max(ends), _LEFT, _RIGHT)


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
        canvas.text(_TEXTS["worst_cluster"], y + 4, worst.short(), "soft", "end")
    draw_interval(canvas, x, y, score, each.method, "dot")
    canvas.text(_TEXTS["score"], y + 4, score.short(), "ink", "end", bold=True)
    if fair:
        canvas.text(_TEXTS["fair"], y + 4, Interval(fair.mean, None, measure=fair.measure).short(), "soft", "end")

# SPDX-License-Identifier: Apache-2.0
"""Writes one HTML page about one or several experiments, and a folder with its pictures as SVG and their numbers as
CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined, Template

from pens.errors import ReportError
from pens.report.glossary import glossary
from pens.report.headline import missing, overview, side_by_side, title, verdict, what_was_run
from pens.report.panel import Chart, as_csv
from pens.report.section import ReportSection
from pens.report.sections.accuracy import accuracy_section
from pens.report.sections.costs import costs_section
from pens.report.sections.curves import curves_section
from pens.report.sections.merges import merges_section
from pens.report.sections.neighbours import neighbours_section
from pens.report.sections.peers import peers_section
from pens.report.sections.settings import settings_section
from pens.report.sections.significance import significance_section
from pens.report.study import Study, read_studies
from pens.report.svg import palette, standalone
from pens.version import VERSION

_GENERATOR = "pens report"
_SECTIONS = (
    accuracy_section,
    curves_section,
    merges_section,
    neighbours_section,
    peers_section,
    costs_section,
    significance_section,
    settings_section,
)


@dataclass(frozen=True)
class StudyView:
    """An experiment as the page shows it."""

    name: str
    id: str
    """The anchor of the experiment on the page, which also begins the names of its files."""
    files: str
    """The beginning of the addresses of its files."""
    verdict: str
    what: str
    missing: str
    sections: tuple[ReportSection, ...]

    @property
    def charts(self) -> list[Chart]:
        return [chart for section in self.sections for chart in section.charts]


def write_report(folders: Sequence[Path], out: Path) -> list[Path]:
    """Read run directories, write the page, and return all files written, the page first."""
    _check_place(out)
    studies = read_studies(folders)
    folder = out.with_name(f"{out.stem}_files")
    views = _views(studies, folder.name)
    compared = overview(studies) if len(studies) > 1 else None
    methods = tuple(dict.fromkeys(method for study in studies for method in study.methods))
    light, dark = palette(methods)
    files: dict[Path, str] = {}
    for view in views:
        for chart in view.charts:
            stem = folder / f"{view.id}-{chart.name}"
            files[stem.with_name(f"{stem.name}.svg")] = standalone(chart.svg, methods)
            files[stem.with_name(f"{stem.name}.csv")] = as_csv(chart.columns, chart.rows)
    if compared:
        files[folder / "overview.csv"] = as_csv(compared.columns, compared.rows)
    page = _template().render(
        title=f"pens: {title(studies)}",
        folders=", ".join(study.name for study in studies),
        lead=side_by_side(studies),
        glossary=glossary(studies),
        generator=_GENERATOR,
        studies=views,
        overview=compared,
        overview_file=quote(f"{folder.name}/overview.csv"),
        light=light,
        dark=dark,
        version=VERSION,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in {out: page, **files}.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReportError(f"{out}: cannot be written: {error.strerror or error}") from None
    return [out, *files]


def _check_place(out: Path) -> None:
    """Refuse to write over anything but an older report."""
    if out.is_dir():
        raise ReportError(f"{out} is a folder: name a file for the page, for instance --out {out / 'report.html'}")
    try:
        if out.exists() and f'content="{_GENERATOR}"' not in out.read_text(encoding="utf-8", errors="replace"):
            raise ReportError(f"{out} already exists and is not a report: choose another --out")
    except OSError as error:
        raise ReportError(f"{out}: cannot be written: {error.strerror or error}") from None


def _views(studies: Sequence[Study], folder: str) -> list[StudyView]:
    views: list[StudyView] = []
    for number, study in enumerate(studies, 1):
        word = re.sub(r"[^A-Za-z0-9]+", "-", study.name).strip("-").lower()
        name = f"{number}-{word}" if len(studies) > 1 else word or "run"
        place = quote(f"{folder}/{name}-")
        if study.runs:
            views.append(
                StudyView(
                    study.name,
                    name,
                    place,
                    verdict(study),
                    what_was_run(study),
                    missing(study),
                    tuple(section(study) for section in _SECTIONS),
                )
            )
        else:
            views.append(StudyView(study.name, name, place, "", "", missing(study), ()))
    return views


def _template() -> Template:
    text = resources.files("pens.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters["words"] = _unbroken
    return environment.from_string(text)


def _unbroken(text: str) -> str:
    """Insert no-break spaces, so that numbers keep their ± and their units at the end of a line."""
    text = text.replace(" ± ", "\u00a0±\u00a0")
    return re.sub(r"(?<=[0-9]) (?=%|[kMG]?B\b)", "\u00a0", text)

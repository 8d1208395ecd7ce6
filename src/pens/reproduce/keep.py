"""Results small enough to be committed: one JSON file for each table or figure, enough to show the comparison again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pens.errors import ReportError
from pens.metrics import Interval
from pens.reproduce.compare import ColumnFindings, Comparison, Finding

FORMAT = 1
_MADE_BY = "pens reproduce"


def check_place(folder: Path, names: Sequence[str], changed: Mapping[str, Any]) -> None:
    """Refuse a place that cannot be written to, or whose files of these names are others': a trial must not take the
    place of results with the paper's settings."""
    if folder.exists() and not folder.is_dir():
        raise ReportError(f"--keep {folder}: is a file, name a folder")
    for path in (folder / f"{name}.json" for name in names if (folder / f"{name}.json").exists()):
        data = _read(path)
        if data.get("made_by") == _MADE_BY and data.get("changed") != json.loads(json.dumps(dict(changed))):
            raise ReportError(f"{path} holds results with other settings (--set): choose another --keep")
        if data.get("made_by") != _MADE_BY:
            raise ReportError(f"{path} is there already and was not made by pens reproduce: choose another --keep")


def keep(folder: Path, comparison: Comparison, pictures: Sequence[Path] = ()) -> Path:
    """Write one table or figure with its pictures; returns its file."""
    path = folder / f"{comparison.name}.json"
    write_text(path, json.dumps(to_json(comparison), indent=1, ensure_ascii=False) + "\n")
    for picture in pictures:
        write_text(folder / picture.name, picture.read_text(encoding="utf-8"))
    return path


def load(folder: Path, name: str) -> Comparison:
    """What was kept of a table or figure."""
    path = folder / f"{name}.json"
    if not path.is_file():
        raise ReportError(f"{path}: no such file: pens reproduce {name} --keep {folder} writes it")
    try:
        return from_json(_read(path))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(f"{path}: not a result of this version of pens ({error!r})") from None


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Settings that all columns share stand once."""
    shared = _shared([column.settings for column in comparison.columns])
    return {
        "format": FORMAT,
        "made_by": _MADE_BY,
        "name": comparison.name,
        "title": comparison.title,
        "x_title": comparison.x_title,
        "planned_seeds": list(comparison.planned_seeds),
        "changed": dict(comparison.changed),
        "devices": list(comparison.devices),
        "versions": dict(comparison.versions),
        "settings": shared,
        "columns": [_column_json(column, shared) for column in comparison.columns],
    }


def from_json(data: Mapping[str, Any]) -> Comparison:
    """The same again."""
    if data["format"] != FORMAT:
        raise ValueError(f"its format is {data['format']}, not {FORMAT}")
    columns = tuple(
        ColumnFindings(
            column["label"],
            column["x"],
            {**data["settings"], **column["settings"]},
            tuple(_finding(cell) for cell in column["cells"]),
        )
        for column in data["columns"]
    )
    return Comparison(
        data["name"],
        data["title"],
        data["x_title"],
        tuple(data["planned_seeds"]),
        data["changed"],
        columns,
        tuple(data["devices"]),
        data["versions"],
    )


def write_text(path: Path, text: str) -> None:
    """A file in a folder that need not be there yet."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReportError(f"{path}: cannot be written: {error.strerror or error}") from None


def _shared(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in settings[0].items() if all(other[key] == value for other in settings)}


def _column_json(column: ColumnFindings, shared: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "label": column.label,
        "x": column.x,
        "settings": {key: value for key, value in column.settings.items() if key not in shared},
        "cells": [_cell_json(finding) for finding in column.findings],
    }


def _cell_json(finding: Finding) -> dict[str, Any]:
    """`ours` and `verdict` are for readers; they follow from the values."""
    return {
        "method": finding.method,
        "quantity": finding.quantity,
        "ours": asdict(finding.ours) if finding.ours else None,
        "paper": asdict(finding.paper) if finding.paper else None,
        "verdict": finding.verdict,
        "seeds": list(finding.seeds),
        "values": list(finding.values),
        "seconds": round(finding.seconds, 1),
    }


def _finding(cell: Mapping[str, Any]) -> Finding:
    return Finding(
        cell["method"],
        cell["quantity"],
        Interval(**cell["paper"]) if cell["paper"] else None,
        tuple(cell["seeds"]),
        tuple(cell["values"]),
        cell["seconds"],
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path}: cannot be read: {error}") from None
    return data if isinstance(data, dict) else {}

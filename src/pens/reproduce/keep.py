"""Results small enough to be committed: one JSON file for each table or figure, enough to show the comparison again.

A file may be filled in several goes, on several machines: what it holds of other seeds or methods stays, as long as
the settings are the same. What one file holds of a setting counts for all of them, whichever it was run for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from pens.config import SELECTING, CentralSettings, EngineSettings, Method, PensSettings, Settings, flat_values
from pens.errors import ReportError
from pens.metrics import Interval
from pens.reproduce.compare import AND, ColumnFindings, Comparison, Finding
from pens.reproduce.plan import EXHIBITS, Quantity
from pens.runlog import RULES

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
    load_all(folder, changed)


class Kept(NamedTuple):
    """One table or figure that was written."""

    path: Path
    comparison: Comparison
    """All that is in it."""
    left_out: list[str]
    """What was in it before and is not any more: it was run with other settings or rules."""


def keep(folder: Path, comparison: Comparison) -> Kept:
    """Write one table or figure, with what was kept of it before, and of the same settings in others."""
    path, left_out = folder / f"{comparison.name}.json", list[str]()
    if path.is_file():
        before = load(folder, comparison.name)
        comparison = joined(before, comparison)
        now = {(label, _cell(finding)) for label, finding in comparison.findings if finding.values}
        left_out = [
            f"{f.method} ({label})" for label, f in before.findings if f.values and (label, _cell(f)) not in now
        ]
    for other in load_all(folder, comparison.changed):
        if other.name != comparison.name:
            comparison = _with_lent(comparison, other)
    write_text(path, json.dumps(to_json(comparison), indent=1, ensure_ascii=False) + "\n")
    return Kept(path, comparison, left_out)


def load(folder: Path, name: str) -> Comparison:
    """What was kept of a table or figure."""
    path = folder / f"{name}.json"
    if not path.is_file():
        raise ReportError(f"{path}: no such file: pens reproduce {name} --keep {folder} writes it")
    try:
        return from_json(_read(path))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(
            f"{path}: not a result of this version of pens ({error!r}): delete it, or name another folder"
        ) from None


def load_all(folder: Path, changed: Mapping[str, Any]) -> list[Comparison]:
    """All that was kept in a folder with these changes, by the rules of today."""
    there = [path for path in (folder / f"{name}.json" for name in EXHIBITS) if path.is_file()]
    found = [load(folder, path.stem) for path in there if _read(path).get("made_by") == _MADE_BY]
    return [each for each in found if each.rules == RULES and each.changed == json.loads(json.dumps(dict(changed)))]


def kept_seeds(kept: Sequence[Comparison], settings: Settings, method: Method, quantity: Quantity) -> set[int]:
    """The seeds of which files have a number, whichever table they are of."""
    flat = flat_values(settings)
    columns = [column for comparison in kept for column in comparison.columns]
    alike = [column for column in columns if not _unlike(method, column.settings, flat)]
    return {s for column in alike for f in column.findings if _cell(f) == (method, quantity) for s in f.seeds}


def joined(kept: Comparison, new: Comparison) -> Comparison:
    """Both, cell by cell; where both have a seed, the new one. What was run with other settings does not stay."""
    older = {column.label: column for column in kept.columns} if kept.rules == new.rules else {}
    columns = tuple(_all_cells(older[c.label], c) if c.label in older else c for c in new.columns)
    if columns == new.columns:
        return new
    seeds = tuple(sorted({*kept.planned_seeds, *new.planned_seeds}))
    return replace(_of_both_machines(kept, new), planned_seeds=seeds, columns=columns)


def _with_lent(comparison: Comparison, other: Comparison) -> Comparison:
    """With what another table or figure has of the same settings."""
    columns = comparison.columns
    for lender in other.columns:
        columns = tuple(_lent(column, lender, comparison.planned_seeds) for column in columns)
    if columns == comparison.columns:
        return comparison
    return replace(_of_both_machines(other, comparison), columns=columns)


def _lent(column: ColumnFindings, lender: ColumnFindings, planned: Sequence[int]) -> ColumnFindings:
    """Cells stay those of the column; what it has of a seed is its own."""
    offered = {
        _cell(f): f for f in lender.findings if f.values and not _unlike(f.method, lender.settings, column.settings)
    }
    findings = []
    for finding in column.findings:
        offer = offered.get(_cell(finding))
        missing = offer is not None and {*offer.seeds} & {*planned} - {*finding.seeds}
        findings.append(_all_seeds(_only(offer, missing), finding) if offer and missing else finding)
    return replace(column, findings=tuple(findings))


def _only(finding: Finding, seeds: set[int]) -> Finding:
    values = {seed: value for seed, value in zip(finding.seeds, finding.values, strict=True) if seed in seeds}
    seconds = finding.seconds * len(values) / len(finding.seeds)
    return replace(finding, seeds=tuple(values), values=tuple(values.values()), seconds=seconds)


def _of_both_machines(kept: Comparison, new: Comparison) -> Comparison:
    """The new one, said to be of the devices and versions of both."""
    return replace(
        new,
        devices=tuple(dict.fromkeys([*kept.devices, *new.devices])),
        versions={
            name: AND.join(dict.fromkeys(v for c in (kept, new) for v in c.versions.get(name, "").split(AND) if v))
            for name in {**kept.versions, **new.versions}
        },
    )


def _all_cells(kept: ColumnFindings, new: ColumnFindings) -> ColumnFindings:
    still_holds = {
        _cell(f): f for f in kept.findings if f.values and not _unlike(f.method, kept.settings, new.settings)
    }
    fresh = {_cell(f): f for f in new.findings}
    order = [_cell(f) for f in (kept if len(kept.findings) > len(new.findings) else new).findings]
    cells = [cell for cell in dict.fromkeys([*order, *fresh]) if cell in fresh or cell in still_holds]
    return replace(new, findings=tuple(_all_seeds(still_holds.get(cell), fresh.get(cell)) for cell in cells))


def _cell(finding: Finding) -> tuple[Method, Quantity]:
    return finding.method, finding.quantity


def _unlike(method: Method, kept: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    """Settings that count for a method and differ; one that is not in the kept file was not there to be changed."""
    defaults = flat_values(Settings())
    unlike = {key for key, value in new.items() if kept.get(key, defaults[key]) != value}
    unlike -= EngineSettings.model_fields.keys() - {"precision"}  # as for runs: docs/decisions/0016
    if method != "central":
        unlike -= CentralSettings.model_fields.keys()
    if method not in SELECTING:
        unlike -= PensSettings.model_fields.keys()
    return unlike


def _all_seeds(kept: Finding | None, new: Finding | None) -> Finding:
    found = new or kept
    assert found
    if kept is None or new is None:
        return found
    before = dict(zip(kept.seeds, kept.values, strict=True))
    values = dict(sorted({**before, **dict(zip(new.seeds, new.values, strict=True))}.items()))
    share = len(before.keys() - set(new.seeds)) / len(before)
    return replace(new, seeds=tuple(values), values=tuple(values.values()), seconds=new.seconds + share * kept.seconds)


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Settings that all columns share stand once."""
    shared = _shared([column.settings for column in comparison.columns])
    return {
        "format": FORMAT,
        "made_by": _MADE_BY,
        "name": comparison.name,
        "title": comparison.title,
        "x_title": comparison.x_title,
        "rules": comparison.rules,
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
        data.get("rules", 1),
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

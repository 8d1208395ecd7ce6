# SPDX-License-Identifier: Apache-2.0
"""Results small enough to be committed: one JSON file for each table or figure, enough to show the comparison again.

A file may be filled in several goes, on several machines: what it holds of other seeds or methods stays, as long as
the settings are the same. What one file holds of a setting counts for all of them, whichever it was run for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pens import parts
from pens.errors import ReportError
from pens.measuring.metrics import Interval
from pens.measuring.results import Spending
from pens.methods.names import settings_without_effect
from pens.paper.exhibits import EXHIBITS, Quantity
from pens.reproduce.compare import AND, ColumnFindings, Comparison, Finding, as_kept, is_wanted
from pens.settings.keys import flat_name, flat_values
from pens.settings.schema import EngineSettings
from pens.settings.tree import MethodName, Settings
from pens.storage.runlog import RULES

FORMAT = 1
_MADE_BY = "pens reproduce"
_DEFAULTS = flat_values(Settings())


def check_place(folder: Path, names: Sequence[str], changed: Mapping[str, Any]) -> None:
    """Refuse a place that cannot be written to, or whose files of these names are others': a trial must not take the
    place of results with the paper's settings."""
    if folder.exists() and not folder.is_dir():
        raise ReportError(f"--keep {folder}: is a file, name a folder")
    for path in (folder / f"{name}.json" for name in names if (folder / f"{name}.json").exists()):
        data = _read(path)
        if data.get("made_by") == _MADE_BY and data.get("changed") != as_kept(changed):
            raise ReportError(f"{path} holds results with other settings (--set): choose another --keep")
        if data.get("made_by") != _MADE_BY:
            raise ReportError(f"{path} is there already and was not made by pens reproduce: choose another --keep")
    load_all(folder, changed)


class Kept(NamedTuple):
    """One table or figure with all that is known of it."""

    path: Path
    comparison: Comparison
    left_out: list[str]
    """What was in the file before and has no place any more: it was run with other settings or rules."""


def together(folder: Path, comparison: Comparison) -> Kept:
    """One table or figure with what is kept of it, and of the same settings in others. Writes nothing."""
    path = folder / f"{comparison.name}.json"
    before = load(folder, comparison.name) if path.is_file() else None
    found = joined(load_all(folder, comparison.changed), comparison)
    return Kept(path, found, _left_out(before, found) if before else [])


def write(kept: Kept) -> None:
    """As a file."""
    write_text(kept.path, json.dumps(to_json(kept.comparison), indent=1, ensure_ascii=False) + "\n")


def keep(folder: Path, comparison: Comparison) -> Kept:
    """Both."""
    kept = together(folder, comparison)
    write(kept)
    return kept


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


def load_beside(folder: Path, name: str) -> Comparison | None:
    """What was kept of a table or figure by other rules, to be shown beside; None where that folder has none of it."""
    if not folder.is_dir():
        raise ReportError(f"--beside {folder}: no such folder: name one that --keep wrote")
    return load(folder, name) if (folder / f"{name}.json").is_file() else None


def load_all(folder: Path, changed: Mapping[str, Any]) -> list[Comparison]:
    """All that was kept in a folder with these changes, by the rules of today."""
    there = [path for path in (folder / f"{name}.json" for name in EXHIBITS) if path.is_file()]
    found = [load(folder, path.stem) for path in there if _read(path).get("made_by") == _MADE_BY]
    return [each for each in found if each.rules == RULES and each.changed == as_kept(changed)]


def outdated(kept: Comparison) -> list[str]:
    """What would come out otherwise today, and why, a line each."""
    if kept.rules != RULES:
        return [f"kept by rules {kept.rules}, today's are {RULES}"]
    found = []
    planned = {column.label: column for column in EXHIBITS[kept.name].columns}
    for column in (column for column in kept.columns if column.label in planned):
        today = flat_values(planned[column.label].settings(kept.changed).explicit)
        for f in (f for f in column.findings if f.values):
            unlike = [
                f"{key} = {column.settings.get(key, _DEFAULTS.get(key))}, today {today.get(key)}"
                for key in sorted(_unlike(f.method, column.settings, today))
            ]
            if unlike:
                found.append(f"{f.method} ({column.label}) was run with {'; '.join(unlike)}")
    return list(dict.fromkeys(found))


def kept_seeds(
    kept: Sequence[Comparison], settings: Mapping[str, Any], method: MethodName, quantity: Quantity
) -> set[int]:
    """The seeds of which there is a number for these settings, whichever table it is of."""
    return {seed for each in kept for f in _alike(each, settings, method, quantity) for seed in f.seeds}


def joined(kept: Sequence[Comparison], new: Comparison) -> Comparison:
    """What was found now and what is kept of the same settings, cell by cell. Where several have a seed, the new one
    counts, then the table's own. Other tables lend the seeds that are planned here."""
    own_first = sorted(kept, key=lambda each: each.name != new.name)
    seeds = {seed for each in (*kept, new) if each.name == new.name for seed in each.planned_seeds}
    used: list[Comparison] = []
    columns = []
    for column, planned in zip(new.columns, EXHIBITS[new.name].columns, strict=True):
        here = {_cell(finding): finding for finding in column.findings}
        findings = []
        for cell in planned.cells:
            key = cell.method, cell.quantity
            found = here.get(key, Finding(*key, cell.paper, (), (), 0.0))
            for each in own_first:
                alike, before = _alike(each, column.settings, *key), found
                found = _with_seeds(found, alike, None if each.name == new.name else seeds)
                used += [each] if found != before else []
            if found.values or is_wanted(cell, new.changed):
                findings.append(found)
        columns.append(replace(column, findings=tuple(findings)))
    return replace(_of_all_machines(new, used), planned_seeds=tuple(sorted(seeds)), columns=tuple(columns))


def _left_out(before: Comparison, now: Comparison) -> list[str]:
    """What is not there any more, whatever its column is called."""
    return [
        f"{f.method} ({column.label})"
        for column in before.columns
        for f in column.findings
        if not {*f.seeds} <= kept_seeds([now], column.settings, f.method, f.quantity)
    ]


def _alike(kept: Comparison, settings: Mapping[str, Any], method: MethodName, quantity: Quantity) -> Iterator[Finding]:
    """What there is of a method with these settings."""
    for column in kept.columns:
        if not _unlike(method, column.settings, settings):
            yield from (f for f in column.findings if _cell(f) == (method, quantity) and f.values)


def _with_seeds(found: Finding, others: Iterable[Finding], seeds: set[int] | None) -> Finding:
    """With the seeds that it lacks, of these or of all, and their share of the time."""
    cells, seconds = _by_seed(found), found.seconds
    for other in others:
        lent = {s: v for s, v in _by_seed(other).items() if s not in cells and (seeds is None or s in seeds)}
        cells |= lent
        seconds += other.seconds * len(lent) / len(other.seeds)
    cells = dict(sorted(cells.items()))
    values, spent = tuple(value for value, _ in cells.values()), tuple(each for _, each in cells.values())
    return replace(found, seeds=tuple(cells), values=values, seconds=seconds, spent=spent if any(spent) else ())


def _by_seed(finding: Finding) -> dict[int, tuple[float, Spending | None]]:
    """Seed → its number and what it cost."""
    spent = finding.spent or (None,) * len(finding.seeds)
    return dict(zip(finding.seeds, zip(finding.values, spent, strict=True), strict=True))


def _of_all_machines(new: Comparison, used: Sequence[Comparison]) -> Comparison:
    """The new one, said to be of the devices and versions of all that it has numbers of."""
    sources = [*used, new]
    return replace(
        new,
        devices=tuple(dict.fromkeys(device for each in sources for device in each.devices)),
        versions={
            name: AND.join(dict.fromkeys(v for each in sources for v in each.versions.get(name, "").split(AND) if v))
            for name in {name: None for each in sources for name in each.versions}
        },
    )


def _cell(finding: Finding) -> tuple[MethodName, Quantity]:
    return finding.method, finding.quantity


def _unlike(method: MethodName, kept: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    """Settings that count for a method and differ. One that a file does not have was not there to be changed, and one
    that is no more cannot be."""
    defaults = {**_defaults_of_parts(), **_DEFAULTS}
    unlike = {key for key, value in defaults.items() if kept.get(key, value) != new.get(key, value)}
    unlike -= EngineSettings.model_fields.keys() - {"precision"}  # as for runs: docs/decisions/0016
    return unlike - settings_without_effect([method])


def _defaults_of_parts() -> dict[str, Any]:
    """Of all settings of the sections that parts have."""
    sections = {title: section().model_dump(mode="json") for title, section in parts.sections().items()}
    return {flat_name(title, key): value for title, values in sections.items() for key, value in values.items()}


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
    return {key: value for key, value in settings[0].items() if all(other.get(key) == value for other in settings)}


def _column_json(column: ColumnFindings, shared: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "label": column.label,
        "x": column.x,
        "settings": {key: value for key, value in column.settings.items() if key not in shared},
        "cells": [_cell_json(finding) for finding in column.findings],
    }


def _cell_json(finding: Finding) -> dict[str, Any]:
    """`ours`, `verdict` and `detectable` are for readers; they follow from the values and are not read again."""
    detectable = finding.verdict.detectable
    cell = {
        "method": finding.method,
        "quantity": finding.quantity,
        "ours": _interval_json(finding.ours),
        "paper": _interval_json(finding.paper),
        "verdict": str(finding.verdict),
        "detectable": None if detectable is None else round(detectable, 5),
        "seeds": list(finding.seeds),
        "values": list(finding.values),
        "seconds": round(finding.seconds, 1),
    }
    return {**cell, "spent": [_spent_json(each) for each in finding.spent]} if finding.spent else cell


def _interval_json(value: Interval | None) -> dict[str, float | None] | None:
    return {"mean": value.mean, "half_width": value.half_width} if value else None


def _spent_json(spent: Spending | None) -> dict[str, float | None] | None:
    """Per peer."""
    if spent is None:
        return None
    return {
        "models_received": spent.models_received,
        "bytes_received": spent.bytes_received,
        "forward_passes": spent.work,
    }


def _finding(cell: Mapping[str, Any]) -> Finding:
    return Finding(
        cell["method"],
        "own cluster" if cell["quantity"] == "own kind" else cell["quantity"],  # as older files call it
        Interval(**cell["paper"]) if cell["paper"] else None,
        tuple(cell["seeds"]),
        tuple(cell["values"]),
        cell["seconds"],
        tuple(_spent(each) for each in cell.get("spent", ())),
    )


def _spent(data: Mapping[str, Any] | None) -> Spending | None:
    return Spending(data["models_received"], data["bytes_received"], data["forward_passes"]) if data else None


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path}: cannot be read ({error}): delete it, or name another folder") from None
    return data if isinstance(data, dict) else {}

# SPDX-License-Identifier: Apache-2.0
"""Results small enough to be committed: one JSON file for each table or figure, enough to show the comparison again.

A file may be filled by several commands, on several machines: its results of other seeds or methods stay, as long as
the settings are the same. Results of the same settings are shared by all files, whichever table or figure they were run
for.
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
from pens.planning.versions import joined_versions
from pens.reproduce.compare import ColumnFindings, Comparison, Finding, as_kept, is_wanted
from pens.settings.keys import flat_name, flat_values, names_of_today
from pens.settings.schema import EngineSettings
from pens.settings.tree import MethodName, Settings
from pens.storage.runlog import RULES

FORMAT = 1
_MADE_BY = "pens reproduce"
_DEFAULTS = flat_values(Settings())


def check_place(folder: Path, names: Sequence[str], changed: Mapping[str, Any]) -> None:
    """Refuse a folder that cannot be written to, or whose files of these names hold results with other settings or are
    not from pens: a trial must not replace results with the paper's settings."""
    if folder.exists() and not folder.is_dir():
        raise ReportError(f"--keep {folder} is a file: name a folder")
    for path in (folder / f"{name}.json" for name in names if (folder / f"{name}.json").exists()):
        data = _read(path)
        if data.get("made_by") == _MADE_BY and not _same(data.get("changed", {}), changed):
            raise ReportError(f"{path} holds results with other settings (--set): choose another --keep")
        if data.get("made_by") != _MADE_BY:
            raise ReportError(f"{path} already exists and was not made by pens reproduce: choose another --keep")
    load_all(folder, changed)


class Kept(NamedTuple):
    """One table or figure with all its kept results."""

    path: Path
    comparison: Comparison
    left_out: list[str]
    """The results that the file held before and that are dropped, because they were run with other settings or
    rules."""


def combine(folder: Path, comparison: Comparison) -> Kept:
    """Combine a comparison with kept results of the same settings, from all files. Writes nothing."""
    path = folder / f"{comparison.name}.json"
    before = load(folder, comparison.name) if path.is_file() else None
    result = joined(load_all(folder, comparison.changed), comparison)
    return Kept(path, result, _left_out(before, result) if before else [])


def write(kept: Kept) -> None:
    """Write a table or figure as its JSON file."""
    write_text(kept.path, json.dumps(to_json(kept.comparison), indent=1, ensure_ascii=False) + "\n")


def keep(folder: Path, comparison: Comparison) -> Kept:
    """Combine a comparison with kept results, write its JSON file, and return the path and the contents of the file."""
    kept = combine(folder, comparison)
    write(kept)
    return kept


def load(folder: Path, name: str) -> Comparison:
    """The kept results of a table or figure."""
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
    """The kept results of a table or figure by other rules, to be shown beside ours; None where that folder has
    none."""
    if not folder.is_dir():
        raise ReportError(f"--beside {folder}: no such folder: name one that --keep wrote")
    return load(folder, name) if (folder / f"{name}.json").is_file() else None


def load_all(folder: Path, changed: Mapping[str, Any]) -> list[Comparison]:
    """All results in a folder that were kept with these changes and by today's rules."""
    there = [path for path in (folder / f"{name}.json" for name in EXHIBITS) if path.is_file()]
    loaded = [load(folder, path.stem) for path in there if _read(path).get("made_by") == _MADE_BY]
    return [each for each in loaded if each.rules == RULES and _same(each.changed, changed)]


def _same(kept: Mapping[str, Any], changed: Mapping[str, Any]) -> bool:
    """Whether a file was kept with these changes, whichever names an older version gave to settings."""
    return names_of_today(kept) == names_of_today(as_kept(changed))


def outdated(kept: Comparison) -> list[str]:
    """Which kept results would differ if they were run today, and why, one per line."""
    if kept.rules != RULES:
        return [f"kept by rules {kept.rules}; today's rules are {RULES}"]
    lines = []
    planned = {column.label: column for column in EXHIBITS[kept.name].columns}
    for column in (column for column in kept.columns if column.label in planned):
        today = flat_values(planned[column.label].settings(kept.changed).explicit)
        for f in (f for f in column.findings if f.values):
            unlike = [
                f"{key} = {column.settings.get(key, _DEFAULTS.get(key))}, today {today.get(key)}"
                for key in sorted(_unlike(f.method, column.settings, today))
            ]
            if unlike:
                lines.append(f"{f.method} ({column.label}) was run with {'; '.join(unlike)}")
    return list(dict.fromkeys(lines))


def kept_seeds(
    kept: Sequence[Comparison], settings: Mapping[str, Any], method: MethodName, quantity: Quantity
) -> set[int]:
    """The seeds with a kept number for these settings, in whichever table."""
    return {seed for each in kept for f in _alike(each, settings, method, quantity) for seed in f.seeds}


def joined(kept: Sequence[Comparison], new: Comparison) -> Comparison:
    """Combine new results with kept results of the same settings, cell by cell. If several results have a seed, the new
    one is used, then that of the same table. Other tables only add seeds that are planned here."""
    own_first = sorted(kept, key=lambda each: each.name != new.name)
    seeds = {seed for each in (*kept, new) if each.name == new.name for seed in each.planned_seeds}
    used: list[Comparison] = []
    columns = []
    for column, planned in zip(new.columns, EXHIBITS[new.name].columns, strict=True):
        here = {_cell(each): each for each in column.findings}
        findings = []
        for cell in planned.cells:
            key = cell.method, cell.quantity
            finding = here.get(key, Finding(*key, cell.paper, (), (), 0.0))
            for each in own_first:
                alike, before = _alike(each, column.settings, *key), finding
                finding = _with_seeds(finding, alike, None if each.name == new.name else seeds)
                used += [each] if finding != before else []
            if finding.values or is_wanted(cell, new.changed):
                findings.append(finding)
        columns.append(replace(column, findings=tuple(findings)))
    return replace(_of_all_machines(new, used), planned_seeds=tuple(sorted(seeds)), columns=tuple(columns))


def _left_out(before: Comparison, now: Comparison) -> list[str]:
    """The results of `before` that `now` lacks, whatever their column is called."""
    return [
        f"{f.method} ({column.label})"
        for column in before.columns
        for f in column.findings
        if not {*f.seeds} <= kept_seeds([now], column.settings, f.method, f.quantity)
    ]


def _alike(kept: Comparison, settings: Mapping[str, Any], method: MethodName, quantity: Quantity) -> Iterator[Finding]:
    """The kept findings of a method with these settings."""
    for column in kept.columns:
        if not _unlike(method, column.settings, settings):
            yield from (f for f in column.findings if _cell(f) == (method, quantity) and f.values)


def _with_seeds(finding: Finding, others: Iterable[Finding], seeds: set[int] | None) -> Finding:
    """A finding with seeds that it lacks added from other findings, and with their share of the time. `seeds`: those
    that may be added; None: all."""
    cells, seconds = _by_seed(finding), finding.seconds
    for other in others:
        lent = {s: v for s, v in _by_seed(other).items() if s not in cells and (seeds is None or s in seeds)}
        cells |= lent
        seconds += other.seconds * len(lent) / len(other.seeds)
    cells = dict(sorted(cells.items()))
    values, spent = tuple(value for value, _ in cells.values()), tuple(each for _, each in cells.values())
    return replace(finding, seeds=tuple(cells), values=values, seconds=seconds, spent=spent if any(spent) else ())


def _by_seed(finding: Finding) -> dict[int, tuple[float, Spending | None]]:
    """The value and the cost of each seed."""
    spent = finding.spent or (None,) * len(finding.seeds)
    return dict(zip(finding.seeds, zip(finding.values, spent, strict=True), strict=True))


def _of_all_machines(new: Comparison, used: Sequence[Comparison]) -> Comparison:
    """The new comparison, with the devices and versions of all comparisons that it has numbers of."""
    sources = [*used, new]
    return replace(
        new,
        devices=tuple(dict.fromkeys(device for each in sources for device in each.devices)),
        versions=joined_versions(each.versions for each in sources),
    )


def _cell(finding: Finding) -> tuple[MethodName, Quantity]:
    return finding.method, finding.quantity


def _unlike(method: MethodName, kept: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    """Settings that affect a method and differ. Missing keys mean defaults; removed keys are ignored."""
    defaults = {**_defaults_of_parts(), **_DEFAULTS}
    unlike = {key for key, value in defaults.items() if kept.get(key, value) != new.get(key, value)}
    unlike -= EngineSettings.model_fields.keys() - {"precision"}  # as for runs: docs/decisions/0016
    return unlike - settings_without_effect([method])


def _defaults_of_parts() -> dict[str, Any]:
    """The defaults of all settings in the sections of parts."""
    sections = {title: section().model_dump(mode="json") for title, section in parts.sections().items()}
    return {flat_name(title, key): value for title, values in sections.items() for key, value in values.items()}


def to_json(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON. Settings that all columns share are written once."""
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
    """A comparison from its JSON form."""
    if data["format"] != FORMAT:
        raise ValueError(f"its format is {data['format']}, not {FORMAT}")
    columns = tuple(
        ColumnFindings(
            column["label"],
            column["x"],
            names_of_today({**data["settings"], **column["settings"]}),
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
    """Write a file, and make its folder if it does not exist."""
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
    """A finding as JSON. `ours`, `verdict` and `detectable` are for human readers; they follow from the values and are
    not read back."""
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
    """The cost of one run per peer as JSON."""
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
        "own cluster" if cell["quantity"] == "own kind" else cell["quantity"],  # its name in older files
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

# SPDX-License-Identifier: Apache-2.0
"""What was found beside what the paper found: the numbers, from run directories, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pens.experiment.presets import METHODS_OF, RULES_OF
from pens.measuring.metrics import Interval, interval
from pens.measuring.results import RunResult, Spending, mean_or_none, spec_of, spending
from pens.paper.exhibits import Column, Exhibit, PlannedValue, Quantity
from pens.paper.verdicts import PaperVerdict, compare_with_paper
from pens.report.merge_maps import merged_within
from pens.reproduce.store import RunStore
from pens.settings.keys import flat_values
from pens.settings.tree import MethodName, Settings
from pens.storage.runlog import RULES

AND = " and "
"""Between several versions of a library."""


@dataclass(frozen=True)
class Finding:
    """One cell: ours, seed by seed, and the paper's."""

    method: MethodName
    quantity: Quantity
    paper: Interval | None
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    """As fractions.  [seed]"""
    seconds: float
    """Of all its runs together."""
    spent: tuple[Spending | None, ...] = ()
    """What each run cost per peer; None where that was not kept.  [seed], or empty"""

    @property
    def cost(self) -> Spending | None:
        """What a run cost per peer, mean over seeds; None where that was not kept of all of them."""
        known = [each for each in self.spent if each]
        if not known or len(known) < len(self.values):
            return None
        return Spending(
            fmean(each.models_received for each in known),
            fmean(each.bytes_received for each in known),
            mean_or_none([each.work for each in known]),
        )

    @property
    def name(self) -> str:
        """What its row is called in a table: the method, or precision or recall."""
        return self.quantity if self.quantity in ("precision", "recall") else self.method

    @property
    def ours(self) -> Interval | None:
        return interval(self.values) if self.values else None

    @property
    def verdict(self) -> PaperVerdict:
        return compare_with_paper(self.ours, len(self.seeds), self.paper)


def agreement_counts(findings: Sequence[Finding]) -> tuple[int, int, int]:
    """Of the cells that the paper has: how many do not differ, how many do, and how many cannot be told."""
    verdicts = [finding.verdict for finding in findings if finding.paper]
    same = sum(verdict.agrees for verdict in verdicts)
    differ = sum(verdict.outcome in ("above", "below") for verdict in verdicts)
    return same, differ, len(verdicts) - same - differ


@dataclass(frozen=True)
class ColumnFindings:
    """One setting of a table or figure."""

    label: str
    x: float | None
    settings: Mapping[str, Any]
    """All of them, flat and resolved."""
    findings: tuple[Finding, ...]

    @property
    def has_heading(self) -> bool:
        """Whether it has several rows in a table, below its label; a single one is called by the label."""
        return len(self.findings) > 1


@dataclass(frozen=True)
class Comparison:
    """One table or figure beside the paper's."""

    name: str
    title: str
    x_title: str
    planned_seeds: tuple[int, ...]
    changed: Mapping[str, Any]
    """Settings that are not the paper's, by request."""
    columns: tuple[ColumnFindings, ...]
    devices: tuple[str, ...]
    versions: Mapping[str, str]
    rules: int = RULES

    @property
    def findings(self) -> list[tuple[str, Finding]]:
        return [(column.label, finding) for column in self.columns for finding in column.findings]

    @property
    def is_empty(self) -> bool:
        return not any(finding.values for _, finding in self.findings)


@dataclass(frozen=True)
class Beside:
    """The same tables and figures by other rules, kept in another folder, to be shown between the paper's and ours."""

    label: str
    """Of its column."""
    comparison: Comparison

    def finding(self, label: str, ours: Finding) -> Finding | None:
        """The same cell."""
        for other, finding in self.comparison.findings:
            if (other, finding.method, finding.quantity) == (label, ours.method, ours.quantity):
                return finding
        return None


def whose_rules(changed: Mapping[str, Any]) -> str | None:
    """Whose rules settings that are not ours are, if somebody's: `authors`."""
    return next((name for name, rules in RULES_OF.items() if rules and as_kept(changed) == as_kept(rules)), None)


def as_kept(changed: Mapping[str, Any]) -> dict[str, Any]:
    """Changed settings as they are read from a kept file."""
    kept: dict[str, Any] = json.loads(json.dumps(dict(changed)))
    return kept


def is_wanted(cell: PlannedValue, changed: Mapping[str, Any]) -> bool:
    """Whether a cell belongs to a table or figure even where nothing of it is run: not where the method is ours, or
    missing in the code whose rules are followed."""
    known = METHODS_OF[whose_rules(changed) or "ours"]
    return not cell.ours and (known is None or cell.method in known)


def beside_label(folder: Path, comparison: Comparison) -> str:
    """authors' rules, or the name of the folder"""
    whose = whose_rules(comparison.changed)
    return f"{whose}' rules" if whose else folder.resolve().name


def compare(exhibit: Exhibit, store: RunStore, seeds: Sequence[int], changed: Mapping[str, Any]) -> Comparison:
    """A table or figure, from the runs that are complete."""
    planned = exhibit.seeds(seeds)
    columns, all_runs = [], []
    for column in exhibit.columns:
        settings = column.settings(changed)
        runs = {method: complete_runs(store, settings, method, planned) for method in column.all_methods}
        columns.append(_column(column, settings, runs, changed))
        all_runs += [run for found in runs.values() for run in found]
    return Comparison(
        exhibit.name,
        exhibit.title,
        exhibit.x_title,
        planned,
        dict(changed),
        tuple(columns),
        tuple(dict.fromkeys(run.device for run in all_runs)),
        _versions(all_runs),
    )


def _versions(runs: Sequence[RunResult]) -> dict[str, str]:
    """Of pens and its libraries; several where runs are of different days."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, version in run.versions.items():
            found.setdefault(name, {})[version] = None
    return {name: AND.join(versions) for name, versions in found.items()}


def complete_runs(store: RunStore, settings: Settings, method: MethodName, seeds: Sequence[int]) -> list[RunResult]:
    """A method's runs that are there, one per seed."""
    return [run.read() for seed in seeds if (run := store.complete(settings, method, seed))]


def _column(
    column: Column, settings: Settings, runs: Mapping[MethodName, Sequence[RunResult]], changed: Mapping[str, Any]
) -> ColumnFindings:
    shown = [cell for cell in column.cells if is_wanted(cell, changed) or runs[cell.method]]
    findings = tuple(_finding(cell, runs[cell.method], settings) for cell in shown)
    return ColumnFindings(column.label, column.x, flat_values(settings.explicit), findings)


def _finding(cell: PlannedValue, runs: Sequence[RunResult], settings: Settings) -> Finding:
    found = [(run, value) for run in runs if (value := _measured(run, cell.quantity)) is not None]
    return Finding(
        cell.method,
        cell.quantity,
        cell.paper,
        tuple(run.seed for run, _ in found),
        tuple(value for _, value in found),
        sum(run.seconds for run in runs),
        tuple(spending(run, spec_of(run, settings)) for run, _ in found),
    )


def _measured(run: RunResult, quantity: Quantity) -> float | None:
    if quantity == "accuracy":
        return run.mean_accuracy
    if quantity == "own cluster":
        return merged_within(run)
    return getattr(run.agreement, quantity) if run.agreement else None

# SPDX-License-Identifier: Apache-2.0
"""Compares our numbers with the paper's, cell by cell. The numbers come from run directories alone."""

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
from pens.planning.store import RunStore
from pens.planning.versions import joined_versions
from pens.report.merge_maps import merged_within
from pens.settings.keys import flat_values
from pens.settings.tree import MethodName, Settings
from pens.storage.runlog import RULES


@dataclass(frozen=True)
class Finding:
    """One cell of a table: our values, seed by seed, and the paper's value."""

    method: MethodName
    quantity: Quantity
    paper: Interval | None
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    """Our values, as fractions.  [seed]"""
    seconds: float
    """The seconds that all its runs took together."""
    spent: tuple[Spending | None, ...] = ()
    """The cost of each run per peer; None where it was not kept.  [seed], or empty"""

    @property
    def cost(self) -> Spending | None:
        """The mean cost of a run per peer, over seeds; None unless it was kept for every seed."""
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
        """The name of its row in a table: the method, or precision or recall."""
        return self.quantity if self.quantity in ("precision", "recall") else self.method

    @property
    def ours(self) -> Interval | None:
        return interval(self.values) if self.values else None

    @property
    def verdict(self) -> PaperVerdict:
        return compare_with_paper(self.ours, len(self.seeds), self.paper)


def agreement_counts(findings: Sequence[Finding]) -> tuple[int, int, int]:
    """The numbers of the paper's cells that do not differ from ours, that differ, and that cannot be compared."""
    verdicts = [finding.verdict for finding in findings if finding.paper]
    same = sum(verdict.agrees for verdict in verdicts)
    differ = sum(verdict.outcome in ("above", "below") for verdict in verdicts)
    return same, differ, len(verdicts) - same - differ


@dataclass(frozen=True)
class ColumnFindings:
    """The findings of one setting of a table or figure."""

    label: str
    x: float | None
    settings: Mapping[str, Any]
    """All settings, flat and resolved."""
    findings: tuple[Finding, ...]

    @property
    def has_heading(self) -> bool:
        """Whether the setting has several rows in a table, below its label. A single row is named by the label."""
        return len(self.findings) > 1


@dataclass(frozen=True)
class Comparison:
    """One table or figure, compared with the paper's."""

    name: str
    title: str
    x_title: str
    planned_seeds: tuple[int, ...]
    changed: Mapping[str, Any]
    """Settings that differ from the paper's by request."""
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
    """The same table or figure by other rules, kept in another folder, to be shown between the paper's and ours."""

    label: str
    """The heading of its column."""
    comparison: Comparison

    def finding(self, label: str, ours: Finding) -> Finding | None:
        """The finding of the same cell as one of ours; None where there is none."""
        for other, finding in self.comparison.findings:
            if (other, finding.method, finding.quantity) == (label, ours.method, ours.quantity):
                return finding
        return None


def name_of_rules(changed: Mapping[str, Any]) -> str | None:
    """The name of the rules that changed settings follow, such as `authors`; None for our rules and for trials."""
    return next((name for name, rules in RULES_OF.items() if rules and as_kept(changed) == as_kept(rules)), None)


def as_kept(changed: Mapping[str, Any]) -> dict[str, Any]:
    """Changed settings in the form in which a kept file holds them."""
    kept: dict[str, Any] = json.loads(json.dumps(dict(changed)))
    return kept


def is_wanted(cell: PlannedValue, changed: Mapping[str, Any]) -> bool:
    """Whether a cell is shown even where none of its runs exist. Cells of our own methods are not, nor are those of
    methods that the code behind the rules lacks."""
    known = METHODS_OF[name_of_rules(changed) or "ours"]
    return not cell.ours and (known is None or cell.method in known)


def beside_label(folder: Path, comparison: Comparison) -> str:
    """The label of results by other rules: authors' rules, or the name of their folder."""
    whose = name_of_rules(comparison.changed)
    return f"{whose}' rules" if whose else folder.resolve().name


def compare(exhibit: Exhibit, store: RunStore, seeds: Sequence[int], changed: Mapping[str, Any]) -> Comparison:
    """Compare a table or figure with the paper's, from the complete runs."""
    planned = exhibit.seeds(seeds)
    columns, all_runs = [], []
    for column in exhibit.columns:
        settings = column.settings(changed)
        runs = {method: store.runs(settings, method, planned) for method in column.all_methods}
        columns.append(_column(column, settings, runs, changed))
        all_runs += [run for each in runs.values() for run in each]
    return Comparison(
        exhibit.name,
        exhibit.title,
        exhibit.x_title,
        planned,
        dict(changed),
        tuple(columns),
        tuple(dict.fromkeys(run.device for run in all_runs)),
        joined_versions(run.versions for run in all_runs),
    )


def _column(
    column: Column, settings: Settings, runs: Mapping[MethodName, Sequence[RunResult]], changed: Mapping[str, Any]
) -> ColumnFindings:
    shown = [cell for cell in column.cells if is_wanted(cell, changed) or runs[cell.method]]
    findings = tuple(_finding(cell, runs[cell.method], settings) for cell in shown)
    return ColumnFindings(column.label, column.x, flat_values(settings.explicit), findings)


def _finding(cell: PlannedValue, runs: Sequence[RunResult], settings: Settings) -> Finding:
    measured = [(run, value) for run in runs if (value := _measured(run, cell.quantity)) is not None]
    return Finding(
        cell.method,
        cell.quantity,
        cell.paper,
        tuple(run.seed for run, _ in measured),
        tuple(value for _, value in measured),
        sum(run.seconds for run in runs),
        tuple(spending(run, spec_of(run, settings)) for run, _ in measured),
    )


def _measured(run: RunResult, quantity: Quantity) -> float | None:
    if quantity == "accuracy":
        return run.mean_score
    if quantity == "own cluster":
        return merged_within(run)
    return getattr(run.agreement, quantity) if run.agreement else None

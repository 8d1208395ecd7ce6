# SPDX-License-Identifier: Apache-2.0
"""The runs behind the paper's tables and figures, as a plan: runs that several of them share are run once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pens.errors import SettingsError
from pens.paper.exhibits import Column, Exhibit
from pens.planning.estimates import Estimates
from pens.planning.plan import Means, Wanted
from pens.planning.runs import RunPlan
from pens.planning.store import RunStore
from pens.reproduce.compare import Comparison, compare
from pens.reproduce.keep import kept_seeds
from pens.settings.keys import flat_values
from pens.settings.tree import MethodName, Settings


@dataclass(frozen=True)
class ReproduceRequest:
    """What `pens reproduce` was asked for."""

    exhibits: tuple[Exhibit, ...]
    seeds: tuple[int, ...]
    methods: tuple[MethodName, ...] | None = None
    """The methods to run; None: those that the paper reports."""
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the paper's, for trials."""
    device: str = "auto"
    data_dir: Path | None = None
    budget_s: float | None = None
    kept: tuple[Comparison, ...] = ()
    """Comparisons that are kept; their numbers need not be run."""

    def methods_of(self, column: Column) -> tuple[MethodName, ...]:
        return column.methods if self.methods is None else tuple(m for m in column.all_methods if m in self.methods)


class Reproduction(RunPlan):
    """Tables and figures, their runs, and which of these are complete."""

    def __init__(self, request: ReproduceRequest, store: RunStore) -> None:
        self.request = request
        self._columns = {
            (exhibit.name, column.label): column for exhibit in request.exhibits for column in exhibit.columns
        }
        wanted = [self.wanted_of(exhibit, column) for exhibit in request.exhibits for column in exhibit.columns]
        super().__init__(wanted, store, Means(request.device, request.data_dir, request.budget_s))

    def prepare(self) -> None:
        asked = self.request
        if asked.methods and not any(asked.methods_of(c) for e in asked.exhibits for c in e.columns):
            names, known = (
                ", ".join(e.name for e in asked.exhibits),
                {m: None for e in asked.exhibits for m in e.methods},
            )
            raise SettingsError(f"--methods {','.join(asked.methods)}: {names} has {', '.join(known)} only")
        super().prepare()
        learn_kept(self.estimates, asked.kept)

    def wanted_of(self, exhibit: Exhibit, column: Column) -> Wanted:
        """The runs that a column needs."""
        methods, seeds = self.request.methods_of(column), exhibit.seeds(self.request.seeds)
        runs = tuple((method, seed) for method in methods for seed in seeds)
        return Wanted(exhibit.name, column.label, column.settings(self.request.changed), runs)

    def is_there(self, wanted: Wanted, method: MethodName, seed: int) -> bool:
        """Whether a run is complete, or all numbers that a column needs of it are kept."""
        if super().is_there(wanted, method, seed):
            return True
        column, kept = self._columns[wanted.group, wanted.label], self.request.kept
        quantities = [cell.quantity for cell in column.cells if cell.method == method]
        flat = flat_values(wanted.settings.explicit)
        return all(seed in kept_seeds(kept, flat, method, quantity) for quantity in quantities)

    def comparisons(self) -> list[Comparison]:
        """Compare every table and figure with the paper's, from the complete runs."""
        asked = self.request
        return [compare(exhibit, self.store, asked.seeds, asked.changed) for exhibit in asked.exhibits]


def learn_kept(estimates: Estimates, kept: Iterable[Comparison]) -> None:
    """Let estimates know kept results that come from a single device. Those with settings that no longer exist are
    skipped."""
    for comparison in (each for each in kept if len(each.devices) == 1):
        for column in comparison.columns:
            try:
                settings = Settings().replace(column.settings)
            except SettingsError:
                continue
            for finding in (f for f in column.findings if f.values):
                seconds = finding.seconds / len(finding.values)
                estimates.learn(settings, finding.method, seconds, comparison.devices[0])

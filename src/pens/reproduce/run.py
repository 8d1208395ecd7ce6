# SPDX-License-Identifier: Apache-2.0
"""Runs the missing runs of a plan: shared runs once, within a time budget, so that a later command can continue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from pens.data.samples import Dataset
from pens.data.sources import load_dataset
from pens.engine.devices import device_name, resolve_device
from pens.errors import Interrupted, SettingsError
from pens.experiment.execution import Experiment
from pens.experiment.holdings import Holdings
from pens.experiment.observer import Observer
from pens.measuring.results import RunResult
from pens.methods.names import check_methods, in_order, participants
from pens.paper.exhibits import Column, Exhibit
from pens.partitions.partition import partition_of
from pens.reproduce.compare import Comparison, compare
from pens.reproduce.estimates import Estimates
from pens.reproduce.keep import kept_seeds
from pens.reproduce.store import RunStore, identity
from pens.settings.keys import flat_values
from pens.settings.tree import MethodName, Settings
from pens.storage.runlog import ExperimentRecord

RunKey = tuple[str, MethodName, int]
"""The identity of the settings, the method, and the seed."""


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


@dataclass(frozen=True)
class MissingRuns:
    """The missing runs of one setting, without those that are listed earlier for another table or figure."""

    exhibit: str
    label: str
    settings: Settings
    missing: tuple[tuple[MethodName, int], ...]

    @property
    def methods(self) -> tuple[MethodName, ...]:
        """The methods of the missing runs, in the order in which methods are listed."""
        return tuple(in_order(method for method, _ in self.missing))

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({seed for _, seed in self.missing}))

    @property
    def stacks(self) -> list[tuple[tuple[MethodName, ...], tuple[int, ...]]]:
        """The runs that can be computed together: methods that lack the same seeds, and these seeds."""
        lacking = {method: tuple(sorted(seed for m, seed in self.missing if m == method)) for method in self.methods}
        return [(tuple(m for m in lacking if lacking[m] == seeds), seeds) for seeds in dict.fromkeys(lacking.values())]

    @property
    def keys(self) -> list[RunKey]:
        return [(identity(self.settings), method, seed) for method, seed in self.missing]


class PlanObserver(Observer):
    """Progress callbacks of a whole plan; all no-ops."""

    def planned(self, runs: int) -> None:
        """The plan has this many runs."""

    def entered(self, work: MissingRuns) -> None:
        """The runs of another setting begin."""

    def advanced(self, done: float, seconds_left: float | None) -> None:
        """`done`: the number of complete runs, with fractions for runs in progress. `seconds_left`: None without an
        estimate."""


class Reproduction:
    """Tables and figures, their runs, and which of these are complete."""

    def __init__(self, request: ReproduceRequest, store: RunStore) -> None:
        self.request, self.store = request, store
        self._torch_device = resolve_device(request.device)
        self._datasets: dict[str, Dataset] = {}
        self.estimates = Estimates(device_name(self._torch_device))

    def prepare(self) -> None:
        """Refuse a request that cannot work, and read the existing runs. Writes nothing."""
        asked = self.request
        if asked.methods and not any(asked.methods_of(c) for e in asked.exhibits for c in e.columns):
            names, known = (
                ", ".join(e.name for e in asked.exhibits),
                {m: None for e in asked.exhibits for m in e.methods},
            )
            raise SettingsError(f"--methods {','.join(asked.methods)}: {names} has {', '.join(known)} only")
        self.store.open()
        self.estimates.learn_all(self.store)
        self.estimates.learn_kept(asked.kept)
        for work in self.works():
            partition_of(work.settings).check(work.settings)
            check_methods(work.settings, work.methods, participants(work.settings))

    def load_data(self) -> None:
        """Load all data sets that the missing runs need, and check that they have enough samples."""
        for work in self.works():
            source = work.settings.data.source
            if source not in self._datasets:
                self._datasets[source] = load_dataset(source, self.request.data_dir)
            partition_of(work.settings).check(work.settings, self._datasets[source])

    def wanted(self, exhibit: Exhibit, column: Column) -> list[tuple[MethodName, int]]:
        """The method and seed of each run that a column needs."""
        return [(m, seed) for m in self.request.methods_of(column) for seed in exhibit.seeds(self.request.seeds)]

    def is_there(self, column: Column, method: MethodName, seed: int) -> bool:
        """Whether a run is complete, or all numbers that a column needs of it are kept."""
        settings, kept = column.settings(self.request.changed), self.request.kept
        if self.store.complete(settings, method, seed):
            return True
        wanted, flat = [cell.quantity for cell in column.cells if cell.method == method], flat_values(settings.explicit)
        return all(seed in kept_seeds(kept, flat, method, quantity) for quantity in wanted)

    def works(self) -> list[MissingRuns]:
        """The missing runs, in order. Runs that several tables share are listed with the first."""
        planned: set[RunKey] = set()
        return [work for exhibit in self.request.exhibits for work in self._works_of(exhibit, planned)]

    def _works_of(self, exhibit: Exhibit, planned: set[RunKey]) -> Iterator[MissingRuns]:
        for column in exhibit.columns:
            settings = column.settings(self.request.changed)
            missing = []
            for method, seed in self.wanted(exhibit, column):
                key = identity(settings), method, seed
                if key not in planned and not self.is_there(column, method, seed):
                    planned.add(key)
                    missing.append((method, seed))
            if missing:
                yield MissingRuns(exhibit.name, column.label, settings, tuple(missing))

    def seconds(self, work: MissingRuns) -> list[float | None]:
        """The expected seconds that each missing run still takes; None without an estimate."""
        place = self.store.find(work.settings)
        expected: list[float | None] = []
        for method, seed in work.missing:
            seconds = self.estimates.seconds(work.settings, method)
            if seconds is not None and place:
                seconds = max(0.0, seconds - place.run(method, seed).seconds_spent())
            expected.append(seconds)
        return expected

    def comparisons(self) -> list[Comparison]:
        """Compare every table and figure with the paper's, from the complete runs."""
        asked = self.request
        return [compare(exhibit, self.store, asked.seeds, asked.changed) for exhibit in asked.exhibits]

    def run(self, observer: PlanObserver, clock: Callable[[], float] = time.monotonic) -> None:
        """Run the missing runs, as far as the budget allows. Afterwards, `works` lists those that are left."""
        works = self.works()
        self.load_data()
        conductor = _Conductor(self, works, observer, clock)
        for work in works:
            if conductor.may_begin(work):
                try:
                    self._run(work, conductor)
                except _BudgetSpent:
                    return

    def _run(self, work: MissingRuns, conductor: _Conductor) -> None:
        folder = str(self.request.data_dir.resolve()) if self.request.data_dir else None
        conductor.enter(work)
        for methods, seeds in work.stacks:
            record = ExperimentRecord(work.settings, methods, seeds, data_dir=folder)
            holdings = Holdings(work.settings, self._datasets[work.settings.data.source])
            experiment = Experiment(record, holdings, self.request.device)
            experiment.prepare()
            experiment.run(self.store.take(record), conductor)


class _BudgetSpent(Interrupted):
    """The time budget is spent; the runs in progress are saved."""


class _Conductor(Observer):
    """Lets a run begin if it fits into the remaining budget, saves and stops runs when the budget is spent, and reports
    the progress of the whole plan."""

    def __init__(
        self, plan: Reproduction, works: Sequence[MissingRuns], observer: PlanObserver, clock: Callable[[], float]
    ) -> None:
        self._plan, self._observer, self._clock = plan, observer, clock
        self._begun, self._budget_s = clock(), plan.request.budget_s
        self._settings: dict[RunKey, Settings] = {key: work.settings for work in works for key in work.keys}
        self._fractions: dict[RunKey, float] = dict.fromkeys(self._settings, 0.0)
        self._seconds = {k: s for work in works for k, s in zip(work.keys, plan.seconds(work), strict=True)}
        self._setting = ""
        observer.planned(len(self._fractions))

    def enter(self, work: MissingRuns) -> None:
        self._setting = identity(work.settings)
        self._observer.entered(work)

    def may_begin(self, work: MissingRuns) -> bool:
        """Whether any single run of this work fits into the remaining budget."""
        return any(self._fits([key]) for key in work.keys)

    def wants(self, method: MethodName, seeds: Sequence[int]) -> bool:
        return self._fits([self._key(method, seed) for seed in seeds])

    def started(self, method: MethodName, seed: int) -> None:
        self._observer.started(method, seed)

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        self._observer.progressed(method, seed, fraction)
        self._advance(method, seed, fraction)
        if self._left() <= 0:
            raise _BudgetSpent("the budget is spent")

    def warned(self, method: MethodName, seed: int, message: str) -> None:
        self._observer.warned(method, seed, message)

    def finished(self, result: RunResult) -> None:
        key = self._key(result.method, result.seed)
        if key not in self._fractions:
            return
        self._plan.estimates.learn(self._settings[key], result.method, result.seconds, result.device)
        for other in (k for k, seconds in self._seconds.items() if seconds is None):
            self._seconds[other] = self._plan.estimates.seconds(self._settings[other], other[1])
        self._advance(result.method, result.seed, 1.0)
        self._observer.finished(result)

    def _key(self, method: MethodName, seed: int) -> RunKey:
        return self._setting, method, seed

    def _left(self) -> float:
        return float("inf") if self._budget_s is None else self._budget_s - (self._clock() - self._begun)

    def _fits(self, keys: Sequence[RunKey]) -> bool:
        """Whether these runs fit into the remaining budget. Runs without an estimate are attempted."""
        left, expected = self._left(), sum(self._seconds[key] or 0.0 for key in keys)
        return left > 0 and expected <= left

    def _advance(self, method: MethodName, seed: int, fraction: float) -> None:
        self._fractions[self._key(method, seed)] = fraction
        self._observer.advanced(sum(self._fractions.values()), self._seconds_left())

    def _seconds_left(self) -> float | None:
        """The expected seconds of the rest of the plan. A run without an estimate counts as other methods' runs on the
        same data do, or else as an average run."""
        shares = {key: 1 - done for key, done in self._fractions.items() if done < 1}
        seconds = {key: self._seconds[key] or self._plan.estimates.guess(self._settings[key]) for key in shares}
        known = [each for each in seconds.values() if each is not None]
        if not known:
            return None if shares else 0.0
        usual = fmean(known)
        return sum(share * (usual if (each := seconds[key]) is None else each) for key, share in shares.items())

# SPDX-License-Identifier: Apache-2.0
"""Runs what a plan needs and is not there yet: shared runs once, within a budget of time, to be continued later."""

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
"""Setting, method, seed."""


@dataclass(frozen=True)
class ReproduceRequest:
    """What is asked for."""

    exhibits: tuple[Exhibit, ...]
    seeds: tuple[int, ...]
    methods: tuple[MethodName, ...] | None = None
    """None: those that the paper reports."""
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are not the paper's, for trials."""
    device: str = "auto"
    data_dir: Path | None = None
    budget_s: float | None = None
    kept: tuple[Comparison, ...] = ()
    """What need not be run, because its numbers are kept."""

    def methods_of(self, column: Column) -> tuple[MethodName, ...]:
        return column.methods if self.methods is None else tuple(m for m in column.all_methods if m in self.methods)


@dataclass(frozen=True)
class MissingRuns:
    """Runs of one setting that are missing and that no earlier work does."""

    exhibit: str
    label: str
    settings: Settings
    missing: tuple[tuple[MethodName, int], ...]

    @property
    def methods(self) -> tuple[MethodName, ...]:
        """Those in question first: the baselines that no real peer could have can wait."""
        return tuple(in_order(method for method, _ in self.missing))

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({seed for _, seed in self.missing}))

    @property
    def stacks(self) -> list[tuple[tuple[MethodName, ...], tuple[int, ...]]]:
        """What can be run as one: methods that lack the same seeds, and those seeds."""
        lacking = {method: tuple(sorted(seed for m, seed in self.missing if m == method)) for method in self.methods}
        return [(tuple(m for m in lacking if lacking[m] == seeds), seeds) for seeds in dict.fromkeys(lacking.values())]

    @property
    def keys(self) -> list[RunKey]:
        return [(identity(self.settings), method, seed) for method, seed in self.missing]


class PlanObserver(Observer):
    """Who watches a whole plan. This one does not care."""

    def planned(self, runs: int) -> None:
        """So many runs are to be done."""

    def entered(self, work: MissingRuns) -> None:
        """Runs of another setting begin."""

    def advanced(self, done: float, seconds_left: float | None) -> None:
        """So many runs are done, the current ones in part; None where nothing is known of how long the rest takes."""


class Reproduction:
    """Tables and figures, their runs, and what of them is there."""

    def __init__(self, request: ReproduceRequest, store: RunStore) -> None:
        self.request, self.store = request, store
        self._torch_device = resolve_device(request.device)
        self._datasets: dict[str, Dataset] = {}
        self.estimates = Estimates(device_name(self._torch_device))

    def prepare(self) -> None:
        """Refuse what cannot work; look at what is there. Writes nothing."""
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
        """All data sets that the missing runs need, and whether they have enough samples."""
        for work in self.works():
            scenario = work.settings.scenario
            if scenario.dataset not in self._datasets:
                self._datasets[scenario.dataset] = load_dataset(scenario.dataset, self.request.data_dir)
            partition_of(work.settings).check(work.settings, self._datasets[scenario.dataset])

    def wanted(self, exhibit: Exhibit, column: Column) -> list[tuple[MethodName, int]]:
        """Method and seed of all runs that a column needs."""
        return [(m, seed) for m in self.request.methods_of(column) for seed in exhibit.seeds(self.request.seeds)]

    def is_there(self, column: Column, method: MethodName, seed: int) -> bool:
        """Whether a run is complete, or all that a column wants of it is kept."""
        settings, kept = column.settings(self.request.changed), self.request.kept
        if self.store.complete(settings, method, seed):
            return True
        wanted, flat = [cell.quantity for cell in column.cells if cell.method == method], flat_values(settings.explicit)
        return all(seed in kept_seeds(kept, flat, method, quantity) for quantity in wanted)

    def works(self) -> list[MissingRuns]:
        """What is missing, in order; runs that several tables share stand with the first."""
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
        """What each missing run of a work will take, less what it has behind it."""
        place = self.store.find(work.settings)
        found: list[float | None] = []
        for method, seed in work.missing:
            seconds = self.estimates.seconds(work.settings, method)
            if seconds is not None and place:
                seconds = max(0.0, seconds - place.run(method, seed).seconds_spent())
            found.append(seconds)
        return found

    def comparisons(self) -> list[Comparison]:
        """Every table and figure beside the paper's, from the runs that are complete."""
        asked = self.request
        return [compare(exhibit, self.store, asked.seeds, asked.changed) for exhibit in asked.exhibits]

    def run(self, observer: PlanObserver, clock: Callable[[], float] = time.monotonic) -> None:
        """Run what is missing, as far as the budget goes; `works` tells afterwards what is left."""
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
            experiment = Experiment(record, self.request.device, data=self._datasets[work.settings.scenario.dataset])
            experiment.prepare()
            experiment.run(self.store.take(record), conductor)


class _BudgetSpent(Interrupted):
    """The time is over; the runs in progress are saved."""


class _Conductor(Observer):
    """Lets runs begin that fit into what is left of the budget, saves and stops them when it is over, and tells how the
    whole plan gets on."""

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
        """Whether any single run of it fits."""
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
        """Of what nothing is known, it is tried."""
        left, expected = self._left(), sum(self._seconds[key] or 0.0 for key in keys)
        return left > 0 and expected <= left

    def _advance(self, method: MethodName, seed: int, fraction: float) -> None:
        self._fractions[self._key(method, seed)] = fraction
        self._observer.advanced(sum(self._fractions.values()), self._seconds_left())

    def _seconds_left(self) -> float | None:
        """A run of which nothing is known is taken for other methods' on the same data, else for an average one."""
        shares = {key: 1 - done for key, done in self._fractions.items() if done < 1}
        seconds = {key: self._seconds[key] or self._plan.estimates.guess(self._settings[key]) for key in shares}
        known = [each for each in seconds.values() if each is not None]
        if not known:
            return None if shares else 0.0
        usual = fmean(known)
        return sum(share * (usual if (each := seconds[key]) is None else each) for key, share in shares.items())

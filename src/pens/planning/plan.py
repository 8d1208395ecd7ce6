# SPDX-License-Identifier: Apache-2.0
"""A plan of runs: which runs are wanted, which of them are missing, and how long these will take."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pens.engine.devices import device_name, resolve_device
from pens.methods.method import Participants
from pens.methods.names import check_methods, in_order, participants
from pens.partitions.partition import partition_of
from pens.planning.conductor import BudgetSpent, Conductor, PlanObserver
from pens.planning.estimates import Estimates
from pens.planning.identity import RunKey, Timed, identity
from pens.planning.shared_data import SharedData
from pens.settings.tree import MethodName, Settings


@dataclass(frozen=True)
class Wanted:
    """The runs that are wanted with one setting."""

    group: str
    """What the setting belongs to, such as a table of the paper; empty where all settings belong together."""
    label: str
    """The name of the setting in its group."""
    settings: Settings
    runs: tuple[tuple[MethodName, int], ...]
    """Each by its method and seed."""

    @property
    def place(self) -> str:
        """Its group and label in words."""
        return f"{self.group}, {self.label}" if self.group else self.label


@dataclass(frozen=True)
class MissingRuns(Wanted):
    """The missing runs of one setting, without those that are listed earlier for another one."""

    @property
    def methods(self) -> tuple[MethodName, ...]:
        """The methods of the missing runs, in the order in which methods are listed."""
        return tuple(in_order(method for method, _ in self.runs))

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({seed for _, seed in self.runs}))

    @property
    def stacks(self) -> list[tuple[tuple[MethodName, ...], tuple[int, ...]]]:
        """The runs that can be computed together: methods that lack the same seeds, and these seeds."""
        lacking = {method: tuple(sorted(seed for m, seed in self.runs if m == method)) for method in self.methods}
        return [(tuple(m for m in lacking if lacking[m] == seeds), seeds) for seeds in dict.fromkeys(lacking.values())]

    @property
    def keys(self) -> list[RunKey]:
        return [(identity(self.settings), method, seed) for method, seed in self.runs]


@dataclass(frozen=True)
class Means:
    """With what a plan is carried out."""

    device: str = "auto"
    data_dir: Path | None = None
    budget_s: float | None = None
    """The seconds within which runs may begin; None: no limit."""


class Store(Protocol):
    """Where complete runs and runs in progress are kept, found by their settings."""

    @property
    def folder(self) -> Path: ...

    def open(self) -> None:
        """Read what exists, and refuse a folder that holds something else. Writes nothing."""

    def is_complete(self, settings: Settings, method: MethodName, seed: int) -> bool: ...

    def seconds_spent(self, settings: Settings, method: MethodName, seed: int) -> float:
        """The seconds that a run in progress has taken; 0 where it was not begun."""

    def timed(self) -> Iterator[Timed]:
        """The complete runs, and what each has taken."""


class Plan(ABC):
    """Wanted runs, and which of these are complete."""

    def __init__(self, wanted: Sequence[Wanted], store: Store, means: Means, data: SharedData | None = None) -> None:
        self.wanted, self.means = tuple(wanted), means
        self._store = store
        self.data = data or SharedData(means.data_dir)
        self.torch_device = resolve_device(means.device)
        self.estimates = Estimates(device_name(self.torch_device))

    @abstractmethod
    def carry_out(self, works: Sequence[MissingRuns], conductor: Conductor) -> None:
        """Run what is missing, as far as the conductor allows."""

    def batches(self, works: Sequence[MissingRuns]) -> list[list[MissingRuns]]:
        """The missing runs as they are carried out: those of one setting after the other."""
        return [[work] for work in works]

    def is_there(self, wanted: Wanted, method: MethodName, seed: int) -> bool:
        """Whether a run need not be computed, because it is complete."""
        return self._store.is_complete(wanted.settings, method, seed)

    def prepare(self) -> None:
        """Refuse what cannot work, and read the existing runs. Writes nothing."""
        self._store.open()
        for timed in self._store.timed():
            self.estimates.learn(*timed)
        for work in self.works():
            if not work.settings.data.is_own:
                partition_of(work.settings).check(work.settings)
            check_methods(work.settings, work.methods, self._participants(work))

    def _participants(self, work: MissingRuns) -> Participants:
        if work.settings.data.is_own:
            return self.data.holdings(work.settings).participants(work.settings, work.seeds)
        return participants(work.settings)

    def works(self) -> list[MissingRuns]:
        """The missing runs, in order. Runs that several settings share are listed with the first."""
        planned: set[RunKey] = set()
        return [work for wanted in self.wanted if (work := self._missing(wanted, planned)).runs]

    def _missing(self, wanted: Wanted, planned: set[RunKey]) -> MissingRuns:
        missing = []
        for method, seed in wanted.runs:
            key = identity(wanted.settings), method, seed
            if key not in planned and not self.is_there(wanted, method, seed):
                planned.add(key)
                missing.append((method, seed))
        return MissingRuns(wanted.group, wanted.label, wanted.settings, tuple(missing))

    def seconds(self, work: MissingRuns) -> list[float | None]:
        """The expected seconds that each missing run still takes; None without an estimate."""
        expected: list[float | None] = []
        for method, seed in work.runs:
            seconds = self.estimates.seconds(work.settings, method)
            if seconds is not None:
                seconds = max(0.0, seconds - self._store.seconds_spent(work.settings, method, seed))
            expected.append(seconds)
        return expected

    def load_data(self) -> None:
        """Read all data that the missing runs need, and check that they have enough samples."""
        for work in self.works():
            self.data.load(work.settings)

    def run(self, observer: PlanObserver, clock: Callable[[], float] = time.monotonic) -> None:
        """Run the missing runs, as far as the budget allows. Afterwards, `works` lists those that are left."""
        works = self.works()
        self.load_data()
        seconds = {k: s for work in works for k, s in zip(work.keys, self.seconds(work), strict=True)}
        settings = {key: work.settings for work in works for key in work.keys}
        observer.planned(len(settings))
        conductor = Conductor(self.estimates, settings, seconds, self.means.budget_s, observer, clock)
        for batch in self.batches(works):
            if any(conductor.fits([key]) for work in batch for key in work.keys):
                observer.entered(batch[0].place)
                try:
                    self.carry_out(batch, conductor)
                except BudgetSpent:
                    return

    def missing_words(self, work: MissingRuns) -> str:
        """The missing runs of one setting: pens, local: seed 0 1 2 3; random: seed 3; begun and saved: pens seed 0"""
        words = [f"{', '.join(methods)}: seed {' '.join(map(str, seeds))}" for methods, seeds in work.stacks]
        begun = [f"{m} seed {seed}" for m, seed in work.runs if self._store.seconds_spent(work.settings, m, seed)]
        return "; ".join(words + ([f"begun and saved: {', '.join(begun)}"] if begun else []))

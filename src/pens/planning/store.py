# SPDX-License-Identifier: Apache-2.0
"""A folder of run directories, one for each setting, found by their settings and shared by all that need them.

OUT/reproduce.json              marks the folder as made by `pens reproduce`; other commands mark theirs likewise
OUT/cifar-10-100x400-…/         a run directory as `pens run` writes it (see runlog.py)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, count, product
from pathlib import Path

from pens.measuring.results import RunResult
from pens.partitions.partition import partition_of
from pens.parts import HUB
from pens.planning.identity import Timed, identity
from pens.planning.mark import Mark
from pens.settings.tree import MethodName, Settings
from pens.storage.runlog import RULES, ExperimentDir, ExperimentRecord, RunDir


class RunStore:
    """Run directories, found by their settings."""

    def __init__(self, folder: Path, command: str = "reproduce") -> None:
        """`command`: by which `pens` command the folder is made."""
        self.folder, self.mark = folder, Mark(folder, command)
        self._places: dict[str, ExperimentDir] = {}

    def open(self) -> None:
        """Read the existing runs, and refuse a folder that holds something else. Writes nothing."""
        self.mark.check()
        for path in sorted(self.folder.glob("*/experiment.json")):
            place = ExperimentDir(path.parent)
            if (record := place.read()).rules == RULES:
                self._places.setdefault(identity(record.settings), place)

    def find(self, settings: Settings) -> ExperimentDir | None:
        """The run directory of a setting; None where the setting has no runs."""
        return self._places.get(identity(settings))

    def complete(self, settings: Settings, method: MethodName, seed: int) -> RunDir | None:
        """A complete run; None where the run is missing or not complete."""
        place = self.find(settings)
        run = place.run(method, seed) if place else None
        return run if run and run.is_complete() else None

    def runs(self, settings: Settings, method: MethodName, seeds: Iterable[int]) -> list[RunResult]:
        """The complete runs of a method, read, one per seed."""
        return [run.read() for seed in seeds if (run := self.complete(settings, method, seed))]

    def take(self, record: ExperimentRecord) -> ExperimentDir:
        """The run directory for these runs: a new one, or that of the same setting, with these runs added."""
        if place := self.find(record.settings):
            place.add(record)
            return place
        self.mark.write()
        place = ExperimentDir(self._new_folder(folder_name(record.settings)))
        place.create(record)
        self._places[identity(record.settings)] = place
        return place

    def is_complete(self, settings: Settings, method: MethodName, seed: int) -> bool:
        """Whether a run is complete."""
        return self.complete(settings, method, seed) is not None

    def seconds_spent(self, settings: Settings, method: MethodName, seed: int) -> float:
        """The seconds that a run in progress has taken; 0 where it was not begun."""
        place = self.find(settings)
        return place.run(method, seed).seconds_spent() if place else 0.0

    def timed(self) -> Iterator[Timed]:
        """The complete runs, and what each has taken."""
        for place in self._places.values():
            record = place.read()
            for method, seed in product(record.methods, record.seeds):
                if (run := place.run(method, seed)).is_complete():
                    yield Timed(record.settings, method, *run.seconds_and_device())

    def _new_folder(self, name: str) -> Path:
        names = chain([name], (f"{name}-{number}" for number in count(2)))
        return next(path for path in (self.folder / n for n in names) if not path.exists())


def folder_name(settings: Settings) -> str:
    """A readable name of a folder: cifar-10-100x400-rotations-0-180-independent. Runs are identified by the settings
    inside, not by this name."""
    scenario, pens = settings.scenario, settings.pens
    partition = re.sub(r"[^a-z0-9.]+", "-", partition_of(settings).describe(settings).lower()).strip("-")
    peers = f"{scenario.peers}x{scenario.train_per_peer}"
    source = re.sub(r"[^A-Za-z0-9.]+", "-", Path(settings.data.source.removeprefix(HUB).partition(":")[0]).stem)
    name = f"{source}-{peers}-{partition}-{settings.model.init}"
    return name if (pens.n_sampled, pens.m) == (10, 2) else f"{name}-n{pens.n_sampled}-m{pens.m}"

# SPDX-License-Identifier: Apache-2.0
"""A folder of run directories, one for each setting, found by their settings and shared by all that need them.

OUT/reproduce.json              marks the folder as one of these
OUT/cifar-10-100x400-…/         a run directory as `pens run` writes it (see runlog.py)
"""

from __future__ import annotations

import json
import re
from itertools import chain, count
from pathlib import Path
from typing import Any

from pens.errors import RunDirError
from pens.partitions.partition import partition_of
from pens.settings.tree import MethodName, Settings
from pens.storage.runlog import RULES, ExperimentDir, ExperimentRecord, RunDir

_MARK = "reproduce.json"


class RunStore:
    """Run directories by their settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places: dict[str, ExperimentDir] = {}

    def open(self) -> None:
        """Look at what is there, and refuse a folder that holds something else. Writes nothing."""
        if self.folder.exists() and not self.folder.is_dir():
            raise RunDirError(f"{self.folder} is a file: choose another --out")
        if not self.folder.is_dir() or not any(self.folder.iterdir()):
            return
        if not (self.folder / _MARK).is_file():
            raise RunDirError(f"{self.folder} is not empty and was not made by pens reproduce: choose another --out")
        for record in sorted(self.folder.glob("*/experiment.json")):
            place = ExperimentDir(record.parent)
            if (found := place.read()).rules == RULES:
                self._places.setdefault(identity(found.settings), place)

    def find(self, settings: Settings) -> ExperimentDir | None:
        """Where a setting's runs are, if it has any."""
        return self._places.get(identity(settings))

    def complete(self, settings: Settings, method: MethodName, seed: int) -> RunDir | None:
        """A run that needs no more computing."""
        place = self.find(settings)
        run = place.run(method, seed) if place else None
        return run if run and run.is_complete() else None

    def take(self, record: ExperimentRecord) -> ExperimentDir:
        """The run directory for these runs: a new one, or the setting's own with them added."""
        if place := self.find(record.settings):
            place.add(record)
            return place
        self._mark()
        place = ExperimentDir(self._new_folder(folder_name(record.settings)))
        place.create(record)
        self._places[identity(record.settings)] = place
        return place

    def records(self) -> list[tuple[ExperimentRecord, ExperimentDir]]:
        """All settings that have runs."""
        return [(place.read(), place) for place in self._places.values()]

    def _mark(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / _MARK).write_text(json.dumps({"format": 1, "made_by": "pens reproduce"}) + "\n")
        except OSError as error:
            raise RunDirError(f"{self.folder}: cannot be written: {error.strerror or error}") from None

    def _new_folder(self, name: str) -> Path:
        names = chain([name], (f"{name}-{number}" for number in count(2)))
        return next(path for path in (self.folder / n for n in names) if not path.exists())


def identity(settings: Settings) -> str:
    """Equal for settings with equal results: all but how they are computed, of which only precision matters."""
    parts: dict[str, Any] = settings.explicit.model_dump(mode="json", exclude={"engine"})
    return json.dumps([parts, settings.engine.precision], sort_keys=True)


def folder_name(settings: Settings) -> str:
    """cifar-10-100x400-rotations-0-180-independent, for people: what counts are the settings inside."""
    scenario, pens = settings.scenario, settings.pens
    partition = re.sub(r"[^a-z0-9.]+", "-", partition_of(settings).describe(settings).lower()).strip("-")
    name = f"{scenario.dataset}-{scenario.peers}x{scenario.train_per_peer}-{partition}-{settings.model.init}"
    return name if (pens.n_sampled, pens.m) == (10, 2) else f"{name}-n{pens.n_sampled}-m{pens.m}"

# SPDX-License-Identifier: Apache-2.0
"""Where trials are kept, found by their settings and by the files of own parts and data.

What is kept of a trial is on validation data alone.

OUT/tune.json                     marks the folder as made by `pens tune`
OUT/trials/dac-1f0c…-seed1000/    one trial with one seed
    checkpoint.safetensors        while it is computed
    trial.json                    when it is complete
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pens.errors import RunDirError
from pens.methods.names import prints_of
from pens.planning.identity import Timed, identity
from pens.planning.mark import Mark
from pens.settings.reading import stored_settings
from pens.settings.tree import MethodName, Settings
from pens.storage.files import read_json, write_json
from pens.storage.runlog import RULES, RunDir


@dataclass(frozen=True)
class Validated:
    """How good a trial was with one seed: on validation data, which is all that tuning may look at."""

    score: float
    """The mean over peers of the main metric, of the models that early stopping kept."""
    loss: float
    seconds: float
    device: str


class TrialStore:
    """Trials in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = Mark(folder, "tune")

    def open(self) -> None:
        """Refuse a folder that holds something else. Writes nothing."""
        self._mark.check()

    def run_dir(self, settings: Settings, method: MethodName, seed: int) -> RunDir:
        """The folder of a trial with one seed."""
        text = json.dumps([identity(settings), method, RULES, prints_of(settings, [method])])
        mark = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return RunDir(self.folder / "trials" / f"{method}-{mark}-seed{seed}")

    def read(self, settings: Settings, method: MethodName, seed: int) -> Validated | None:
        """A complete trial; None where it is missing or not complete."""
        path = self._path(settings, method, seed)
        if not path.is_file():
            return None
        data = read_json(path, f"\nDelete {path.parent}, and the trial is computed again.")
        try:
            return Validated(data["score"], data["loss"], data["seconds"], data["device"])
        except KeyError as error:
            raise RunDirError(f"{path}: not a trial of this version ({error!r}): delete {path.parent}") from None

    def write(self, settings: Settings, method: MethodName, seed: int, found: Validated) -> None:
        """Keep a complete trial, and delete its checkpoint."""
        self._mark.write()
        run_dir = self.run_dir(settings, method, seed)
        run_dir.folder.mkdir(parents=True, exist_ok=True)
        about = {"method": method, "seed": seed, "settings": settings.model_dump(mode="json")}
        write_json(self._path(settings, method, seed), {**vars(found), **about})
        run_dir.forget_checkpoint()

    def mark(self) -> None:
        """Make the folder."""
        self._mark.write()

    def is_complete(self, settings: Settings, method: MethodName, seed: int) -> bool:
        """Whether a trial is complete with one seed."""
        return self._path(settings, method, seed).is_file()

    def seconds_spent(self, settings: Settings, method: MethodName, seed: int) -> float:
        """The seconds that a trial in progress has taken; 0 where it was not begun."""
        return self.run_dir(settings, method, seed).seconds_spent()

    def timed(self) -> Iterator[Timed]:
        """The complete trials, and what each has taken."""
        for path in sorted(self.folder.glob("trials/*/trial.json")):
            data = read_json(path, f"\nDelete {path.parent}, and the trial is computed again.")
            yield Timed(stored_settings(data["settings"]), data["method"], data["seconds"], data["device"])

    def _path(self, settings: Settings, method: MethodName, seed: int) -> Path:
        return self.run_dir(settings, method, seed).folder / "trial.json"

# SPDX-License-Identifier: Apache-2.0
"""One run in progress: its simulator, the time it has taken, what it has told, and its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable

from pens.errors import RunDirError
from pens.settings.tree import MethodName
from pens.simulation.simulator import Simulator
from pens.storage.runlog import RunDir


class Running:
    """One method with one seed, between its beginning and its result."""

    def __init__(self, method: MethodName, seed: int, simulator: Simulator, run_dir: RunDir | None) -> None:
        self.method, self.seed, self.simulator, self.run_dir = method, seed, simulator, run_dir
        self.seconds = 0.0
        """Of computing, across interruptions; its share where several runs are computed together."""
        self._saved = time.perf_counter()
        self._saving_took = 0.0
        self._told: set[int] = set()

    def resume(self) -> None:
        """Go on from a checkpoint, if there is one."""
        saved = self.run_dir.load_checkpoint() if self.run_dir else None
        if not saved or not self.run_dir:
            return
        try:
            self.seconds = saved[0]["seconds"]
            self.simulator.restore(saved[0]["simulator"], saved[1])
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise RunDirError(
                f"{self.run_dir.folder}: its checkpoint does not fit the experiment's settings ({error!r}): "
                "delete that folder and resume, and this run starts anew"
            ) from None
        self._told = set(self.simulator.learners.setbacks)

    def save(self) -> None:
        """Write a checkpoint, where there is a place for it."""
        if not self.run_dir:
            return
        begun = time.perf_counter()
        data, tensors = self.simulator.state()
        self.run_dir.save_checkpoint({"seconds": self.seconds, "simulator": data}, tensors)
        self._saved = time.perf_counter()
        self._saving_took = self._saved - begun

    def save_if_due(self, every_s: float) -> None:
        """After so many seconds, and never so often that saving takes more than a twentieth of the time."""
        if time.perf_counter() - self._saved >= max(every_s, 20 * self._saving_took if every_s else 0):
            self.save()

    def tell_setbacks(self, tell: Callable[[str], None]) -> None:
        """Each peer's first setback, as it happens."""
        for peer in sorted(set(self.simulator.learners.setbacks) - self._told):
            self._told.add(peer)
            tell(
                f"peer {peer}: the loss is not a finite number; that update is undone and its last good model kept. "
                "A lower lr usually helps."
            )

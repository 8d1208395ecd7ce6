# SPDX-License-Identifier: Apache-2.0
"""Runs in progress: a simulator with its computing time, its warnings and its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pens.data.scenarios import Federation
from pens.errors import RunDirError
from pens.settings.tree import MethodName
from pens.simulation.simulator import Simulator
from pens.storage.runlog import RunDir

_MOST_PEERS = 8  # that a warning names


class Running:
    """A run of one method with one seed that has begun and is not complete."""

    def __init__(
        self,
        method: MethodName,
        seed: int,
        simulator: Simulator,
        run_dir: RunDir | None,
        data: Federation | None = None,
    ) -> None:
        """`data`: who holds what, so that the run never goes on with other data."""
        self.method, self.seed, self.simulator, self.run_dir = method, seed, simulator, run_dir
        self._data = data
        self.seconds = 0.0
        """Computing time, interruptions left out; the run's share where several runs are computed together."""
        self._saved = time.perf_counter()
        self._saving_took = 0.0
        self._told: set[int] = set()

    def resume(self) -> None:
        """Continue from the checkpoint in the run's folder, if there is one."""
        saved = self.run_dir.load_checkpoint() if self.run_dir else None
        if not saved or not self.run_dir:
            return
        if self._data and saved[0].get("data", self._data.fingerprint) != self._data.fingerprint:
            raise RunDirError(
                f"{self.run_dir.folder}: it was begun with other data than are there now. A partition of your own has "
                "to build the same from the same seed, and its file and the data set must not change: bring back what "
                "it was begun with, or delete that folder and resume, and this run begins anew"
            )
        try:
            self.seconds = saved[0]["seconds"]
            self.simulator.restore(saved[0]["simulator"], saved[1])
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise RunDirError(
                f"{self.run_dir.folder}: its checkpoint does not fit the experiment's settings ({error!r}): "
                "delete that folder and resume, and this run begins anew"
            ) from None
        self._told = set(self.simulator.learners.setbacks)

    def save(self) -> None:
        """Write a checkpoint, if the run has a folder."""
        if not self.run_dir:
            return
        begun = time.perf_counter()
        data, tensors = self.simulator.state()
        contents = {"seconds": self.seconds, "simulator": data}
        contents |= {"data": self._data.fingerprint} if self._data else {}
        self.run_dir.save_checkpoint(contents, tensors)
        self._saved = time.perf_counter()
        self._saving_took = self._saved - begun

    def save_if_due(self, every_s: float) -> None:
        """Write a checkpoint every `every_s` seconds, or less often, so that saving takes at most 5 % of the time."""
        if time.perf_counter() - self._saved >= max(every_s, 20 * self._saving_took if every_s else 0):
            self.save()

    def tell_setbacks(self, tell: Callable[[str], None]) -> None:
        """Warn of each peer's first undone update, soon after it happened."""
        for peer in sorted(set(self.simulator.learners.setbacks) - self._told):
            self._told.add(peer)
            tell(
                f"peer {peer}: the loss is not a finite number; that update is undone, and the peer keeps its last "
                "good model. A lower lr usually helps."
            )

    def tell_fallbacks(self, warnings: Sequence[str], tell: Callable[[str], None]) -> None:
        """Warn of peers that found no neighbours by the rule, or that dropped others, once for each reason. `warnings`:
        of the run's result, which begin with those of undone updates."""
        peers: dict[str, list[str]] = {}
        for text in warnings[len(self.simulator.learners.setbacks) :]:
            peer, _, reason = text.partition(": ")
            peers.setdefault(reason, []).append(peer.removeprefix("peer "))
        for reason, numbers in peers.items():
            who = f"peer {numbers[0]}" if len(numbers) == 1 else f"peers {_shortly(numbers)}"
            tell(f"{who}: {reason}")


def _shortly(numbers: Sequence[str]) -> str:
    """1, 2, 3, 4, 5, 6, 7, 8 and 12 more"""
    more = f" and {len(numbers) - _MOST_PEERS} more" if len(numbers) > _MOST_PEERS else ""
    return ", ".join(numbers[:_MOST_PEERS]) + more

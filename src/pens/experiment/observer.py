# SPDX-License-Identifier: Apache-2.0
"""Progress callbacks of an experiment."""

from __future__ import annotations

from collections.abc import Sequence

from pens.measuring.results import RunResult
from pens.settings.tree import MethodName


class Observer:
    """Who watches an experiment. This one does not care: override what is of interest."""

    def wants(self, method: MethodName, seeds: Sequence[int]) -> bool:
        """Whether these runs, which are computed together, shall begin or go on; else they are left out."""
        return True

    def started(self, method: MethodName, seed: int) -> None:
        """A run begins, or goes on."""

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        """A window of virtual time is over. May raise `Interrupted`: the run is saved, and stops."""

    def warned(self, method: MethodName, seed: int, message: str) -> None:
        """Something happened that the user should know."""

    def finished(self, result: RunResult) -> None:
        """A run is complete."""

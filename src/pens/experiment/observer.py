# SPDX-License-Identifier: Apache-2.0
"""Progress callbacks of an experiment, for programs that show how far it is."""

from __future__ import annotations

from collections.abc import Sequence

from pens.measuring.results import RunResult
from pens.settings.tree import MethodName


class Observer:
    """Progress callbacks; all no-ops. Override those that are of interest."""

    def wants(self, method: MethodName, seeds: Sequence[int]) -> bool:
        """Whether to compute these runs, which are computed together. If not, they are left out."""
        return True

    def noted(self, message: str) -> None:
        """Called before the runs when the user should know something that concerns all of them."""

    def started(self, method: MethodName, seed: int) -> None:
        """Called when a run begins or continues."""

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        """Called again and again while a run is computed, with the finished part of it, from 0 to 1. May raise
        `Interrupted`: then the run is saved, and stops."""

    def warned(self, method: MethodName, seed: int, message: str) -> None:
        """Called when something happened that the user should know."""

    def finished(self, result: RunResult) -> None:
        """Called when a run is complete."""

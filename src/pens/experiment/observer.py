# SPDX-License-Identifier: Apache-2.0
"""Progress callbacks of an experiment, for programs that show how far it is."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from pens.errors import PensWarning
from pens.measuring.results import RunResult
from pens.settings.tree import MethodName

_PACKAGE = str(Path(__file__).parent.parent)


class Observer:
    """Progress callbacks. Override those that are of interest: the others do nothing, except that `noted` and
    `warned` issue Python warnings."""

    def wants(self, method: MethodName, seeds: Sequence[int]) -> bool:
        """Whether to compute these runs, which are computed together. If not, they are left out."""
        return True

    def noted(self, message: str) -> None:
        """Called before the runs when the user should know something that concerns all of them. If not overridden, it
        issues a `PensWarning`."""
        _warn(message)

    def started(self, method: MethodName, seed: int) -> None:
        """Called when a run begins or continues."""

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        """Called again and again while a run is computed, with the finished part of it, from 0 to 1. May raise
        `Interrupted`: then the run is saved, and stops."""

    def warned(self, method: MethodName, seed: int, message: str) -> None:
        """Called when something happened that the user should know. If not overridden, it issues a `PensWarning`."""
        _warn(f"{method} seed {seed}: {message}")

    def finished(self, result: RunResult) -> None:
        """Called when a run is complete."""


def _warn(message: str) -> None:
    """A warning at the line of the user's program that called pens; the same one again in a later run, too."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    warnings.warn_explicit(message, PensWarning, frame.f_code.co_filename, frame.f_lineno)

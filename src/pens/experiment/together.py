# SPDX-License-Identifier: Apache-2.0
"""Computes runs that share a workplace, side by side, until each of them is over."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pens.errors import Interrupted
from pens.experiment.running import Running
from pens.processors import CpuShare
from pens.simulation.simulator import advance_together


class Pace:
    """What is told and done between two batches of runs; all no-ops."""

    checkpoint_every_s: float = 0.0
    """Seconds between two checkpoints of a run; 0: after every batch."""

    def over(self, run: Running) -> None:
        """Called once for each run that is over."""

    def advanced(self, runs: Sequence[Running]) -> None:
        """Called after each batch."""

    def progressed(self, run: Running, fraction: float) -> None:
        """The finished part of a run, from 0 to 1. May raise `Interrupted`: then all runs are saved, and stop."""

    def warned(self, run: Running, message: str) -> None:
        """Something happened that the user should know."""


def compute_together(runs: Sequence[Running], pace: Pace, cpu_share: CpuShare, begun: float) -> None:
    """Compute runs as one stack, and save them where they are stopped. `begun`: when their time begins to count."""
    going, last = list(runs), begun
    try:
        while going := _unfinished(going, pace):
            with _collector_paused(), cpu_share.measured():
                advance_together([run.simulator for run in going])
            last, spent = time.perf_counter(), time.perf_counter() - last
            for run in going:
                run.seconds += spent / len(going)
                run.tell_setbacks(partial(pace.warned, run))
                run.save_if_due(pace.checkpoint_every_s)
            pace.advanced(going)
            for run in going:
                pace.progressed(run, run.simulator.progress())
    except Interrupted:
        for run in going:
            run.save()
        raise


def _unfinished(runs: list[Running], pace: Pace) -> list[Running]:
    """The runs that are not over. The others are told of."""
    for run in runs:
        if run.simulator.is_over():
            pace.over(run)
    return [run for run in runs if not run.simulator.is_over()]


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector. Runs make millions of events and jobs without reference cycles, and searching
    them for cycles can double the cost."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

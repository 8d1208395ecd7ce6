# SPDX-License-Identifier: Apache-2.0
"""Shows progress, live on a terminal and as lines elsewhere, and turns Ctrl-C into a stop at the end of the round."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from pens.command_line.printing import print_warning
from pens.errors import Interrupted
from pens.experiment.progress import Bars
from pens.measuring.results import RunResult
from pens.planning.conductor import PlanObserver
from pens.report.words import duration
from pens.settings.tree import MethodName


class Watcher(Bars):
    """Shows a live bar for each run, and warnings above the bars."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.stop_asked = False
        self.told: set[tuple[MethodName, int]] = set()
        """Runs of which a warning was shown."""

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        super().progressed(method, seed, fraction)
        if self.stop_asked:
            raise Interrupted("stopped")

    def noted(self, message: str) -> None:
        print_warning(self.console, message)

    def warned(self, method: MethodName, seed: int, message: str) -> None:
        self.told.add((method, seed))
        print_warning(self.console, f"{method} seed {seed}: {message}")

    def line(self, result: RunResult) -> str:
        score = result.metric.words(result.mean_score)
        return f"{result.method} seed {result.seed}: {score} in {duration(result.seconds)}"


class PlanWatcher(Watcher, PlanObserver):
    """Shows a bar for a whole plan, and below it a bar for each run in progress."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._whole: TaskID | None = None
        self._runs, self._done = 0, 0
        self._place = ""
        self._seconds_left: float | None = None

    def planned(self, runs: int) -> None:
        self._runs = runs
        if runs:
            self._whole = self.progress.add_task(f"0 of {runs} runs", total=runs, left="")

    def entered(self, place: str) -> None:
        self._place = place

    def started(self, method: MethodName, seed: int) -> None:
        self.tasks[method, seed] = self.progress.add_task(f"{self._place}: {method} seed {seed}", total=1.0, left="")

    def advanced(self, done: float, seconds_left: float | None) -> None:
        self._seconds_left = seconds_left
        if self._whole is not None:
            self.progress.update(self._whole, completed=done, left=self._left())

    def finished(self, result: RunResult) -> None:
        if (task := self.tasks.pop((result.method, result.seed), None)) is not None:
            self.progress.remove_task(task)
        self.tried(f"{self._place}: {self.line(result)}")

    def working(self) -> None:
        if self.stop_asked:
            raise Interrupted("stopped")

    def tried(self, message: str) -> None:
        self._done += 1
        count = f"{self._done} of {self._runs}"
        if self._whole is not None:
            self.progress.update(self._whole, description=f"{count} runs")
        left = f"; {self._left()}" if self._left() and not self.console.is_terminal else ""
        words = f"[dim]{count}[/dim] {escape(message)}[dim]{left}[/dim]"
        self.console.print(words, highlight=False, soft_wrap=True)

    def _left(self) -> str:
        return f"about {duration(self._seconds_left)} left" if self._seconds_left else ""


AnyWatcher = TypeVar("AnyWatcher", bound=Watcher)


@contextmanager
def watching(watcher: AnyWatcher) -> Iterator[AnyWatcher]:
    """Within this context bars are shown, and Ctrl-C or SIGTERM stops the run at the end of the round."""

    def stop(number: int, _frame: FrameType | None) -> None:
        if watcher.stop_asked:
            raise KeyboardInterrupt
        watcher.stop_asked = True
        watcher.console.print("stopping at the end of this round; press Ctrl-C once more to stop at once")

    with watcher.progress:
        before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield watcher
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

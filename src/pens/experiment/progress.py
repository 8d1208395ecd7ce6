# SPDX-License-Identifier: Apache-2.0
"""Shows how far an experiment is: bars in a terminal or a notebook, elsewhere a line for each complete run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any, Literal

from rich.console import Console
from rich.errors import LiveError
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from pens.errors import SettingsError
from pens.experiment.observer import Observer
from pens.measuring.results import RunResult
from pens.settings.tree import MethodName

ShowProgress = bool | Literal["auto"]

_UPDATE_EVERY_S = 0.2
_MOST_BARS = 12


@contextmanager
def showing(progress: ShowProgress, observer: Observer | None) -> Iterator[Observer]:
    """The observer of an experiment, which also shows progress where that is wanted. `auto`: in a terminal or a
    notebook, unless there is an observer."""
    if progress not in (True, False, "auto"):
        raise SettingsError(f"progress = {progress!r}: choose True, False or 'auto'")
    place = None if observer is not None and progress == "auto" else _place(progress)
    if place is None:
        yield observer or Observer()
        return
    with place:
        yield _Beside(place, observer) if observer else place


def _place(progress: ShowProgress) -> NotebookBars | Bars | None:
    """Where to show progress; None: nowhere."""
    if not progress:
        return None
    if _in_notebook():
        return NotebookBars()
    console = Console(stderr=True, highlight=False, emoji=False)
    return Bars(console) if progress is True or console.is_terminal else None


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class _Beside(Observer):
    """Shows progress beside a user's own observer, which alone decides, and alone is told of warnings."""

    def __init__(self, shown: Observer, own: Observer) -> None:
        self._shown, self._own = shown, own

    def wants(self, method: MethodName, seeds: Sequence[int]) -> bool:
        return self._own.wants(method, seeds)

    def started(self, method: MethodName, seed: int) -> None:
        self._shown.started(method, seed)
        self._own.started(method, seed)

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        self._shown.progressed(method, seed, fraction)
        self._own.progressed(method, seed, fraction)

    def warned(self, method: MethodName, seed: int, message: str) -> None:
        self._own.warned(method, seed, message)

    def noted(self, message: str) -> None:
        self._own.noted(message)

    def finished(self, result: RunResult) -> None:
        self._shown.finished(result)
        self._own.finished(result)


class Bars(Observer):
    """Shows a live bar for each run; where the console is no terminal, a line when it is complete."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.tasks: dict[tuple[MethodName, int], TaskID] = {}

    def __enter__(self) -> Bars:
        try:
            self.progress.start()
        except LiveError:  # the program shows something live already
            self.progress.disable = True
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def started(self, method: MethodName, seed: int) -> None:
        self.tasks[method, seed] = self.progress.add_task(f"{method} seed {seed}", total=1.0)

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        self.progress.update(self.tasks[method, seed], completed=fraction)

    def finished(self, result: RunResult) -> None:
        if (task := self.tasks.get((result.method, result.seed))) is not None:
            self.progress.update(task, completed=1.0)
        if not self.console.is_terminal:
            self.console.print(self.line(result), markup=False, soft_wrap=True)

    def line(self, result: RunResult) -> str:
        """A complete run in one line."""
        return f"{result.method} seed {result.seed}: {result.metric.words(result.mean_score)} in {result.seconds:.1f} s"


class NotebookBars(Observer):
    """Shows bars below a notebook's cell, as HTML that is exchanged now and then. It needs no widgets."""

    def __init__(self) -> None:
        self._runs: dict[tuple[MethodName, int], tuple[float, str]] = {}
        """Of each run: the finished part, and what is said of it."""
        self._began = self._shown = time.monotonic()
        self._handle: Any = None

    def __enter__(self) -> NotebookBars:
        from IPython.display import HTML, display

        self._html = HTML
        self._handle = display(HTML(self.html()), display_id=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._show()

    def started(self, method: MethodName, seed: int) -> None:
        self._runs[method, seed] = (0.0, "")
        self._show()

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        self._runs[method, seed] = (fraction, f"{100 * fraction:.0f} %")
        if time.monotonic() - self._shown >= _UPDATE_EVERY_S:
            self._show()

    def finished(self, result: RunResult) -> None:
        words = f"{result.metric.name} {result.metric.words(result.mean_score)}"
        self._runs[result.method, result.seed] = (1.0, words)
        self._show()

    def html(self) -> str:
        """The bars of the latest runs, and how many are complete."""
        latest = list(self._runs.items())[-_MOST_BARS:]
        rows = "".join(
            f"<div>{escape(method)} seed {seed} "
            f'<progress value="{fraction:.3f}" max="1"></progress> {escape(words)}</div>'
            for (method, seed), (fraction, words) in latest
        )
        complete = sum(fraction == 1 for fraction, _ in self._runs.values())
        seconds = time.monotonic() - self._began
        return f"<div>{rows}<div>{complete} of {len(self._runs)} runs complete, {seconds:.0f} s</div></div>"

    def _show(self) -> None:
        self._shown = time.monotonic()
        if self._handle is not None:
            self._handle.update(self._html(self.html()))

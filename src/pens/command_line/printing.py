# SPDX-License-Identifier: Apache-2.0
"""Prints what several commands share: the table of a run directory, and its place."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from pens.measuring.results import ExperimentResult
    from pens.storage.runlog import ExperimentRecord


def new_console() -> Console:
    """A console as wide as the terminal, or 120 characters wide where the output goes into a file."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, emoji=False)


def print_warning(console: Console, message: str) -> None:
    """Print what the user should know."""
    from rich.markup import escape

    console.print(f"[yellow]warning[/yellow] {escape(message)}", soft_wrap=True)


def print_run(console: Console, folder: Path) -> tuple[ExperimentRecord, ExperimentResult]:
    """Print the table of a run directory's complete runs, and the command that runs the others. Returns its record and
    results."""
    from pens.report.tables import print_results
    from pens.storage.runlog import ExperimentDir

    directory = ExperimentDir(folder)
    record = directory.read()
    result = record.result(directory.results(), folder)
    if (missing := len(result.missing)) and not record.real_peers:
        command = f"pens run --resume {shlex.quote(str(folder))}"
        console.print(
            f"{missing} of {missing + len(result.runs)} runs are not complete. Continue with: {command}",
            markup=False,
            soft_wrap=True,
        )
    if result.runs:
        print_results(console, result, record.data_name)
    return record, result


def print_place(console: Console, folder: Path) -> None:
    """Print the place of a run directory, and the commands that show more of it."""
    place = shlex.quote(str(folder))
    ways = f"run directory: {place}; pictures: pens show {place}; one page: pens report {place}"
    console.print(ways, style="dim", markup=False, soft_wrap=True)

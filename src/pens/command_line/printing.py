# SPDX-License-Identifier: Apache-2.0
"""What several commands print: to which console, and the table of a run directory."""

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
    """As wide as the terminal, or 120 where the output goes into a file."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 120, highlight=False, emoji=False)


def print_run(console: Console, folder: Path) -> tuple[ExperimentRecord, ExperimentResult]:
    """The table of a run directory as far as it is complete, and the command that completes it; returns both."""
    from pens.measuring.results import ExperimentResult
    from pens.report.tables import print_results
    from pens.storage.runlog import ExperimentDir

    directory = ExperimentDir(folder)
    record = directory.read()
    result = ExperimentResult(record.settings, tuple(directory.results()), folder)
    missing = len(record.methods) * len(record.seeds) - len(result.runs)
    if missing and not record.real_peers:
        command = f"pens run --resume {shlex.quote(str(folder))}"
        console.print(
            f"{missing} of {missing + len(result.runs)} runs are not complete: {command}", markup=False, soft_wrap=True
        )
    if result.runs:
        print_results(console, result, record.data_name)
    return record, result


def print_place(console: Console, folder: Path) -> None:
    """Where a run directory is, and how to see more of it."""
    place = shlex.quote(str(folder))
    ways = f"run directory: {place}; pictures: pens show {place}; one page: pens report {place}"
    console.print(ways, style="dim", markup=False, soft_wrap=True)

# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pens.command_line import completion
from pens.parts import METHODS

DataDir = Annotated[Path | None, typer.Option(help="Folder to look for data sets in, before all others.")]
Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda or cuda:N.")]
Budget = Annotated[
    float | None,
    typer.Option(metavar="MINUTES", help="Begin no run that would take longer than the rest of these minutes."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change settings, e.g. --set rounds=30 rotations=0,90 (`pens settings` explains them all).",
        autocompletion=completion.assignments,
    ),
]


def settings_help(what: str) -> str:
    """The help text of an argument that names a preset or a file of settings."""
    return f"{what}: a preset (`pens presets` lists them) or a .toml file of settings."


def methods_option(default: str) -> Any:
    """The option `--methods`. `default`: the methods that a command takes where it is not given, in words."""
    return typer.Option(
        help="Which methods, with commas (`pens methods` explains them); your own as file.py:Name or module:Name: "
        f"{', '.join(METHODS.built_in)}.",
        show_default=default,
        autocompletion=completion.methods,
    )


def seeds_option(more: str, default: str | bool = True) -> Any:
    """The option `--seeds`. `more`: what else there is to say. `default`: as the help shows it; True: as it is."""
    words = "How many seeds (4: those from 0 to 3), or which: 1,2,3 or 0-3."
    return typer.Option(help=f"{words} {more}", show_default=default)

# SPDX-License-Identifier: Apache-2.0
"""The commands for whoever operates a real peer: `pens status` and `pens backup`. Parsing and printing only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from pens.command_line.certificates import needs_network_extra
from pens.command_line.printing import new_console


def status_command(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG.toml|DIR|URL",
            help="A peer's file, its state folder, or its monitor, as http://127.0.0.1:9400.",
            show_default="config.toml, or /etc/pens/config.toml",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say how a real peer is doing. Exit status: 0 it works, 1 it needs a person, 3 it does not run."""
    with needs_network_extra():
        from pens.network.operating.peer_status import page, status_of, target_of
    status = status_of(target_of(target))
    if as_json:
        typer.echo(json.dumps(status.to_json(), ensure_ascii=False, indent=1))
    else:
        headline, lines = page(status)
        console = new_console()
        console.print(headline, style="bold", markup=False)
        width = max((len(what) for what, _ in lines), default=0)
        for what, words in lines:
            console.print(f"  {what:<{width}}  {words}", markup=False, soft_wrap=True)
    if status.exit_status:
        raise typer.Exit(status.exit_status)


def backup_command(
    source: Annotated[Path, typer.Argument(metavar="CONFIG.toml|DIR", help="A peer's file, or its state folder.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET.tar", help="The tar file to write.")],
) -> None:
    """Write the state of a real peer into a tar file, while it runs or not. Keys and certificates are not in it."""
    with needs_network_extra():
        from pens.network.operating.backup import back_up
    made = back_up(source, target)
    typer.echo(f"{made.path}: {made.name}, version {made.version} of its model, {made.size_bytes / 1e6:.1f} MB")
    typer.echo("Start a peer from it only when the other one is gone for good: two would contradict each other.")

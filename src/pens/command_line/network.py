# SPDX-License-Identifier: Apache-2.0
"""The commands for real peers: `pens peer`, `pens up` and `pens collect`. Parsing and printing only."""

from __future__ import annotations

import os
import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pens.command_line import completion
from pens.command_line.certificates import needs_network_extra
from pens.command_line.options import Assignments, settings_help
from pens.command_line.printing import new_console, print_place, print_run
from pens.errors import Interrupted, SettingsError
from pens.experiment.defaults import DEFAULT_PRESET, PAPERS_METHOD

if TYPE_CHECKING:
    from pens.network.federation.loopback import LocalFederation
    from pens.network.operating.checking import Asked, Check


def peer_command(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG.toml", help="The peer's name, the places of its certificates and data, and its settings."
        ),
    ],
    bootstrap: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="A member to contact first; any member will do. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the peer's state and records, instead of that in the file.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Only compare this file with the members that are contacted first, and print what fits and what does "
            "not. Exit status 0: all that answer fit; 1: one does not; 2: nobody answers, or the file cannot work.",
        ),
    ] = False,
) -> None:
    """Run one real peer until it is stopped. It saves its state, and continues from there when it is started again."""
    from pens.network.transport.grpc_core import native_log_settings

    if not check:
        os.environ.update(native_log_settings())  # before gRPC is imported
    with needs_network_extra():
        from pens.network.operating.checking import check_peer
        from pens.network.operating.peer_command import run_peer
    if check:
        found = check_peer(config, tuple(bootstrap or ()))
        _print_check(found)
        raise typer.Exit(found.status)
    run_peer(config, tuple(bootstrap or ()), out)


def _print_check(check: Check) -> None:
    """A row for each part, a column for each member that answered."""
    from rich.markup import escape
    from rich.table import Table

    console = new_console()
    answered = [member for member in check.members if member.name is not None]
    table = Table("", *(escape(f"{member.name} ({member.software or 'older pens'})") for member in answered))
    parts = {compared.part: compared for member in answered for compared in member.compared}
    for name, part in parts.items():
        table.add_row(escape(f"{name}{'' if part.must else ' (may differ)'}"), *(_cell(m, name) for m in answered))
    if answered:
        console.print(table)
    for member in check.members:
        if member.name is None:
            console.print(f"{member.address} does not answer: {member.why}", markup=False)
        else:
            console.print(f"{member.name} {'fits' if member.fits else 'does NOT fit'}", markup=False)
    console.print(f"{check.peer}: fingerprint {check.fingerprint}", style="dim", markup=False)


def _cell(member: Asked, part: str) -> str:
    from rich.markup import escape

    found = next((compared for compared in member.compared if compared.part == part), None)
    return escape("not told" if found is None else found.difference or "fits")


def up_command(
    peers: Annotated[int | None, typer.Option(help="The number of peers.", show_default="8")] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="PRESET|FILE.toml",
            help=settings_help("What to run"),
            show_default=DEFAULT_PRESET,
            autocompletion=completion.presets,
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="A method that real peers can follow (`pens methods` tells which), or an own one as file.py:Name.",
            show_default=PAPERS_METHOD,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Decides which peer holds which data, and the first models.", show_default="0"),
    ] = None,
    assignments: Assignments = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="Your own data of all peers, as for `pens run`: table.csv, a folder, …"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NET", help="The network, the setting `net`: a name or file.py:Name."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="About how long the run should take; the interval follows from it.", show_default="3"),
    ] = None,
    interval: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time between two models that a peer sends.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="New or empty folder for certificates and results.", show_default="runs/up-NAME-TIME"),
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Start the peers of this folder again.")] = None,
) -> None:
    """Run a federation of real peers on this machine, each a process with a certificate; then print a table."""
    from pens.experiment.presets import OWN, resolve_settings
    from pens.methods.names import networked_method
    from pens.parts import located_parts
    from pens.settings.reading import parse_assignments

    # before the settings, because the method may have a section of its own
    chosen = networked_method(PAPERS_METHOD if method is None else method).name
    changes = located_parts(data, model)
    changes |= parse_assignments(assignments or [])
    source = (DEFAULT_PRESET if data is None else OWN) if settings is None else settings
    resolve_settings(source).replace(changes)
    with needs_network_extra():
        from pens.network.federation.loopback import FederationRequest, make_federation, read_federation
        from pens.network.federation.up import estimate_words, run_federation
    console = new_console()
    if resume:
        others = (peers, settings, method, seed, assignments, data, model, minutes, interval, out)
        if any(option is not None for option in others):
            raise SettingsError("--resume takes all settings from the folder: leave out all other options")
        federation, lowered = read_federation(resume), ""
    else:
        request = FederationRequest(
            settings=source,
            changes=changes,
            peers=peers,
            method=chosen,
            seed=seed or 0,
            minutes=minutes,
            interval=interval,
        )
        name = f"up-{Path(data or request.settings).stem}-{datetime.now():%Y%m%d-%H%M%S}"
        federation, lowered = make_federation(out or Path("runs") / name, request)
    if lowered:
        console.print(f"to fit {len(federation.members)} peers: {lowered}", markup=False)
    console.print(estimate_words(federation), markup=False)
    place = shlex.quote(str(federation.folder))
    try:
        dead = run_federation(federation, console)
    except Interrupted:
        _put_together(federation)
        raise Interrupted(f"stopped. Continue with: pens up --resume {place}") from None
    if _put_together(federation):
        print_run(console, federation.run_folder)
        print_place(console, federation.run_folder)
    for seen in dead:
        console.print(f"{seen.name} exited uncleanly: {seen.end}; {seen.exit_message}", style="red", markup=False)
    if dead:
        console.print(
            f"Logs: {place}/*/log.jsonl. Start the peers again: pens up --resume {place}",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(1)


def collect_command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="PEER_FOLDER", help="State folders of peers, or copies of them.")
    ],
    out: Annotated[Path, typer.Option(help="Run directory to write: a new one, or one with other methods or seeds.")],
) -> None:
    """Make one run directory of several real peers' records, for `pens show` and `pens report`."""
    from pens.network.federation.records import compose

    compose(folders, out)
    console = new_console()
    print_run(console, out)
    print_place(console, out)


def _put_together(federation: LocalFederation) -> bool:
    """Compose one run directory of all peers' records. False where there are no records yet."""
    from pens.network.federation.records import compose

    folders = [member.folder for member in federation.members]
    if not any((folder / "history.parquet").is_file() for folder in folders):
        return False
    compose(folders, federation.run_folder)
    return True

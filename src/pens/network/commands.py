"""`pens certs …`: a federation's certificates on the command line. Parsing and printing only.

The libraries that this needs are an extra, so they are imported when a command runs, and who has not installed them
gets one line that says what to do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from pens.errors import SettingsError

certs = typer.Typer(
    name="certs", no_args_is_help=True, help="Make and revoke the certificates by which real peers know each other."
)

Folder = Annotated[Path, typer.Option("--dir", help="The authority's folder; keep it to yourself.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
CERTS = Path("certs")
_EXTRA = ("grpc", "google", "cryptography", "prometheus_client")


@contextmanager
def needs_network_extra() -> Iterator[None]:
    """Around imports of the extra's libraries."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _EXTRA:
            raise
        raise SettingsError(f"{error.name} is not installed; real peers need: pip install 'pens[network]'") from None


@certs.command("init")
def init_command(
    folder: Folder = CERTS,
    federation: Annotated[str, typer.Option(help="A name for the federation, shown in certificates.")] = "pens",
    days: Annotated[int, typer.Option(help="How long the authority lasts.")] = 3650,
    force: Force = False,
) -> None:
    """Make a federation's authority."""
    with needs_network_extra():
        from pens.network.identity import Authority
    authority = Authority(folder)
    authority.create(federation, days, force)
    typer.echo(f"authority {federation!r} until {authority.not_after:%Y-%m-%d}: {folder}")
    typer.echo("Whoever has authority.key can admit anybody: keep that folder on one machine, and back it up.")


@certs.command("issue")
def issue_command(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of members.")],
    folder: Folder = CERTS,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="DNS name or address for other tools; peers do not need it. Default: localhost."),
    ] = None,
    days: Annotated[int, typer.Option(help="How long the certificate lasts.")] = 365,
    force: Force = False,
) -> None:
    """Make a member's certificate and key: four files to carry to its machine."""
    with needs_network_extra():
        from pens.network.identity import Authority
    for name in names:
        files = Authority(folder).issue(name, hosts or (), days, force)
        typer.echo(f"{name}: {files.folder}")


@certs.command("revoke")
def revoke_command(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of members.")], folder: Folder = CERTS
) -> None:
    """Revoke all certificates of members, and sign a new list of those revoked."""
    with needs_network_extra():
        from pens.network.identity import Authority
    authority = Authority(folder)
    for name in names:
        gone = authority.revoke(name)
        typer.echo(f"{name}: {len(gone)} certificate{'s' if len(gone) > 1 else ''} revoked")
    typer.echo(f"Give {authority.revoked_file} to every member: a peer that runs reads it again when it changes.")


@certs.command("show")
def show_command(folder: Folder = CERTS) -> None:
    """List the certificates that were issued."""
    with needs_network_extra():
        from pens.network.identity import Authority
    authority = Authority(folder)
    now = datetime.now(UTC)
    table = Table("name", "until", "state", "serial number")
    for entry in authority.issued():
        state = "revoked" if entry.revoked else "ended" if entry.identity.not_after <= now else "good"
        table.add_row(entry.identity.name, f"{entry.identity.not_after:%Y-%m-%d}", state, f"{entry.identity.serial:x}")
    console = Console(highlight=False, emoji=False)
    console.print(table)
    console.print(f"authority {authority.federation!r} until {authority.not_after:%Y-%m-%d}", style="dim", markup=False)


def peer_command(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Who the peer is and what it holds.")],
    bootstrap: Annotated[
        list[str] | None, typer.Option(metavar="HOST:PORT", help="A member to begin with; any will do. Repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the peer's state and records, instead of that in the file.")
    ] = None,
) -> None:
    """Run one real peer, until it is told to stop. Killed at any moment, it goes on where it was when started again."""
    from pens.network.native import native_log_settings

    os.environ.update(native_log_settings())  # before gRPC is imported
    with needs_network_extra():
        from pens.network.peer_command import run_peer
    run_peer(config, tuple(bootstrap or ()), out)

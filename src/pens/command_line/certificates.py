# SPDX-License-Identifier: Apache-2.0
"""The commands `pens certs …`: for the authority of a federation, and for its members. Parsing and printing only.

The libraries that real peers need are an optional extra. They are imported when a command runs, and where they are not
installed, one line says what to install.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pens.command_line.printing import new_console
from pens.errors import SettingsError

if TYPE_CHECKING:
    from pens.network.certificates.authority import Authority

certs = typer.Typer(
    name="certs",
    no_args_is_help=True,
    help="Make, renew and revoke the certificates by which real peers identify each other.",
)

CERTS = Path("certs")
_AUTHORITY, _MEMBER = "At the authority", "At a member"
_EXTRA = ("grpc", "google", "cryptography", "prometheus_client")

Folder = Annotated[Path, typer.Option("--dir", help="The authority's folder, which holds its secret key.")]
OwnFolder = Annotated[Path, typer.Option("--dir", help="The member's folder, the setting `peer.certificates`.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Days = Annotated[int, typer.Option(help="For how many days the certificate is valid.")]
ListDays = Annotated[int, typer.Option("--days", help="For how many days the revocation list is valid.")]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        help="DNS name or address to put into the certificate, for other tools; peers do not need it.",
        show_default="localhost",
    ),
]


@contextmanager
def needs_network_extra() -> Iterator[None]:
    """Within this context a missing library of the extra becomes an error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _EXTRA:
            raise
        raise SettingsError(f"{error.name} is not installed; real peers need: pip install 'pens-fl[network]'") from None


# --- at the authority -------------------------------------------------------------------------------------------------


@certs.command("init", rich_help_panel=_AUTHORITY)
def init_command(
    folder: Folder = CERTS,
    federation: Annotated[str, typer.Option(help="A name for the federation, shown in certificates.")] = "pens",
    days: Annotated[int, typer.Option(help="For how many days the authority is valid.")] = 3650,
    force: Force = False,
) -> None:
    """Make a federation's authority, which signs and revokes the certificates of its members."""
    authority = _authority(folder)
    authority.create(federation, days, force)
    typer.echo(f"authority {federation!r} until {authority.not_after:%Y-%m-%d}: {folder}")
    typer.echo("Anyone with authority.key can admit members: keep that folder on one machine, and back it up.")
    _print_fingerprints(authority)
    _print_lists_end(authority)


@certs.command("sign", rich_help_panel=_AUTHORITY)
def sign_command(
    file: Annotated[Path, typer.Argument(metavar="NAME.csr", help="A member's request (`pens certs request`).")],
    folder: Folder = CERTS,
    hosts: Hosts = None,
    days: Days = 365,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the answer.", show_default="NAME.pem beside the request")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Sign although that member has a certificate for another key.")
    ] = False,
) -> None:
    """Check a member's request, and write the answer to send back: nothing in it is secret."""
    authority = _authority(folder)
    from pens.network.certificates.key_files import read_file, write_file
    from pens.network.certificates.requests import key_words, read_request

    request = read_request(read_file(file), str(file))
    answer = authority.sign(request, hosts or (), days, force)
    place = out or file.with_name(f"{request.name}.pem")
    write_file(place, answer, 0o644)
    typer.echo(f"{request.name}: {place}")
    typer.echo(f"its key: {key_words(request.key)}")
    left_out = [host for host in request.hosts if host not in (hosts or ())]
    if left_out:
        typer.echo(f"not taken from the request: {', '.join(left_out)} (--host puts a host name into the certificate)")


@certs.command("issue", rich_help_panel=_AUTHORITY)
def issue_command(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names of members.")],
    folder: Folder = CERTS,
    hosts: Hosts = None,
    days: Days = 365,
    force: Force = False,
) -> None:
    """Make a member's certificate and its key, too: for first tries, since the key should never travel."""
    authority = _authority(folder)
    for name in names:
        files = authority.issue(name, hosts or (), days, force)
        typer.echo(f"{name}: {files.folder}")


@certs.command("revoke", rich_help_panel=_AUTHORITY)
def revoke_command(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names of members.")],
    folder: Folder = CERTS,
    days: ListDays = 30,
) -> None:
    """Revoke all certificates of members, and sign a new list of those revoked."""
    authority = _authority(folder)
    for name in names:
        gone = authority.revoke(name, days)
        typer.echo(f"{name}: {len(gone)} certificate{'s' if len(gone) > 1 else ''} revoked")
    _print_lists_end(authority)


@certs.command("refresh", rich_help_panel=_AUTHORITY)
def refresh_command(folder: Folder = CERTS, days: ListDays = 30) -> None:
    """Sign the revocation list anew before it ends: once a week, for instance."""
    authority = _authority(folder)
    authority.refresh(days)
    _print_lists_end(authority)


@certs.command("rotate", rich_help_panel=_AUTHORITY)
def rotate_command(
    folder: Folder = CERTS,
    days: Annotated[int, typer.Option(help="For how many days the new authority is valid.")] = 3650,
    finish: Annotated[bool, typer.Option("--finish", help="Remove the old authority.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Finish although members' certificates need the old.")] = False,
) -> None:
    """Make a new authority beside the old one; or, with --finish, remove the old one."""
    authority = _authority(folder)
    if finish:
        left = authority.finish_rotation(force)
        typer.echo("the old authority is removed" + (f"; trusted no more: {', '.join(left)}" if left else ""))
    else:
        authority.rotate(days)
        typer.echo(f"a new authority until {authority.not_after:%Y-%m-%d}: it signs from now on")
        typer.echo("Let all members install authority.pem and revoked.pem before you sign with it.")
    _print_fingerprints(authority)
    _print_lists_end(authority)


@certs.command("show", rich_help_panel=_AUTHORITY)
def show_command(folder: Folder = CERTS) -> None:
    """List the certificates that were issued."""
    from rich.table import Table

    authority = _authority(folder)
    from pens.network.certificates.authorities import key_id

    newest = key_id(authority.certificates[0])
    now = datetime.now(UTC)
    table = Table("name", "until", "state", "serial number")
    for entry in authority.issued():
        identity = entry.identity
        state = "revoked" if entry.revoked else "ended" if identity.not_after <= now else "good"
        if entry.issuer is None:
            state = "of a former authority"
        elif state == "good" and entry.issuer != newest:
            state = "good, of the old authority"
        table.add_row(identity.name, f"{identity.not_after:%Y-%m-%d}", state, f"{identity.serial:x}")
    console = new_console()
    console.print(table)
    console.print(f"authority {authority.federation!r} until {authority.not_after:%Y-%m-%d}", style="dim", markup=False)
    console.print(f"revocation list until {authority.lists_end:%Y-%m-%d}", style="dim", markup=False)


# --- at a member ------------------------------------------------------------------------------------------------------


@certs.command("request", rich_help_panel=_MEMBER)
def request_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The member's name.")], folder: OwnFolder = CERTS
) -> None:
    """Make a key, and a request to send to the authority; the key stays here."""
    with needs_network_extra():
        from pens.network.certificates.credentials import MemberFiles
        from pens.network.certificates.installing import write_request
        from pens.network.certificates.requests import key_words
    files = MemberFiles(folder)
    key = write_request(files, name)
    typer.echo(f"send to the authority: {files.request(name)}")
    typer.echo(f"its key: {key_words(key)}")


@certs.command("install", rich_help_panel=_MEMBER)
def install_command(
    answers: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="The authority's answer; or authority.pem and revoked.pem.")
    ],
    folder: OwnFolder = CERTS,
    fingerprints: Annotated[
        list[str] | None, typer.Option("--fingerprint", help="Of an authority to trust from now on.")
    ] = None,
) -> None:
    """Check what the authority sent, and put it in place. A peer that runs uses it within seconds."""
    with needs_network_extra():
        from pens.network.certificates.authorities import title
        from pens.network.certificates.credentials import MemberFiles
        from pens.network.certificates.installing import install
        from pens.network.certificates.key_files import read_file
    data = b"\n".join(map(read_file, answers))
    installed = install(MemberFiles(folder), data, ", ".join(map(str, answers)), fingerprints or ())
    for authority in installed.new_authorities:
        typer.echo(f"trusted from now on: {title(authority)}")
    if installed.material is not None:
        identity = installed.material.identity
        typer.echo(f"{identity.name} until {identity.not_after:%Y-%m-%d}: {folder}")
    else:
        typer.echo(f"in place, beside the certificate that was there: {folder}")


def _authority(folder: Path) -> Authority:
    with needs_network_extra():
        from pens.network.certificates.authority import Authority
    return Authority(folder)


def _print_fingerprints(authority: Authority) -> None:
    from pens.network.certificates.authorities import fingerprint

    for certificate in authority.certificates:
        typer.echo(f"fingerprint: {fingerprint(certificate)}")


def _print_lists_end(authority: Authority) -> None:
    day = f"{authority.lists_end:%Y-%m-%d}"
    typer.echo(f"Give {authority.revoked_file} to any one member before {day}: the others get it from that one.")

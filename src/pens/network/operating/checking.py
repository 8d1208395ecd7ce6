# SPDX-License-Identifier: Apache-2.0
"""`pens peer --check`: compares this peer's terms with those of the members that it would contact first.

Nothing is trained, written or listened to, so that it can run beside the peer itself. The members that are asked log
what does not fit, too, but nothing changes for them.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from pens.errors import SettingsError, TransportError
from pens.network.certificates.credentials import Credentials
from pens.network.members.agreement import Compared, compare, fingerprint
from pens.network.operating.assembly import load_holding, trial_terms
from pens.network.operating.peer_command import credentials_of, dialling_of
from pens.network.operating.peer_config import parse_address, read_peer_config
from pens.network.transport.channels import Channels
from pens.network.transport.dialling import Dialling
from pens.network.transport.grpc_client import MemberCaller
from pens.network.transport.grpc_transport import Limits
from pens.network.transport.interface import Address, TransportCounts
from pens.network.transport.list_exchange import ListExchange
from pens.network.transport.terms import Terms
from pens.network.transport.versions import FIRST

_ATTEMPTS = 2


@dataclass(frozen=True)
class Asked:
    """What came of asking one member."""

    address: Address
    name: str | None
    """None: nobody answered."""
    compared: tuple[Compared, ...] = ()
    why: str = ""
    """Why nobody answered."""
    software: str = ""

    @property
    def fits(self) -> bool:
        return self.name is not None and not any(part.keeps_apart for part in self.compared)


@dataclass(frozen=True)
class Check:
    """What `pens peer --check` found."""

    peer: str
    fingerprint: str
    members: tuple[Asked, ...]

    @property
    def status(self) -> int:
        """The exit status: 0 if all members that answered fit, 1 if one does not, 2 if nobody answered."""
        answered = [member for member in self.members if member.name is not None]
        return 2 if not answered else int(not all(member.fits for member in answered))


@dataclass
class _Listening:
    """An accord that takes note of the terms of whoever answers."""

    terms: Terms
    heard: dict[str, Terms] = field(default_factory=dict)

    def hear(self, member: str, terms: Terms | None) -> None:
        self.heard[member] = terms or Terms(FIRST)

    def refusal(self, member: str) -> str | None:
        return None

    def fits(self, member: str) -> bool:
        return False


def check_peer(path: Path, bootstrap: tuple[str, ...] = ()) -> Check:
    """Compare the terms of the peer that a file describes with those of its bootstrap members."""
    config = read_peer_config(path, bootstrap)
    if not config.peer.bootstrap:
        raise SettingsError("peer.bootstrap is empty: name at least one member to compare with, or pass --bootstrap")
    credentials = credentials_of(config)
    terms = trial_terms(config, load_holding(config))
    addresses = dict.fromkeys(parse_address(text) for text in config.peer.bootstrap)
    members = asyncio.run(ask(credentials, terms, tuple(addresses), dialling_of(config), config.peer.proxy))
    return Check(config.peer.name, fingerprint(terms), members)


async def ask(
    credentials: Credentials,
    terms: Terms,
    addresses: tuple[Address, ...],
    dialling: Dialling,
    proxy: str | None = None,
) -> tuple[Asked, ...]:
    """Ask whoever is at these addresses, one after the other."""
    accord = _Listening(terms)
    limits = Limits(attempts=_ATTEMPTS)
    lists = ListExchange(credentials, limits.lists_s, time.monotonic)
    channels = Channels(credentials, limits, dialling, proxy)
    caller = MemberCaller(credentials, limits, TransportCounts(), random.Random(), lists, channels, accord)
    try:
        return tuple([await _ask(caller, accord, address) for address in addresses])
    finally:
        await caller.close()


async def _ask(caller: MemberCaller, accord: _Listening, address: Address) -> Asked:
    try:
        name = await caller.meet(address)
    except TransportError as error:
        return Asked(address, None, why=str(error).removeprefix(f"{address}: "))
    theirs = accord.heard[name]
    return Asked(address, name, compare(accord.terms, theirs), software=theirs.software)

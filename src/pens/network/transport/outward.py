# SPDX-License-Identifier: Apache-2.0
"""Members that can only call out: how their addresses look, and how a member itself reaches others."""

from __future__ import annotations

from dataclasses import dataclass

from pens.network.certificates.names import peer_id
from pens.network.transport.interface import Address

_ENDING = ".attached.invalid"  # .invalid: no name server knows it (RFC 2606), so that nobody can be dialled there


@dataclass(frozen=True, slots=True)
class Ways:
    """How a member reaches others, and is reached by them."""

    reachable: bool = True
    """Others can open connections to it. If not, it listens nowhere, and attaches itself to members that can be
    reached."""
    relay: bool = False
    """It carries bytes between members of which the one that is called cannot be reached."""
    proxy: str | None = None
    """The HTTP proxy through which it calls others, by CONNECT; None: none."""


def attached_address(name: str) -> Address:
    """What stands in the place of an address for a member that cannot be called: a host that follows from its name."""
    return Address(f"m{peer_id(name)}{_ENDING}", 1)


def is_attached(address: Address) -> bool:
    """Whether an address is that of a member that cannot be called."""
    return address.host.endswith(_ENDING)

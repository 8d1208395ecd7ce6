# SPDX-License-Identifier: Apache-2.0
"""Which addresses a member calls. Other members tell where somebody listens, and may name any address there is.

Without bounds, a member could let all others call the services of their own machines and networks. So a name is
resolved here, not by gRPC, and the call goes to an address that was checked, so that a name cannot mean another address
a moment later. Never called are link-local, multicast and unspecified addresses and those at which clouds offer secrets
to their machines; loopback is called only by members that are themselves on loopback. An operator can name the networks
that may be called (`peer.networks`). What the operator wrote as `peer.bootstrap` may be called in any case.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from pens.errors import TransportError
from pens.network.transport.interface import Address
from pens.printable import printable

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_LOOKUPS = 32  # at a time: a name server of another's choice may take half a minute for each
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_NUMBER = re.compile(r"\d+|0[xX][0-9a-fA-F]*")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NEVER: tuple[IpNetwork, ...] = (
    ipaddress.IPv4Network("0.0.0.0/8"),
    ipaddress.IPv4Network("240.0.0.0/4"),
    ipaddress.IPv4Network("100.100.100.200/32"),  # metadata of a cloud, outside the link-local range
    ipaddress.IPv4Network("192.0.0.192/32"),
    ipaddress.IPv6Network("fd00:ec2::254/128"),
)


def is_host(host: str) -> bool:
    """Whether this is a DNS name, or an IP address in its usual notation: 2852039166 and 0xa9.254.1 are neither."""
    if _HOST.fullmatch(host) and not _NUMBER.fullmatch(host.rpartition(".")[2]):
        return True
    return "%" not in host and _is_literal(host)


class Dialling:
    """Decides which addresses are called, and resolves names."""

    def __init__(
        self, own_host: str, networks: Sequence[IpNetwork] = (), bootstrap: Collection[Address] = frozenset()
    ) -> None:
        """`own_host`: where others find this member. `networks`: the only ones to call; none: all."""
        self._on_loopback = _names_loopback(own_host)
        self._networks, self._bootstrap = tuple(networks), frozenset(bootstrap)
        self._lookups = ThreadPoolExecutor(_LOOKUPS, "names")

    async def resolve(self, to: Address) -> list[IpAddress]:
        """The addresses to call; `TransportError` if there are none that may be called, OSError if none is known."""
        if not is_host(to.host):
            raise TransportError(f"{printable(to.host)} is neither a DNS name nor an IP address: it is not called")
        found = await self._look_up(to.host)
        if to in self._bootstrap:
            return found
        reasons = {ip: self.why_not(ip) for ip in found}
        allowed = [ip for ip, why in reasons.items() if why is None]
        if not allowed:
            raise TransportError(f"{to} is not called: " + "; ".join(f"{ip} {why}" for ip, why in reasons.items()))
        return allowed

    def check_unresolved(self, to: Address) -> None:
        """Raise `TransportError` where a name that a proxy will resolve, or an address, may not be called."""
        if not is_host(to.host):
            raise TransportError(f"{printable(to.host)} is neither a DNS name nor an IP address: it is not called")
        if to not in self._bootstrap and (why := self._why_not_unresolved(to.host)):
            raise TransportError(f"{to} is not called: {to.host} {why}")

    def _why_not_unresolved(self, host: str) -> str | None:
        if _is_literal(host):
            return self.why_not(ipaddress.ip_address(host))
        if _names_loopback(host) and not self._on_loopback:
            return "is on loopback, but peer.advertise is not"
        return "is a name that only the proxy resolves, but there is peer.networks" if self._networks else None

    def why_not(self, ip: IpAddress) -> str | None:
        """Why an address is not called; None if it may be."""
        for meant in _meant_by(ip):
            if meant.is_link_local or meant.is_multicast or meant.is_unspecified or _is_in(meant, _NEVER):
                return "is link-local, multicast, or reserved"
            if meant.is_loopback and not self._on_loopback:
                return "is on loopback, but peer.advertise is not"
        if self._networks and not _is_in(ip, self._networks):
            return "is in none of peer.networks"
        return None

    async def _look_up(self, host: str) -> list[IpAddress]:
        if _is_literal(host):
            return [ipaddress.ip_address(host)]
        loop = asyncio.get_running_loop()
        lines = await loop.run_in_executor(
            self._lookups, lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        )
        hosts = dict.fromkeys(str(where[0]).partition("%")[0] for *_, where in lines)
        return [_plain(ipaddress.ip_address(host)) for host in hosts]

    def close(self) -> None:
        """Wait for no further lookups."""
        self._lookups.shutdown(wait=False, cancel_futures=True)


def _names_loopback(host: str) -> bool:
    try:
        return _plain(ipaddress.ip_address(host)).is_loopback
    except ValueError:
        return host.casefold().rstrip(".").rpartition(".")[2] == "localhost"


def _is_literal(host: str) -> bool:
    """Whether this is an IP address, and no name."""
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _is_in(ip: IpAddress, networks: Sequence[IpNetwork]) -> bool:
    return any(_plain(ip) in network for network in networks)


def _plain(ip: IpAddress) -> IpAddress:
    """An IPv4 address that is written as one of IPv6 (::ffff:10.0.0.1), as itself."""
    return ip.ipv4_mapped or ip if isinstance(ip, ipaddress.IPv6Address) else ip


def _meant_by(ip: IpAddress) -> list[IpAddress]:
    """The address, and the IPv4 address in it to which a router may translate it."""
    plain = _plain(ip)
    if not isinstance(plain, ipaddress.IPv6Address):
        return [plain]
    inner = plain.sixtofour or (ipaddress.IPv4Address(int(plain) & 0xFFFFFFFF) if plain in _NAT64 else None)
    return [plain, inner] if inner else [plain]

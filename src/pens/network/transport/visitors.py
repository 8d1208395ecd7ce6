# SPDX-License-Identifier: Apache-2.0
"""Which connections are open, whose they are, and which of them give way. No socket, clock or task.

A connection begins as a stranger's. It becomes a member's with its first call, which shows the member's certificate.
Three rules keep one caller from taking the connections of all:

    of a host      strangers of one address (IPv6: of one /64) have a bound; beyond it, its oldest stranger gives way
    of a member    each member has a bound; beyond it, the member's connection that it used longest ago gives way
    of all         strangers always find room: members' connections have a bound of their own, below that of all. Of too
                   many connections one gives way of the host, or the member, that has the most

Connections that carry a tunnel count only for all: each is a call that lasts, and tunnels have bounds of their own.

The newer connection stays, not the older: a member that restarts, or whose line was cut, would otherwise be kept out by
its own dead connections.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from pens.network.transport.limits import Limits

C = TypeVar("C", bound=Hashable)
"""A connection."""


@dataclass(slots=True)
class _Visitor:
    """One connection. `member`: None before its first call."""

    place: str
    used: float
    """When it was opened, or when its latest call began."""
    member: str | None = None
    tunnels: int = 0
    """How many of its calls are tunnels."""


class Visitors(Generic[C]):
    """The open connections."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[C, _Visitor] = {}  # in the order in which they came

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[C]:
        return iter(self._open)

    def member_of(self, connection: C) -> str | None:
        """The member whose connection it is; None: a stranger's, or closed."""
        visitor = self._open.get(connection)
        return visitor.member if visitor else None

    def arrive(self, connection: C, place: str, now: float) -> list[C]:
        """Note a new connection; return those that give way to it. `place`: see `place_of`."""
        same = self._strangers(place)
        gone = []
        if len(same) >= self._limits.connections_of_host:
            gone = [self._longest_unused(same)]
        elif len(self._open) >= self._limits.incoming_connections:
            gone = self._of_most(self._strangers() or self._free(self._open))
        self._open[connection] = _Visitor(place, now)
        return self._closed(gone)

    def recognise(self, connection: C, member: str, now: float) -> list[C]:
        """Note that a member calls over a connection; return those that give way to it."""
        if connection not in self._open:
            return []
        visitor = self._open[connection]
        visitor.member, visitor.used = member, now
        others = [c for c, v in self._open.items() if v.member is not None and c != connection]
        free = self._free(others)
        its = [c for c in free if self._open[c].member == member]
        gone = []
        if len(its) >= self._limits.connections_of_member:
            gone = [self._longest_unused(its)]
        elif len(others) >= self._limits.known_connections:
            gone = self._of_most(free)
        return self._closed(gone)

    @contextmanager
    def carrying(self, connection: C) -> Iterator[None]:
        """A tunnel goes over this connection while the block lasts: it gives way to no other."""
        visitor = self._open.get(connection) or _Visitor("", 0.0)
        visitor.tunnels += 1
        try:
            yield
        finally:
            visitor.tunnels -= 1

    def leave(self, connection: C) -> None:
        """Forget a connection that was closed."""
        self._open.pop(connection, None)

    def _strangers(self, place: str | None = None) -> list[C]:
        return [c for c, v in self._open.items() if v.member is None and place in (None, v.place)]

    def _free(self, among: Iterable[C]) -> list[C]:
        """Those that carry no tunnel."""
        return [c for c in among if not self._open[c].tunnels]

    def _of_most(self, among: list[C]) -> list[C]:
        """Of the place, or the member, that has the most of these: the connection that was used longest ago."""
        if not among:
            return []
        owners = {c: self._open[c].member or self._open[c].place for c in among}
        most, _ = Counter(owners.values()).most_common(1)[0]
        return [self._longest_unused(c for c in among if owners[c] == most)]

    def _longest_unused(self, among: Iterable[C]) -> C:
        return min(among, key=lambda c: self._open[c].used)

    def _closed(self, gone: list[C]) -> list[C]:
        for connection in gone:
            del self._open[connection]
        return gone


def place_of(host: str) -> str:
    """By what strangers are counted: an IPv4 address, or the /64 of an IPv6 address, which one caller has whole."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)

# SPDX-License-Identifier: Apache-2.0
"""Where connections come in: they are counted, and bounded in what they send; gRPC gets their bytes, still encrypted.

Theory of operation. gRPC for Python tells nothing of a connection before its first call, and cannot close one. So gRPC
listens on loopback alone, and an `Entrance` listens in its place. For each connection that comes in, it makes one of
its own to gRPC and copies bytes both ways (`relay`); TLS goes through from end to end. gRPC sees each connection at a
port of its own, which `context.peer()` tells. By that port a call is assigned to the connection that it came over, and
the connection to the member in its certificate (`recognise`).

    member ──▶ Entrance: accept, count, meter ──▶ 127.0.0.1:port of the connection ──▶ gRPC: TLS, calls

A connection costs gRPC nothing before its first bytes. A stranger may send `stranger_bytes`, enough for a handshake and
the beginning of a call, and has `call_s` for its first call. What a member sends is metered over all of its
connections: at most `bytes_per_minute`, in a burst or spread; beyond that its bytes wait in its own machine. Which
connections give way when there are too many is decided in `visitors`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from pens.network.transport.interface import Address, TransportCounts
from pens.network.transport.limits import Limits, RateLimit
from pens.network.transport.relay import Relay
from pens.network.transport.visitors import Visitors, place_of

_BACKLOG = 512
_WILDCARDS = ("0.0.0.0", "::")
_log = logging.getLogger("pens.network")


class Doors(Protocol):
    """What a server has to know of the connections that its calls come over. `peer`: as gRPC names it."""

    def recognise(self, peer: str, member: str) -> bool:
        """Note that a member calls over a connection. False: it is not a connection that may be used."""
        ...

    def end(self, peer: str) -> None:
        """Close the connection of a call."""
        ...

    def shown(self, peer: str) -> str:
        """Where a call came from, for the log."""
        ...

    def carrying(self, peer: str) -> AbstractContextManager[None]:
        """A tunnel goes over this connection while the block lasts: it gives way to no other connection."""
        ...


class Entrance:
    """Accepts connections for a gRPC server, and closes those that are too many."""

    def __init__(self, limits: Limits, traffic: TransportCounts, clock: Callable[[], float]) -> None:
        self._limits, self._traffic, self._clock = limits, traffic, clock
        self._visitors: Visitors[Relay] = Visitors(limits)
        self._arrivals = RateLimit(limits.handshakes_per_s, limits.burst_handshakes, clock)
        self._bytes = RateLimit(limits.bytes_per_minute / 60, limits.bytes_per_minute, clock)
        self._early: dict[Relay, int] = {}  # bytes of strangers
        self._server: asyncio.Server | None = None

    async def open(self, listening: socket.socket, inner_port: int) -> None:
        """Accept connections. `inner_port`: where gRPC listens on loopback."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Relay(self, inner_port), sock=listening)

    def close(self) -> None:
        """Accept no more connections; those that are open stay."""
        if self._server:
            self._server.close()

    def abort(self) -> None:
        """Close all connections."""
        for relay in list(self._visitors):
            relay.abort()

    # --- calls --------------------------------------------------------------------------------------------------------

    def recognise(self, peer: str, member: str) -> bool:
        """Note that a member calls over a connection. `peer`: as gRPC names it. False: it did not come in here."""
        relay = self._relay(peer)
        if relay is None:
            return False
        most = self._limits.connections_of_member
        gone = self._visitors.recognise(relay, member, self._clock())
        self._give_way(gone, f"{member} has more than {most}, or all are taken")
        if self._early.pop(relay, None) is not None:
            relay.meet()
        return True

    def end(self, peer: str) -> None:
        """Close the connection of a call. `peer`: as gRPC names it."""
        if relay := self._relay(peer):
            relay.abort()

    def shown(self, peer: str) -> str:
        """Where a call came from, for the log. `peer`: as gRPC names it."""
        relay = self._relay(peer)
        return relay.address if relay else peer

    @contextmanager
    def carrying(self, peer: str) -> Iterator[None]:
        """A tunnel goes over this connection while the block lasts. `peer`: as gRPC names it."""
        relay = self._relay(peer)
        if relay is None:
            yield
            return
        with self._visitors.carrying(relay):
            yield

    def _relay(self, peer: str) -> Relay | None:
        port = peer.rpartition(":")[2]
        return next((relay for relay in self._visitors if str(relay.port) == port), None)

    # --- connections (Doorkeeper) -------------------------------------------------------------------------------------

    def arrive(self, relay: Relay) -> bool:
        """Whether a new connection may stay."""
        place = place_of(relay.host)
        if not self._arrivals.take(place):
            self._note(f"refused a connection: {place} makes too many")
            return False
        self._give_way(self._visitors.arrive(relay, place, self._clock()), f"{place} has made another one")
        self._early[relay] = 0
        asyncio.get_running_loop().call_later(self._limits.call_s, self._end_stranger, relay)
        return True

    def came(self, relay: Relay, size: int) -> float:
        """Note bytes that came over a connection; the seconds that the next ones must wait."""
        member = self._visitors.member_of(relay)
        if member is not None:
            return self._bytes.spend(member, size)
        self._early[relay] = self._early.get(relay, 0) + size
        return math.inf if self._early[relay] >= self._limits.stranger_bytes else 0.0

    def leave(self, relay: Relay) -> None:
        """Forget a connection that is closed."""
        self._visitors.leave(relay)
        self._early.pop(relay, None)

    def _end_stranger(self, relay: Relay) -> None:
        if relay in self._early:
            relay.abort()

    def _give_way(self, gone: list[Relay], why: str) -> None:
        for relay in gone:
            self._early.pop(relay, None)
            self._note(f"closed a connection: {why}")
            relay.abort()

    def _note(self, message: str) -> None:
        self._traffic.refusals["connections"] += 1
        _log.info("%s", message, extra={"reason": "connections"})


def listening_at(address: Address) -> socket.socket:
    """A socket that listens there; OSError if the address is taken, or not this machine's."""
    if address.host in _WILDCARDS and socket.has_dualstack_ipv6():
        return socket.create_server(("::", address.port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    family, *_, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(where[:2], family=family, backlog=_BACKLOG)

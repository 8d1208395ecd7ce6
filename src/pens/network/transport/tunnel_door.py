# SPDX-License-Identifier: Apache-2.0
"""Where connections come in at a member that nobody can call: through tunnels that it opened itself.

Such a member has no `Entrance`. Tunnels have bounds of their own, at both ends and at relays. What is left to do here
is what only the far end of a tunnel knows: whose connection goes through it. A member has as many through tunnels as
through an entrance, beyond which the one that it used longest ago gives way, and may send as many bytes per minute. A
connection over which nobody has called within `call_s` is closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from pens.network.transport.interface import TransportCounts
from pens.network.transport.limits import Limits, RateLimit
from pens.network.transport.visitors import Visitors

_log = logging.getLogger("pens.network")


class TunnelDoor:
    """The connections that came through tunnels. Each has a local socket with a name, by which gRPC names its calls."""

    def __init__(self, limits: Limits, traffic: TransportCounts, clock: Callable[[], float]) -> None:
        self._limits, self._traffic, self._clock = limits, traffic, clock
        self._visitors: Visitors[str] = Visitors(limits)
        self._close: dict[str, Callable[[], None]] = {}
        self._via: dict[str, str] = {}
        self._bytes = RateLimit(limits.bytes_per_minute / 60, limits.bytes_per_minute, clock)
        self._numbers = count()

    async def connect(self, door: Path, via: str) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the own server's socket for a tunnel. `via`: the member through which it goes."""
        name = f"t{next(self._numbers)}"
        place = door.with_name(name)
        inner = socket.socket(socket.AF_UNIX)
        try:
            inner.setblocking(False)
            inner.bind(str(place))
            await asyncio.get_running_loop().sock_connect(inner, str(door))
            reader, writer = await asyncio.open_unix_connection(sock=inner)
        except BaseException:
            inner.close()
            raise
        finally:
            place.unlink(missing_ok=True)  # the socket keeps its name
        self._close[name], self._via[name] = writer.close, via
        self._give_way(self._visitors.arrive(name, via, self._clock()))
        asyncio.get_running_loop().call_later(self._limits.call_s, self._end_stranger, name)
        return name, reader, writer

    def came(self, name: str, size: int) -> float:
        """Note bytes that came over a connection; the seconds that the next ones must wait."""
        return self._bytes.spend(self._visitors.member_of(name) or self._via[name], size)

    def leave(self, name: str) -> None:
        """Forget a connection that is closed."""
        self._visitors.leave(name)
        self._close.pop(name, None)
        self._via.pop(name, None)

    # --- calls (Doors) ------------------------------------------------------------------------------------------------

    def recognise(self, peer: str, member: str) -> bool:
        """Note that a member calls over a connection. `peer`: as gRPC names it. False: it was closed."""
        name = _name(peer)
        if name not in self._close:
            return False
        self._give_way(self._visitors.recognise(name, member, self._clock()))
        return True

    def end(self, peer: str) -> None:
        """Close the connection of a call. `peer`: as gRPC names it."""
        if close := self._close.get(_name(peer)):
            close()

    def shown(self, peer: str) -> str:
        """Where a call came from, for the log. `peer`: as gRPC names it."""
        via = self._via.get(_name(peer))
        return f"tunnel by {via}" if via else peer

    @contextmanager
    def carrying(self, peer: str) -> Iterator[None]:
        """Nothing: nobody attaches to a member that cannot be called."""
        yield

    # --- too many -----------------------------------------------------------------------------------------------------

    def _end_stranger(self, name: str) -> None:
        if name in self._close and self._visitors.member_of(name) is None:
            self._close[name]()

    def _give_way(self, gone: list[str]) -> None:
        for name in gone:
            self._traffic.refusals["connections"] += 1
            _log.info("closed a connection through a tunnel", extra={"via": self._via[name], "reason": "connections"})
            self._close[name]()


def _name(peer: str) -> str:
    return peer.rpartition("/")[2]

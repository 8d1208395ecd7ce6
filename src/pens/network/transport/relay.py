# SPDX-License-Identifier: Apache-2.0
"""A connection from outside, and the one to gRPC that it is joined to: bytes go both ways, as fast as both sides take.

Each side is read only while the other one takes what was read, so that a connection holds at most a few buffers. The
side outside is also held back by its `Doorkeeper`: while nobody has called over it, and while its member sends too
much.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from pens.network.transport.interface import Address

INSIDE = "127.0.0.1"
_BUFFER_BYTES = 64 << 10


class Doorkeeper(Protocol):
    """What decides about connections."""

    def arrive(self, relay: Relay) -> bool:
        """Whether a new connection may stay."""
        ...

    def came(self, relay: Relay, size: int) -> float:
        """Note bytes that came from outside; the seconds that the next ones must wait; infinity: until `meet`."""
        ...

    def leave(self, relay: Relay) -> None:
        """Note that a connection is closed."""
        ...


class _Half(asyncio.Protocol):
    """One of the two connections. It is not read from while there is a reason in `held`."""

    def __init__(self, taken: Callable[[_Half, bytes], None], lost: Callable[[], None]) -> None:
        self._taken, self._lost = taken, lost
        self.transport: asyncio.Transport | None = None
        self.other: _Half | None = None
        self._held: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        self._taken(self, data)

    def pause_writing(self) -> None:
        if self.other:
            self.other.hold("full")

    def resume_writing(self) -> None:
        if self.other:
            self.other.release("full")

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost()

    def hold(self, why: str) -> None:
        self._held.add(why)
        if self.transport:
            self.transport.pause_reading()

    def release(self, why: str) -> None:
        self._held.discard(why)
        if self.transport and not self._held and not self.transport.is_closing():
            self.transport.resume_reading()


class Relay(_Half):
    """A connection from outside, joined to one of its own to gRPC."""

    def __init__(self, keeper: Doorkeeper, inner_port: int) -> None:
        super().__init__(lambda _, data: self._from_outside(data), self._end)
        self._keeper, self._inner_port = keeper, inner_port
        self._inside: _Half | None = None
        self._joining: asyncio.Task[None] | None = None
        self._early = b""  # what came before it was joined
        self._timer: asyncio.TimerHandle | None = None
        self.host = ""
        """The address of the caller."""
        self.address = ""
        """The same with its port, for the log."""
        self.port: int | None = None
        """The port of loopback at which gRPC sees this connection; None before it is joined."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.host, port = (transport.get_extra_info("peername") or ("::", 0))[:2]
        self.address = str(Address(self.host, port))
        if not self._keeper.arrive(self):
            self.abort()

    def meet(self) -> None:
        """A member has called over this connection: it may send more."""
        self.release("stranger")

    def abort(self) -> None:
        """Close both sides at once, without the bytes that wait."""
        for half in (self, self._inside):
            if half and half.transport:
                half.transport.abort()

    def _from_outside(self, data: bytes) -> None:
        if self._inside and self._inside.transport:
            self._inside.transport.write(data)
        else:
            self._early += data
            self.hold("joining")
            self._joining = self._joining or asyncio.get_running_loop().create_task(self._join())
        wait_s = self._keeper.came(self, len(data))
        if wait_s == float("inf"):
            self.hold("stranger")
        elif wait_s:
            self.hold("rate")
            self._timer = asyncio.get_running_loop().call_later(wait_s, self.release, "rate")

    async def _join(self) -> None:
        inside = _Half(lambda _, data: self._to_outside(data), self._end)
        try:
            await asyncio.get_running_loop().create_connection(lambda: inside, INSIDE, self._inner_port)
        except OSError:
            self.abort()
            return
        assert inside.transport
        self.port = int(inside.transport.get_extra_info("sockname")[1])
        self._inside, self.other, inside.other = inside, inside, self
        inside.transport.write(self._early)
        self._early = b""
        self.release("joining")

    def _to_outside(self, data: bytes) -> None:
        if self.transport:
            self.transport.write(data)

    def _end(self) -> None:
        """One side is closed: close the other one, when it has what was sent to it."""
        for half in (self, self._inside):
            if half and half.transport:
                half.transport.close()
        if self._joining:
            self._joining.cancel()
        if self._timer:
            self._timer.cancel()
        self._keeper.leave(self)

# SPDX-License-Identifier: Apache-2.0
"""The calling side of tunnels: a member that cannot be called attaches itself to others, and others find a way to it.

gRPC connects to sockets, not to streams of another call. So each member that cannot be called gets a local socket here,
in a folder that only this user can enter. What gRPC writes there goes through a tunnel (`tunnels`): one of its own
where the other is attached to this member, otherwise one through a relay to which both have a connection. At the other
end the bytes go to the local socket at which that member's own server listens. Both servers and callers work as over a
usual connection, with the same certificates, bounds and checks.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from pens.errors import TransportError
from pens.network.certificates.names import exact_dns_name
from pens.network.transport.channels import Channels, error_of
from pens.network.transport.grpc_client import Exact
from pens.network.transport.grpc_server import SERVICE
from pens.network.transport.interface import Address
from pens.network.transport.limits import Limits
from pens.network.transport.terms import Terms
from pens.network.transport.tunnel_door import TunnelDoor
from pens.network.transport.tunnels import CHUNK_BYTES, End, NoTunnel, Switchboard, TunnelLimits, splice
from pens.network.transport.wire import (
    TICKET,
    TO,
    WireError,
    check_address,
    decode_piece,
    decode_wanted,
    encode_piece,
)

OPEN = "pens-tunnel"  # in the metadata of an answer: the tunnel is there
_TRIES = 10  # in a row, to attach to one member; it is tried again when it is met again
_LASTING_S = 60.0  # an attachment that lasted so long did not fail
_RELAYS_TRIED = 4
_log = logging.getLogger("pens.network")


class CallEnd:
    """The end of a tunnel that is a call of gRPC: of a caller, or the context of a server."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def read(self) -> bytes:
        try:
            message = await self._call.read()
            return b"" if message is aio.EOF else bytes(decode_piece(message))
        except (aio.AioRpcError, WireError):
            return b""

    async def write(self, data: bytes) -> None:
        await self._call.write(encode_piece(memoryview(data)))

    def close(self) -> None:
        self._call.cancel()


class _Metered(CallEnd):
    """The end of a tunnel whose bytes wait in the machine of their sender while it sends too much."""

    def __init__(self, call: Any, came: Callable[[int], float]) -> None:
        super().__init__(call)
        self._came = came

    async def read(self) -> bytes:
        data = await super().read()
        await asyncio.sleep(self._came(len(data)))
        return data


class SocketEnd:
    """The end of a tunnel that is a local socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        try:
            return await self._reader.read(CHUNK_BYTES)
        except ConnectionError:
            return b""

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


class Attaching:
    """Tunnels as the calling side needs them: this member's attachments to others, and its ways to those attached."""

    def __init__(
        self,
        own_name: str,
        switchboard: Switchboard,
        door: TunnelDoor | None,
        channels: Channels,
        limits: Limits,
        tunnel_limits: TunnelLimits,
    ) -> None:
        """`door`: where tunnels to this member come in; None: it can be called, and attaches itself to nobody."""
        self._own_name, self._door, self._channels = own_name, door, channels
        self._switchboard, self._limits, self._tunnel_limits = switchboard, limits, tunnel_limits
        self._made: Path | None = None
        self._relays: dict[str, Exact] = {}
        self._bridges: dict[str, asyncio.Server] = {}
        self._faults: Counter[str] = Counter()  # of relays, since each last gave a tunnel
        self._attachments: dict[Exact, asyncio.Task[None]] = {}
        self._carried: set[asyncio.Task[None]] = set()

    @property
    def _folder(self) -> Path:
        """The folder of local sockets, made when it is needed; only this user can enter it."""
        if self._made is None:
            self._made = Path(tempfile.mkdtemp(prefix="pens-"))
        return self._made

    @property
    def own_socket(self) -> str:
        """Where this member's server listens, if nobody can call it."""
        return f"unix:{self._folder / 'in'}"

    async def close(self) -> None:
        """End all attachments and tunnels."""
        for server in self._bridges.values():
            server.close()
        tasks = [*self._attachments.values(), *self._carried]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)

    # --- ways to others -----------------------------------------------------------------------------------------------

    def met(self, member: Exact, terms: Terms) -> None:
        """A member answered at an address of its own: attach to it, and remember whether it is a relay."""
        if terms.relays:
            self._relays[member.name] = member
        else:
            self._relays.pop(member.name, None)
        if self._door is None or member in self._attachments:
            return
        for other in [other for other in self._attachments if other.address == member.address]:
            self._attachments.pop(other).cancel()  # the member there has a new certificate, or another one is there
        if len(self._attachments) < self._limits.connections:
            self._attachments[member] = asyncio.create_task(self._stay_attached(member))

    async def prepare(self, to: Address) -> None:
        """Listen at a local socket, from which a tunnel goes to this member."""
        check_address(to)
        if not self._switchboard.is_attached(to.host) and not self._relays:
            raise TransportError(
                f"the member at {to} only calls out: it is not attached to this member, and no relay is known. "
                "Set relay = true in section [peer] of a member that all can reach"
            )
        if to.host not in self._bridges:
            carry = self._carrying(to.host)
            self._bridges[to.host] = await asyncio.start_unix_server(carry, self._path(to.host))

    def target(self, to: Address) -> str:
        """The local socket of a member that cannot be called."""
        return f"unix:{self._path(to.host)}"

    def _path(self, host: str) -> Path:
        return self._folder / host.partition(".")[0]

    def _carrying(self, host: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            local = SocketEnd(reader, writer)
            try:
                async with self._way(host) as (end, admit):
                    await splice(local, end, admit, self._tunnel_limits.idle_s)
            except TransportError as error:
                _log.debug("no tunnel", extra={"to": host, "why": str(error)})
            finally:
                local.close()

        return lambda reader, writer: self._begin(carry(reader, writer))

    @asynccontextmanager
    async def _way(self, host: str) -> AsyncIterator[tuple[End, Callable[[int], Awaitable[None]]]]:
        if self._switchboard.is_attached(host):
            async with self._switchboard.tunnel(self._own_name, host) as (end, admit):
                yield end, admit
        else:
            async with self._relayed(host) as end:
                yield end, _at_once

    @asynccontextmanager
    async def _relayed(self, host: str) -> AsyncIterator[End]:
        """A tunnel through the first relay that has one."""
        why = "no relay is known"
        for relay in self._in_order(host):
            async with await self._dial(relay) as channel:
                call = channel.stream_stream(f"/{SERVICE}/Reach")(metadata=((TO, host),))
                try:
                    why = await self._refusal(call)
                    self._faults[relay.name] += bool(why)
                    if not why:
                        self._faults.pop(relay.name, None)
                        yield CallEnd(call)
                        return
                finally:
                    call.cancel()
        raise NoTunnel(f"no relay has a tunnel to {host}: {why}")

    def _in_order(self, host: str) -> list[Exact]:
        """Some relays: those without faults first, and for each member in an order of its own, so that all relays get
        their share."""

        def rank(name: str) -> tuple[int, bytes]:
            return self._faults[name], hashlib.sha256(f"{host} {name}".encode()).digest()

        return [self._relays[name] for name in sorted(self._relays, key=rank)[:_RELAYS_TRIED]]

    async def _refusal(self, call: Any) -> str:
        """Why a relay does not give a tunnel; empty: it does."""
        try:
            async with asyncio.timeout(1.5 * self._tunnel_limits.answer_s):
                told = await call.initial_metadata()
        except (aio.AioRpcError, TimeoutError) as error:
            return str(error)
        if any(key == OPEN for key, _ in told):
            return ""
        return str(await call.details())

    # --- being called -------------------------------------------------------------------------------------------------

    async def _stay_attached(self, to: Exact) -> None:
        failures, loop = 0, asyncio.get_running_loop()
        try:
            while failures < _TRIES:
                began = loop.time()
                try:
                    await self._attach(to)
                except (aio.AioRpcError, TransportError) as error:
                    _log.debug("attachment ended", extra={"member": to.name, "why": str(error)})
                failures = 0 if loop.time() - began > _LASTING_S else failures + 1
                await asyncio.sleep(min(30.0, self._limits.backoff_s * 2**failures))
        finally:
            self._attachments.pop(to, None)

    async def _attach(self, to: Exact) -> None:
        """Stay attached to a member until one of the two ends it."""
        async with await self._dial(to) as channel:
            call = channel.stream_stream(f"/{SERVICE}/Attach")()
            while (message := await call.read()) is not aio.EOF:
                ticket = decode_wanted(message)
                if self._door and len(self._carried) < self._tunnel_limits.tunnels:
                    self._begin(self._answer(to, ticket, self._door))
            raise await error_of(call)

    async def _answer(self, to: Exact, ticket: bytes, door: TunnelDoor) -> None:
        """Carry bytes between a member's tunnel and this member's own server."""
        async with await self._dial(to) as channel:
            name, reader, writer = await door.connect(self._folder / "in", to.name)
            local = SocketEnd(reader, writer)
            call = channel.stream_stream(f"/{SERVICE}/Answer")(metadata=((TICKET, ticket),))
            far = _Metered(call, partial(door.came, name))
            try:
                await splice(local, far, idle_s=self._tunnel_limits.idle_s)
            finally:
                far.close()
                local.close()
                door.leave(name)

    # --- tasks and channels -------------------------------------------------------------------------------------------

    async def _dial(self, to: Exact) -> Any:
        """A connection of its own, for the certificate of a member: tunnels do not take the place of other calls."""
        _, tls = self._channels.present()
        return await self._channels.open(to.address, exact_dns_name(to.name, to.serial), tls)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(_quietly(work))
        self._carried.add(task)
        task.add_done_callback(self._carried.discard)


async def _quietly(work: Coroutine[Any, Any, None]) -> None:
    """Carry bytes; whoever sent them sees that the connection is over."""
    with suppress(OSError, grpc.RpcError, TransportError):
        await work


async def _at_once(size: int) -> None:
    """Let bytes pass: the relay counts them."""

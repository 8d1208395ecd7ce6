# SPDX-License-Identifier: Apache-2.0
"""The calling side: a connection to each member, made for its very certificate, kept open and used again.

The caller first makes a connection that any member may answer, and asks for the name and serial number of the
certificate at the other end. It then makes a second connection, for exactly that certificate (`certificates`), and
sends and believes everything else only there.

A call that reaches nobody is tried again, after a random part of a pause that doubles each time. A call that was turned
away, or answered by another member, is not tried again: the answer would be the same. A member that restarts with a new
certificate is asked again who it is.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import grpc
from grpc import aio

from pens.errors import TransportError
from pens.network.certificates.credentials import Credentials
from pens.network.certificates.names import ANY_MEMBER, exact_dns_name
from pens.network.transport import wire_pb2
from pens.network.transport.grpc_server import SERVICE
from pens.network.transport.interface import Address, Introduction, MemberRecord, Parcel, Reception, TransportCounts
from pens.network.transport.limits import Limits
from pens.network.transport.outward import is_attached
from pens.network.transport.terms import Accord, AnyTerms, Terms
from pens.network.transport.wire import (
    HEADER,
    Header,
    check_address,
    decode_claim,
    decode_receipt,
    decode_table,
    decode_terms,
    encode_header,
    encode_piece,
    encode_table,
    encode_terms,
)

_NOBODY_THERE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)  # INTERNAL: a write to a closed connection
_PASSING = (*_NOBODY_THERE, grpc.StatusCode.RESOURCE_EXHAUSTED)  # the last: too many calls at a time
_WRONG_CERTIFICATE = ("handshake failed", "Verification Check failed", "CERTIFICATE_VERIFY_FAILED")
_T = TypeVar("_T")
_log = logging.getLogger("pens.network")


class _Unreachable(TransportError):
    """Nobody answered: another attempt may succeed."""


@dataclass(slots=True)
class _Connection:
    """A channel at whose other end only the holder of one certificate can be."""

    name: str
    serial: int
    channel: Any
    users: int = 0
    retired: bool = False
    """It accepts no new calls, and is closed when its last user has left."""


@dataclass(frozen=True, slots=True)
class Exact:
    """A certificate, and where its holder listens."""

    address: Address
    name: str
    serial: int


class Tunnels(Protocol):
    """What a caller needs to know of members that cannot be called (`pens.network.transport.attaching`)."""

    def met(self, member: Exact, terms: Terms) -> None:
        """A member answered at an address of its own, and told its terms."""
        ...

    async def prepare(self, to: Address) -> None:
        """Make `target` work for a member that cannot be called; `TransportError` if there is no way to it now."""
        ...

    def target(self, to: Address) -> str:
        """Where gRPC finds a member that cannot be called."""
        ...


class MemberCaller:
    """Makes calls to other members."""

    def __init__(
        self,
        credentials: Credentials,
        limits: Limits,
        traffic: TransportCounts,
        jitter: random.Random,
        accord: Accord | None = None,
        tunnels: Tunnels | None = None,
        proxy: str | None = None,
    ) -> None:
        self._tunnels, self._proxy = tunnels, proxy
        self._limits, self._traffic, self._jitter = limits, traffic, jitter
        self._accord = accord or AnyTerms()
        self._revoked = credentials.revoked
        self._tls = channel_credentials(credentials)
        self._connections: OrderedDict[Address, _Connection] = OrderedDict()  # least recently used first
        self._connecting: WeakValueDictionary[Address, asyncio.Lock] = WeakValueDictionary()
        self._sends = asyncio.Semaphore(limits.sends)

    async def gossip(self, to: Address, name: str | None, records: Sequence[MemberRecord]) -> Introduction:
        """Send a membership table, and receive one."""
        request = encode_table(records)

        async def attempt() -> Introduction:
            async with self._connection(to, name) as connection:
                call = connection.channel.unary_unary(f"/{SERVICE}/Exchange")
                answer = await call(request, timeout=self._limits.call_s)
                return Introduction(connection.name, decode_table(answer))

        return await self._retrying(to, attempt)

    async def meet(self, to: Address) -> str:
        """Compare terms with whoever is at `to`, and return its name."""

        async def attempt() -> str:
            async with self._connection(to, None) as connection:
                return connection.name

        return await self._retrying(to, attempt)

    async def send_model(self, to: MemberRecord, parcel: Parcel) -> Reception:
        """Deliver a model; while the receiver is busy, try again a few times."""
        for pause_s in self._pauses():
            verdict = await self._retrying(to.address, lambda: self._deliver(to, parcel))
            if verdict is not Reception.BUSY:
                break
            await asyncio.sleep(pause_s)
        if verdict is Reception.TAKEN:
            self._traffic.models_out += 1
        return verdict

    async def close(self) -> None:
        """Close all connections."""
        while self._connections:
            _, connection = self._connections.popitem()
            await connection.channel.close()  # ends the calls on it, too

    # --- a model ------------------------------------------------------------------------------------------------------

    async def _deliver(self, to: MemberRecord, parcel: Parcel) -> Reception:
        size = len(parcel.payload)
        async with self._connection(to.address, to.name) as connection, self._sends:
            if not self._accord.fits(connection.name):
                return Reception.OTHER_NETWORK
            header = encode_header(Header(parcel.version, size, parcel.answer, parcel.note))
            call = connection.channel.stream_stream(f"/{SERVICE}/Deliver")(
                timeout=self._limits.transfer_s(size), metadata=((HEADER, header),)
            )
            answer = asyncio.ensure_future(call.read())
            try:
                await self._write(call, parcel, answer)
                receipt = await answer
                if receipt is aio.EOF:
                    raise await error_of(call)
                return decode_receipt(receipt)
            finally:
                answer.cancel()
                call.cancel()

    async def _write(self, call: Any, parcel: Parcel, answer: asyncio.Future[Any]) -> None:
        """Write until the receiver has answered; the answer tells what became of a write that failed."""
        step, payload = self._limits.piece_bytes, memoryview(parcel.payload)
        with suppress(aio.AioRpcError, asyncio.InvalidStateError):
            for start in range(0, len(payload), step):
                if answer.done():
                    break
                piece = payload[start : start + step]
                await call.write(encode_piece(piece))
                self._traffic.bytes_out += len(piece)
            await call.done_writing()

    # --- connections --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _connection(self, to: Address, name: str | None) -> AsyncIterator[_Connection]:
        connection = await self._connect(to, name)
        connection.users += 1  # at once, so that nobody retires it unused
        try:
            if len(self._connections) > self._limits.connections:
                await self._retire(next(iter(self._connections)))
            yield connection
        finally:
            connection.users -= 1
            await self._close_unused(connection)

    async def _connect(self, to: Address, name: str | None) -> _Connection:
        async with self._connecting.setdefault(to, asyncio.Lock()):
            known = self._connections.get(to)
            if known is None or name not in (None, known.name) or self._is_revoked(known.serial):
                known = await self._open(to, name)
            self._connections.move_to_end(to)
        if refusal := self._accord.refusal(known.name):
            self._traffic.refusals["protocol version"] += 1
            raise TransportError(f"{known.name} at {to}: {refusal}")
        return known

    async def _open(self, to: Address, name: str | None) -> _Connection:
        if self._tunnels and is_attached(to):
            await self._tunnels.prepare(to)
        answering, serial = await self._ask_who(to)
        if name not in (None, answering):
            raise TransportError(f"called {name} at {to}, but {answering} answers there")
        if self._is_revoked(serial):
            self._traffic.refusals["revoked"] += 1
            _log.warning("refused to call %s: the certificate of %s has been revoked", to, answering)
            raise TransportError(f"the certificate of {answering} at {to} has been revoked")
        await self._retire(to)
        connection = _Connection(answering, serial, self._channel(to, exact_dns_name(answering, serial)))
        try:
            terms = await self._compare_terms(connection)
        except BaseException:
            await connection.channel.close()
            raise
        self._accord.hear(answering, terms)
        if self._tunnels and terms and not is_attached(to):
            self._tunnels.met(Exact(to, answering, serial), terms)
        self._connections[to] = connection
        return connection

    async def _compare_terms(self, connection: _Connection) -> Terms | None:
        """Tell this member's terms, and return the other's; None: it speaks version 1, and does not know this call."""
        call = connection.channel.unary_unary(f"/{SERVICE}/Agree")
        try:
            return decode_terms(await call(encode_terms(self._accord.terms), timeout=self._limits.call_s))
        except aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise

    def _is_revoked(self, serial: int) -> bool:
        return self._revoked is not None and serial in self._revoked

    async def _ask_who(self, to: Address) -> tuple[str, int]:
        async with self._channel(to, ANY_MEMBER) as channel:
            call = channel.unary_unary(f"/{SERVICE}/Introduce")
            return decode_claim(await call(wire_pb2.Question().SerializeToString(), timeout=self._limits.call_s))

    def _channel(self, to: Address, dns_name: str) -> Any:
        target = self._tunnels.target(to) if self._tunnels and is_attached(to) else f"dns:///{check_address(to)}"
        return new_channel(target, dns_name, self._tls, self._limits, self._proxy)

    async def _retire(self, to: Address) -> None:
        connection = self._connections.pop(to, None)
        if connection:
            connection.retired = True
            await self._close_unused(connection)

    async def _close_unused(self, connection: _Connection) -> None:
        if connection.retired and not connection.users:
            await connection.channel.close()

    # --- attempts -----------------------------------------------------------------------------------------------------

    async def _retrying(self, to: Address, attempt: Callable[[], Awaitable[_T]]) -> _T:
        for pause_s in self._pauses():
            try:
                return await self._explained(to, attempt)
            except _Unreachable as error:
                reason = error
            await asyncio.sleep(pause_s)
        raise TransportError(f"{reason} ({self._limits.attempts} attempts)")

    async def _explained(self, to: Address, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Make the attempt; translate errors of gRPC into errors of pens."""
        try:
            return await attempt()
        except aio.AioRpcError as error:
            status, words = error.code(), f"{to}: {error.details()}"
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            raise TransportError(f"{to}: this member closed the connection") from None
        refused = any(sign in words for sign in _WRONG_CERTIFICATE)
        asked_before = to in self._connections  # if so, it may have a new certificate by now
        if status in _NOBODY_THERE:
            await self._retire(to)
        if status in _PASSING and (asked_before or not refused):
            raise _Unreachable(f"{words} ({status.name})")
        raise TransportError(f"{words} ({status.name})")

    def _pauses(self) -> list[float]:
        """Seconds to wait after each attempt: a random part of a bound that doubles; 0 after the last."""
        bounds = [
            min(self._limits.max_backoff_s, self._limits.backoff_s * 2**k) for k in range(self._limits.attempts - 1)
        ]
        return [*(self._jitter.uniform(0, bound) for bound in bounds), 0.0]


def channel_credentials(own: Credentials) -> Any:
    """What a member shows and trusts when it calls others."""
    return grpc.ssl_channel_credentials(own.authority_pem, own.key_pem, own.certificate_pem)


def new_channel(target: str, dns_name: str, tls: Any, limits: Limits, proxy: str | None) -> Any:
    """A channel to a target of gRPC; its other end must hold a certificate for `dns_name`."""
    options: list[tuple[str, int | str]] = [("grpc.ssl_target_name_override", dns_name), *channel_options(limits)]
    if proxy:  # the environment's variables no_proxy and no_grpc_proxy still count
        options += [("grpc.http_proxy", proxy), ("grpc.enable_http_proxy", 1)]
    else:
        options.append(("grpc.enable_http_proxy", 0))
    return aio.secure_channel(target, tls, options=options)


async def error_of(call: Any) -> aio.AioRpcError:
    return aio.AioRpcError(
        await call.code(), await call.initial_metadata(), await call.trailing_metadata(), await call.details()
    )


def channel_options(limits: Limits) -> list[tuple[str, int]]:
    """The bounds that gRPC itself enforces; its own retries are switched off."""
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", limits.message_bytes),
        ("grpc.max_metadata_size", 8192),
        ("grpc.per_message_decompression", 0),
        ("grpc.enable_retries", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.keepalive_time_ms", int(1000 * limits.keepalive_s)),
        ("grpc.keepalive_timeout_ms", int(1000 * limits.call_s)),
        ("grpc.http2.max_pings_without_data", 0),  # no limit: an attachment is silent for hours, and NAT forgets it
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", int(1000 * limits.call_s)),
        ("grpc.max_reconnect_backoff_ms", int(1000 * limits.max_backoff_s)),
    ]

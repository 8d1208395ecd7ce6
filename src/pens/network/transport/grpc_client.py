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
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import grpc
from grpc import aio

from pens.errors import CertificateError, TransportError
from pens.network.certificates.credentials import Credentials, Material
from pens.network.certificates.names import ANY_MEMBER, exact_dns_name
from pens.network.transport import wire_pb2
from pens.network.transport.channels import Channels, Unreachable, error_of
from pens.network.transport.grpc_server import SERVICE
from pens.network.transport.interface import (
    Address,
    Introduction,
    MemberRecord,
    Parcel,
    Reception,
    Table,
    TransportCounts,
)
from pens.network.transport.limits import Limits
from pens.network.transport.list_exchange import ListExchange
from pens.network.transport.outward import is_attached
from pens.network.transport.terms import Accord, AnyTerms, Terms
from pens.network.transport.wire import (
    HEADER,
    Header,
    WireError,
    decode_claim,
    decode_receipt,
    decode_table,
    decode_terms,
    encode_header,
    encode_piece,
    encode_table,
    encode_terms,
)
from pens.printable import printable

_NOBODY_THERE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)  # INTERNAL: a write to a closed connection
_NOT_AGREED = grpc.StatusCode.FAILED_PRECONDITION  # a member that was started again does not know our terms any more
_PASSING = (*_NOBODY_THERE, _NOT_AGREED, grpc.StatusCode.RESOURCE_EXHAUSTED)  # the last: too many calls at a time
_WRONG_CERTIFICATE = ("handshake failed", "Verification Check failed", "CERTIFICATE_VERIFY_FAILED")
_MOST_SLOW = 4096  # members that are remembered: more than a federation has
_LONGEST_DETAILS = 500  # that the other side, or gRPC, says of a failure
_T = TypeVar("_T")
_log = logging.getLogger("pens.network")


@dataclass(slots=True)
class _Connection:
    """A channel at whose other end only the holder of one certificate can be."""

    name: str
    serial: int
    shows: Material
    """What this member showed when it was made: it is not used once there is something newer."""
    channel: Any
    terms: Terms | None = None
    """What the member said of itself; None: it speaks version 1."""
    users: int = 0
    again: bool = False
    """It was used again since it was made, or was last passed over."""
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
        lists: ListExchange,
        channels: Channels,
        accord: Accord | None = None,
        tunnels: Tunnels | None = None,
    ) -> None:
        self._limits, self._traffic, self._jitter = limits, traffic, jitter
        self._credentials, self._lists, self._channels = credentials, lists, channels
        self._accord, self._tunnels = accord or AnyTerms(), tunnels
        self._connections: OrderedDict[Address, _Connection] = OrderedDict()  # least recently used first
        self._connecting: WeakValueDictionary[Address, asyncio.Lock] = WeakValueDictionary()
        self._sends = asyncio.Semaphore(limits.sends)
        self._slow_sends = asyncio.Semaphore(limits.slow_sends)
        self._slow: OrderedDict[str, None] = OrderedDict()  # members that did not answer their latest model

    async def gossip(self, to: Address, name: str | None, table: Table) -> Introduction:
        """Send a table, and receive one."""
        request = encode_table(table)

        async def attempt() -> Introduction:
            async with self._connection(to, name) as connection:
                await self._pass_lists(connection)
                self._check_lists(to)
                answer = await self._small_call(connection, "Exchange", request)
                return Introduction(connection.name, decode_table(answer))

        return await self._retrying(to, attempt)

    async def meet(self, to: Address) -> str:
        """Compare terms with whoever is at `to`, and return its name."""

        async def attempt() -> str:
            async with self._connection(to, None) as connection:
                return connection.name

        return await self._retrying(to, attempt)

    async def _small_call(self, connection: _Connection, method: str, request: bytes) -> bytes:
        call = connection.channel.unary_unary(f"/{SERVICE}/{method}")
        return bytes(await call(request, timeout=self._limits.call_s))

    async def _pass_lists(self, connection: _Connection) -> None:
        """Exchange revocation lists, if it is time to. A member that cannot do that may still be gossiped with."""
        if not self._lists.is_due():
            return
        try:
            await self._lists.ask(connection.name, lambda data: self._small_call(connection, "Lists", data))
        except aio.AioRpcError as error:
            if error.code() in _NOBODY_THERE:
                self._lists.put_off()
                raise
            level = logging.DEBUG if error.code() is grpc.StatusCode.UNIMPLEMENTED else logging.INFO  # an older version
            _log.log(level, "no revocation lists from %s: %.200s", connection.name, error.details())
        except (WireError, CertificateError) as error:
            _log.warning("revocation lists of %s refused: %s", connection.name, error)

    def _check_lists(self, to: Address) -> None:
        if self._credentials.all_lists_out_of_date():
            raise TransportError(f"{to}: not called, since no revocation list here is up to date: get a new one")

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
        self._channels.close()

    # --- a model ------------------------------------------------------------------------------------------------------

    async def _deliver(self, to: MemberRecord, parcel: Parcel) -> Reception:
        self._check_lists(to.address)
        async with self._connection(to.address, to.name) as connection:
            if not self._accord.fits(connection.name):
                return Reception.OTHER_NETWORK
            async with self._turn(to.name):
                return await self._send(connection, parcel)

    async def _send(self, connection: _Connection, parcel: Parcel) -> Reception:
        size = len(parcel.payload)
        header = encode_header(Header(parcel.version, size, parcel.answer, parcel.note))
        call = connection.channel.stream_stream(f"/{SERVICE}/Deliver")(
            timeout=self._limits.transfer_s(size), metadata=((HEADER, header),)
        )
        answer = asyncio.ensure_future(call.read())
        try:
            await self._write(call, parcel, answer)
            async with asyncio.timeout(self._piece_s):
                receipt = await answer
            if receipt is aio.EOF:
                raise await error_of(call)
            return decode_receipt(receipt)
        except TimeoutError:
            why = f"{connection.name} takes or answers models too slowly: the call was cut off"
            raise TransportError(why) from None
        finally:
            answer.cancel()
            call.cancel()

    @property
    def _piece_s(self) -> float:
        """How long a receiver may take for one piece, and for its answer after the last."""
        return self._limits.transfer_s(self._limits.piece_bytes)

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """Wait for a turn to send. Members that were too slow wait for each other, so that they delay nobody else."""
        async with self._slow_sends if name in self._slow else self._sends:
            try:
                yield
            except BaseException:
                self._slow[name] = None
                if len(self._slow) > _MOST_SLOW:
                    self._slow.popitem(last=False)
                raise
            self._slow.pop(name, None)

    async def _write(self, call: Any, parcel: Parcel, answer: asyncio.Future[Any]) -> None:
        """Write until the receiver has answered; the answer tells what became of a write that failed."""
        step, payload = self._limits.piece_bytes, memoryview(parcel.payload)
        with suppress(aio.AioRpcError, asyncio.InvalidStateError):
            for start in range(0, len(payload), step):
                if answer.done():
                    break
                piece = payload[start : start + step]
                async with asyncio.timeout(self._piece_s):
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
                await self._retire(self._least_used())
            yield connection
        finally:
            connection.users -= 1
            await self._close_unused(connection)

    async def _connect(self, to: Address, name: str | None) -> _Connection:
        async with self._connecting.setdefault(to, asyncio.Lock()):
            known = self._connections.get(to)
            is_old = known is None or known.shows is not self._credentials.material
            if known is None or is_old or name not in (None, known.name) or self._is_revoked(known.serial):
                known = await self._open(to, name)
            else:
                self._connections.move_to_end(to)
                known.again = True
        if self._tunnels and known.terms and not is_attached(to):
            self._tunnels.met(Exact(to, known.name, known.serial), known.terms)
        if refusal := self._accord.refusal(known.name):
            self._traffic.refusals["protocol version"] += 1
            await self._retire(to)  # so that it is asked again: it may have another version by then
            raise TransportError(f"{known.name} at {to}: {refusal}")
        return known

    def _least_used(self) -> Address:
        """The connection to close: the least recently used one that was not used again, so that single calls to many
        members do not close the connections to those that are called regularly."""
        while True:
            to, connection = next(iter(self._connections.items()))
            if not connection.again:
                return to
            connection.again = False
            self._connections.move_to_end(to)

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
        material, tls = self._channels.present()
        channel = await self._channel(to, exact_dns_name(answering, serial), tls)
        connection = _Connection(answering, serial, material, channel)
        try:
            connection.terms = await self._compare_terms(connection)
        except BaseException:
            await channel.close()
            raise
        self._accord.hear(answering, connection.terms)
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
        return self._credentials.is_revoked(serial)

    async def _ask_who(self, to: Address) -> tuple[str, int]:
        async with await self._channel(to, ANY_MEMBER, self._channels.present()[1]) as channel:
            call = channel.unary_unary(f"/{SERVICE}/Introduce")
            return decode_claim(await call(wire_pb2.Question().SerializeToString(), timeout=self._limits.call_s))

    async def _channel(self, to: Address, dns_name: str, tls: Any) -> Any:
        local = self._tunnels.target(to) if self._tunnels and is_attached(to) else None
        return await self._channels.open(to, dns_name, tls, local)

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
            except Unreachable as error:
                reason = error
            await asyncio.sleep(pause_s)
        raise TransportError(f"{reason} ({self._limits.attempts} attempts)")

    async def _explained(self, to: Address, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Make the attempt; translate errors of gRPC into errors of pens."""
        try:
            return await attempt()
        except aio.AioRpcError as error:
            status, words = error.code(), f"{to}: {printable(error.details(), _LONGEST_DETAILS)}"
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            raise TransportError(f"{to}: this member closed the connection") from None
        refused = any(sign in words for sign in _WRONG_CERTIFICATE)
        asked_before = to in self._connections  # if so, it may have a new certificate by now
        if status in _NOBODY_THERE or status is _NOT_AGREED:
            await self._retire(to)
        if status in _PASSING and (asked_before or not refused):
            raise Unreachable(f"{words} ({status.name})")
        raise TransportError(f"{words} ({status.name})")

    def _pauses(self) -> list[float]:
        """Seconds to wait after each attempt: a random part of a bound that doubles; 0 after the last."""
        bounds = [
            min(self._limits.max_backoff_s, self._limits.backoff_s * 2**k) for k in range(self._limits.attempts - 1)
        ]
        return [*(self._jitter.uniform(0, bound) for bound in bounds), 0.0]

# SPDX-License-Identifier: Apache-2.0
"""The listening side: the server checks the caller first, then the bounds, and parses its bytes only then.

gRPC hands over every call when its metadata have arrived, also calls with a single message. Otherwise gRPC itself would
wait for that message, without a deadline and uncounted, and a member that sends half a message many times would use up
all calls.

A model is announced in the metadata of its call, and the server checks the announcement before it reads any piece. It
writes the answer as soon as it is known, while the sender may still be writing, and then reads and discards the rest of
the stream for a few seconds, because a sender whose writes fail cannot see the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from io import BytesIO
from typing import Any, TypeVar

import grpc
from grpc import aio

from pens.errors import CertificateError
from pens.network.certificates.certificate import Identity, certificate_of, identity_of
from pens.network.certificates.credentials import OUT_OF_DATE, Credentials
from pens.network.transport.entrance import Doors
from pens.network.transport.interface import Inbox, Parcel, Reception, TransportCounts
from pens.network.transport.limits import Intake, Limits
from pens.network.transport.list_exchange import ListExchange
from pens.network.transport.terms import Accord, AnyTerms
from pens.network.transport.wire import (
    HEADER,
    Header,
    WireError,
    decode_header,
    decode_piece,
    decode_table,
    decode_terms,
    encode_claim,
    encode_receipt,
    encode_table,
    encode_terms,
)

SERVICE = "pens.v1.Member"
_T = TypeVar("_T")
_REST_S = 5.0  # within which a sender must notice the answer and stop
_log = logging.getLogger("pens.network")


class _Refusal(Exception):
    """A model is turned away."""

    def __init__(self, verdict: Reception, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.verdict, self.reason = verdict, reason


class MemberService:
    """Answers the calls of other members."""

    def __init__(
        self,
        credentials: Credentials,
        inbox: Inbox,
        limits: Limits,
        traffic: TransportCounts,
        clock: Callable[[], float],
        lists: ListExchange,
        doors: Doors,
        accord: Accord | None = None,
    ) -> None:
        self._accord = accord or AnyTerms()
        self._credentials, self._inbox, self._limits, self._traffic = credentials, inbox, limits, traffic
        self._intake, self._doors, self._lists = Intake(limits, clock), doors, lists

    def handlers(self) -> Any:
        """The methods of the service, for gRPC. Requests stay bytes until the caller is known."""
        methods = {
            "Introduce": grpc.stream_stream_rpc_method_handler(self._introduce),
            "Agree": grpc.stream_stream_rpc_method_handler(self._agree),
            "Exchange": grpc.stream_stream_rpc_method_handler(self._exchange),
            "Deliver": grpc.stream_stream_rpc_method_handler(self._deliver),
            "Lists": grpc.stream_stream_rpc_method_handler(self._exchange_lists),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def change_limits(self, limits: Limits) -> None:
        """Use other limits from now on."""
        self._limits = limits
        self._intake.change(limits)

    # --- who calls ----------------------------------------------------------------------------------------------------

    async def _caller(self, context: Any, by_old_list: bool) -> Identity:
        """The caller, by its certificate; the call ends if the certificate is no longer valid.

        `by_old_list`: also where the revocation list is out of date.
        """
        auth = context.auth_context()
        try:
            certificate = certificate_of(auth["x509_pem_cert"][0])
            identity = identity_of(auth["x509_pem_cert"][0])
        except (KeyError, IndexError, CertificateError) as error:
            return await self._turn_away(context, "certificate", f"the caller has no member's certificate: {error}")
        if auth.get("ssl_tls_version") != [b"TLSv1.3"]:
            return await self._turn_away(context, "not TLS 1.3", f"{identity.name} did not use TLS 1.3", identity.name)
        objection = self._credentials.objection(certificate)
        if objection and not (by_old_list and objection.reason == OUT_OF_DATE):
            return await self._turn_away(context, *objection, identity.name)
        if not self._doors.recognise(context.peer(), identity.name):
            return await self._turn_away(
                context, "connections", f"the connection of {identity.name} is closed", identity.name
            )
        return identity

    async def _turn_away(self, context: Any, reason: str, message: str, member: str | None = None) -> Identity:
        self._note(context, reason, message, member)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)
        raise AssertionError("abort raises")

    def _note(self, context: Any, reason: str, message: str, member: str | None = None) -> None:
        self._traffic.refusals[reason] += 1
        told_by_the_node = reason == Reception.OTHER_NETWORK.value
        about = {"member": member} if member else {}
        level = logging.DEBUG if reason == "busy" or told_by_the_node else logging.WARNING
        _log.log(level, "refused %s: %s", self._doors.shown(context.peer()), message, extra={"reason": reason, **about})

    # --- calls --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _call(self, context: Any, by_old_list: bool = False) -> AsyncIterator[str]:
        """The name of the caller; while the block lasts, its call counts among its calls in progress."""
        name = (await self._caller(context, by_old_list)).name
        with self._intake.call(name) as allowed:
            if not allowed:
                self._note(context, "calls", f"{name} has too many calls in progress", name)
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls in progress")
            yield name

    async def _introduce(self, _requests: Any, context: Any) -> None:
        async with self._call(context, by_old_list=True) as caller:
            await self._check_rate(caller, context)
            own = self._credentials.identity
            await self._answer(caller, context, encode_claim(own.name, own.serial))

    async def _exchange_lists(self, _requests: Any, context: Any) -> None:
        async with self._call(context, by_old_list=True) as caller:
            await self._check_rate(caller, context)
            answer = partial(self._lists.answer, member=caller)
            await self._answer(caller, context, await self._only(answer, "revocation lists", caller, context))

    async def _agree(self, _requests: Any, context: Any) -> None:
        async with self._call(context, by_old_list=True) as caller:  # it comes before the call that passes lists on
            await self._check_rate(caller, context)
            self._accord.hear(caller, await self._only(decode_terms, "terms", caller, context))
            await self._answer(caller, context, encode_terms(self._accord.terms))

    async def _exchange(self, _requests: Any, context: Any) -> None:
        async with self._call(context) as caller:
            await self._check_rate(caller, context)
            await self._check_version(caller, context)
            table = await self._only(decode_table, "table", caller, context)
            await self._answer(caller, context, encode_table(await self._inbox.gossip(caller, table)))

    async def _answer(self, caller: str, context: Any, message: bytes) -> None:
        """Send the answer of a call. gRPC would wait for a caller that does not take it as long as it is connected."""
        try:
            async with asyncio.timeout(self._limits.call_s):
                await context.write(message)
        except TimeoutError:
            self._note(context, "slow", f"{caller} did not take its answer within {self._limits.call_s:g} s", caller)
            self._doors.end(context.peer())

    async def _only(self, decode: Callable[[bytes], _T], what: str, caller: str, context: Any) -> _T:
        """What the only message of a call says."""
        try:
            return decode(await self._only_message(caller, context))
        except (WireError, CertificateError) as error:
            self._note(context, "malformed", f"{what} of {caller}: {error}", caller)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise AssertionError("abort raises") from None

    async def _check_version(self, caller: str, context: Any) -> None:
        if refusal := self._accord.refusal(caller):
            self._note(context, "protocol version", f"{caller}: {refusal}", caller)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"refused {caller}: {refusal}")

    async def _check_rate(self, caller: str, context: Any) -> None:
        if not self._intake.may_gossip(caller):
            self._note(context, "rate", f"{caller} calls too often", caller)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls in a short time")

    async def _only_message(self, caller: str, context: Any) -> bytes:
        """The message of a call that has exactly one; the call ends if it does not come within `call_s`."""
        try:
            async with asyncio.timeout(self._limits.call_s):
                message = await context.read()
        except TimeoutError:
            self._note(context, "slow", f"{caller} did not send its message within {self._limits.call_s:g} s", caller)
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the message did not come")
        if message is aio.EOF:
            raise WireError("received a call without a message")
        return bytes(message)

    async def _deliver(self, _requests: Any, context: Any) -> None:
        async with self._call(context) as sender:
            await self._check_version(sender, context)
            await self._answer_model(sender, context)

    async def _answer_model(self, sender: str, context: Any) -> None:
        try:
            await self._answer(sender, context, encode_receipt(await self._receive(sender, context)))
        except _Refusal as refusal:
            self._note(context, refusal.reason, f"model of {sender}: {refusal}", sender)
            if refusal.reason == "slow":  # a read is still under way, so the stream cannot be read to its end
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(refusal))
            await self._answer(sender, context, encode_receipt(refusal.verdict))
            await self._read_to_the_end(context)

    async def _receive(self, sender: str, context: Any) -> Reception:
        with self._intake.turn(sender) as its_turn:
            if not its_turn:
                raise _Refusal(Reception.BUSY, "busy", "another of its models is being received")
            header = self._header(context)
            self._judge(sender, header.size)
            with self._intake.space(header.size) as enough:
                if not enough:
                    raise _Refusal(Reception.BUSY, "busy", "too many bytes of models are being received")
                payload = await self._payload(context, header.size)
                verdict = await self._inbox.take_model(
                    sender, Parcel(header.version, payload, header.answer, header.note)
                )
        if verdict is Reception.TAKEN:
            self._traffic.models_in += 1
        else:
            self._traffic.refusals[verdict.value] += 1
        return verdict

    def _judge(self, sender: str, size: int) -> None:
        verdict, reason = self._intake.judge(sender, size)
        if verdict is Reception.TAKEN:
            verdict = self._inbox.wants(sender, size)
            reason = verdict.value if verdict is Reception.OTHER_NETWORK else "unwanted"
        if verdict is not Reception.TAKEN:
            raise _Refusal(verdict, "busy" if verdict is Reception.BUSY else reason, f"{reason}, it has {size} bytes")

    def _header(self, context: Any) -> Header:
        headers = [value for key, value in context.invocation_metadata() if key == HEADER]
        if len(headers) != 1:
            raise _Refusal(Reception.REFUSED, "malformed", f"it has {len(headers)} headers, not 1")
        try:
            return decode_header(headers[0])
        except WireError as error:
            raise _Refusal(Reception.REFUSED, "malformed", str(error)) from None

    async def _payload(self, context: Any, size: int) -> bytes:
        limit_s = self._limits.transfer_s(size)
        try:
            async with asyncio.timeout(limit_s):
                return await self._pieces(context, size)
        except TimeoutError:
            raise _Refusal(Reception.REFUSED, "slow", f"its {size} bytes did not come within {limit_s:g} s") from None
        except WireError as error:
            raise _Refusal(Reception.REFUSED, "malformed", str(error)) from None

    async def _pieces(self, context: Any, size: int) -> bytes:
        payload = BytesIO()  # grows with what came, not with what was announced; its value is not copied
        missing = size
        while (message := await context.read()) is not aio.EOF:
            piece = decode_piece(message)
            missing -= len(piece)
            if missing < 0:
                raise WireError(f"it has more than the {size} bytes that were announced")
            payload.write(piece)
            self._traffic.bytes_in += len(piece)
        if missing and context.cancelled():
            raise _Refusal(
                Reception.REFUSED, "broken off", f"the sender broke off with {missing} of {size} bytes missing"
            )
        if missing:
            raise WireError(f"it has {missing} bytes fewer than the {size} that were announced")
        return payload.getvalue()

    async def _read_to_the_end(self, context: Any) -> None:
        try:
            async with asyncio.timeout(_REST_S):
                while await context.read() is not aio.EOF:
                    pass
        except TimeoutError:
            where = self._doors.shown(context.peer())
            _log.info("%s goes on sending a model that was refused: the call is cut off", where)


def server_options(limits: Limits) -> list[tuple[str, int]]:
    """The bounds that gRPC itself enforces."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 65535),
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", limits.message_bytes),
        ("grpc.max_metadata_size", 8192),
        ("grpc.max_concurrent_streams", limits.calls_of_member),
        ("grpc.max_allowed_incoming_connections", 2 * limits.incoming_connections),  # the entrance has the bound
        ("grpc.max_connection_idle_ms", int(1000 * limits.idle_s)),
        ("grpc.max_connection_age_ms", int(1000 * limits.connection_s)),
        ("grpc.max_connection_age_grace_ms", int(1000 * limits.transfer_s(limits.max_model_bytes))),
        ("grpc.per_message_decompression", 0),  # nobody compresses, and a small message could become a large one
        ("grpc.server_handshake_timeout_ms", int(1000 * limits.call_s)),
        ("grpc.keepalive_time_ms", int(1000 * limits.keepalive_s)),
        ("grpc.keepalive_timeout_ms", int(1000 * limits.call_s)),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", int(500 * limits.keepalive_s)),
    ]

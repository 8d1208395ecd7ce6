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
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, TypeVar

import grpc
from grpc import aio

from pens.errors import CertificateError
from pens.network.certificates.certificate import Identity, identity_of
from pens.network.certificates.credentials import Credentials
from pens.network.transport.interface import Inbox, Parcel, Reception, TransportCounts
from pens.network.transport.limits import Intake, Limits
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
_M = TypeVar("_M")
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
        accord: Accord | None = None,
    ) -> None:
        self._accord = accord or AnyTerms()
        self._credentials, self._inbox, self._limits, self._traffic = credentials, inbox, limits, traffic
        self._intake = Intake(limits, clock)
        own = credentials.identity
        self._claim = encode_claim(own.name, own.serial)

    def handlers(self) -> Any:
        """The methods of the service, for gRPC. Requests stay bytes until the caller is known."""
        methods = {
            "Introduce": grpc.stream_stream_rpc_method_handler(self._introduce),
            "Agree": grpc.stream_stream_rpc_method_handler(self._agree),
            "Exchange": grpc.stream_stream_rpc_method_handler(self._exchange),
            "Deliver": grpc.stream_stream_rpc_method_handler(self._deliver),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    # --- who calls ----------------------------------------------------------------------------------------------------

    async def _caller(self, context: Any) -> Identity:
        """The caller, by its certificate; the call ends if the certificate is no longer valid."""
        auth = context.auth_context()
        try:
            identity = identity_of(auth["x509_pem_cert"][0])
        except (KeyError, IndexError, CertificateError) as error:
            return await self._turn_away(context, "certificate", f"the caller has no member's certificate: {error}")
        if auth.get("ssl_tls_version") != [b"TLSv1.3"]:
            return await self._turn_away(context, "not TLS 1.3", f"{identity.name} did not use TLS 1.3")
        revoked = self._credentials.revoked
        if revoked is not None and identity.serial in revoked:
            return await self._turn_away(context, "revoked", f"the certificate of {identity.name} has been revoked")
        if identity.not_after <= datetime.now(UTC):
            return await self._turn_away(context, "expired", f"the certificate of {identity.name} has ended")
        return identity

    async def _turn_away(self, context: Any, reason: str, message: str) -> Identity:
        self._note(context, reason, message)
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)
        raise AssertionError("abort raises")

    def _note(self, context: Any, reason: str, message: str) -> None:
        self._traffic.refusals[reason] += 1
        told_by_the_node = reason == Reception.OTHER_NETWORK.value
        level = logging.DEBUG if reason == "busy" or told_by_the_node else logging.WARNING
        _log.log(level, "refused %s: %s", context.peer(), message, extra={"reason": reason})

    # --- calls --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _call(self, context: Any) -> AsyncIterator[str]:
        """The name of the caller; while the block lasts, its call counts among its calls in progress."""
        name = (await self._caller(context)).name
        with self._intake.call(name) as allowed:
            if not allowed:
                self._note(context, "calls", f"{name} has too many calls in progress")
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls in progress")
            yield name

    async def _introduce(self, _requests: Any, context: Any) -> None:
        async with self._call(context) as caller:
            await self._check_rate(caller, context)
            await context.write(self._claim)

    async def _agree(self, _requests: Any, context: Any) -> None:
        async with self._call(context) as caller:
            await self._check_rate(caller, context)
            self._accord.hear(caller, await self._only(decode_terms, "terms", caller, context))
            await context.write(encode_terms(self._accord.terms))

    async def _exchange(self, _requests: Any, context: Any) -> None:
        async with self._call(context) as caller:
            await self._check_rate(caller, context)
            await self._check_version(caller, context)
            records = await self._only(decode_table, "table", caller, context)
            await context.write(encode_table(await self._inbox.gossip(caller, records)))

    async def _only(self, decode: Callable[[bytes], _M], what: str, caller: str, context: Any) -> _M:
        """What the only message of a call says."""
        try:
            return decode(await self._only_message(caller, context))
        except WireError as error:
            self._note(context, "malformed", f"{what} of {caller}: {error}")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise AssertionError("abort raises") from None

    async def _check_version(self, caller: str, context: Any) -> None:
        if refusal := self._accord.refusal(caller):
            self._note(context, "protocol version", f"{caller}: {refusal}")
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"refused {caller}: {refusal}")

    async def _check_rate(self, caller: str, context: Any) -> None:
        if not self._intake.may_gossip(caller):
            self._note(context, "rate", f"{caller} calls too often")
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls in a short time")

    async def _only_message(self, caller: str, context: Any) -> bytes:
        """The message of a call that has exactly one; the call ends if it does not come within `call_s`."""
        try:
            async with asyncio.timeout(self._limits.call_s):
                message = await context.read()
        except TimeoutError:
            self._note(context, "slow", f"{caller} did not send its message within {self._limits.call_s:g} s")
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
            await context.write(encode_receipt(await self._receive(sender, context)))
        except _Refusal as refusal:
            self._note(context, refusal.reason, f"model of {sender}: {refusal}")
            if refusal.reason == "slow":  # a read is still under way, so the stream cannot be read to its end
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(refusal))
            await context.write(encode_receipt(refusal.verdict))
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
            _log.info("%s goes on sending a model that was refused: the call is cut off", context.peer())


def server_options(limits: Limits) -> list[tuple[str, int]]:
    """The bounds that gRPC itself enforces."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", limits.message_bytes),
        ("grpc.max_metadata_size", 8192),
        ("grpc.max_concurrent_streams", limits.calls_of_member),
        ("grpc.max_allowed_incoming_connections", limits.incoming_connections),
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

# SPDX-License-Identifier: Apache-2.0
"""A member of version 1 of the protocol, kept as it was: its messages by a description of that time, and what it did.

Nothing here is made by the code under test but certificates: `DESCRIPTION` is the compiled wire.proto of version 1, in
which neither Terms nor Agree exist.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import pens.network.transport.grpc_transport  # noqa: F401  (prepares the environment of gRPC)
from pens.network.certificates.credentials import Credentials
from pens.network.certificates.names import exact_dns_name
from pens.network.transport.interface import Address

import grpc  # isort: skip  # after grpc_transport, which prepares the environment
from grpc import aio  # isort: skip

SERVICE = "/pens.v1.Member"
DESCRIPTION = base64.b64decode(
    "CiFwZW5zL25ldHdvcmsvdHJhbnNwb3J0L3dpcmUucHJvdG8SB3BlbnMudjEiCgoIUXVlc3Rpb24iJQoFQ2xhaW0SDAoEbmFtZRgBIAEo"
    "CRIOCgZzZXJpYWwYAiABKAwiegoGUmVjb3JkEgwKBG5hbWUYASABKAkSDAoEaG9zdBgCIAEoCRIMCgRwb3J0GAMgASgNEhMKC2luY2Fy"
    "bmF0aW9uGAQgASgEEhEKCWhlYXJ0YmVhdBgFIAEoBBIMCgRsZWZ0GAYgASgIEhAKCGZpbmlzaGVkGAcgASgIIikKBVRhYmxlEiAKB3Jl"
    "Y29yZHMYASADKAsyDy5wZW5zLnYxLlJlY29yZCJFCgZIZWFkZXISDwoHdmVyc2lvbhgBIAEoBBIMCgRzaXplGAIgASgEEg4KBmFuc3dl"
    "chgDIAEoCBIMCgRub3RlGAQgASgMIhgKBVBpZWNlEg8KB3BheWxvYWQYASABKAwihQEKB1JlY2VpcHQSKQoHdmVyZGljdBgBIAEoDjIY"
    "LnBlbnMudjEuUmVjZWlwdC5WZXJkaWN0EhUKDW90aGVyX25ldHdvcmsYAiABKAgiOAoHVmVyZGljdBILCgdVTktOT1dOEAASCQoFVEFL"
    "RU4QARIICgRCVVNZEAISCwoHUkVGVVNFRBADMpMBCgZNZW1iZXISLgoJSW50cm9kdWNlEhEucGVucy52MS5RdWVzdGlvbhoOLnBlbnMu"
    "djEuQ2xhaW0SKgoIRXhjaGFuZ2USDi5wZW5zLnYxLlRhYmxlGg4ucGVucy52MS5UYWJsZRItCgdEZWxpdmVyEg4ucGVucy52MS5QaWVj"
    "ZRoQLnBlbnMudjEuUmVjZWlwdCgBYgZwcm90bzM="
)
_FILE = descriptor_pb2.FileDescriptorProto.FromString(DESCRIPTION)
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_FILE)


def message(kind: str, /, **fields: Any) -> Any:
    """A message of version 1."""
    made = message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"pens.v1.{kind}"))
    return made(**fields)


@dataclass
class OldMember:
    """A server and caller of version 1. It takes every model, and answers tables with its own record."""

    own: Credentials
    port: int = 0
    models: list[bytes] = field(default_factory=list)
    tables: list[list[str]] = field(default_factory=list)

    @property
    def record(self) -> Any:
        name = self.own.identity.name
        return message("Record", name=name, host="127.0.0.1", port=self.port, incarnation=1, heartbeat=5)

    # --- its server ---------------------------------------------------------------------------------------------------

    def handlers(self) -> Any:
        methods = {"Introduce": self._introduce, "Exchange": self._exchange, "Deliver": self._deliver}
        made = {name: grpc.stream_stream_rpc_method_handler(how) for name, how in methods.items()}
        return grpc.method_handlers_generic_handler(SERVICE[1:], made)

    async def _introduce(self, _: Any, context: Any) -> None:
        own = self.own.identity
        await context.write(message("Claim", name=own.name, serial=own.serial.to_bytes(20)).SerializeToString())

    async def _exchange(self, _: Any, context: Any) -> None:
        told = message("Table")
        told.ParseFromString(await context.read())
        self.tables.append([record.name for record in told.records])
        await context.write(message("Table", records=[self.record]).SerializeToString())

    async def _deliver(self, _: Any, context: Any) -> None:
        (header,) = (value for key, value in context.invocation_metadata() if key == "pens-header-bin")
        told = message("Header")
        told.ParseFromString(header)
        payload = b""
        while len(payload) < told.size:
            piece = message("Piece")
            piece.ParseFromString(await context.read())
            payload += piece.payload
        self.models.append(payload)
        await context.write(message("Receipt", verdict=1).SerializeToString())

    # --- its calls ----------------------------------------------------------------------------------------------------

    async def call(self, to: Address, called: Credentials, method: str, request: Any, **more: Any) -> bytes:
        """A call over a connection for the certificate of another member."""
        exact = exact_dns_name(called.identity.name, called.identity.serial)
        tls = grpc.ssl_channel_credentials(self.own.authority_pem, self.own.key_pem, self.own.certificate_pem)
        async with aio.secure_channel(str(to), tls, options=[("grpc.ssl_target_name_override", exact)]) as channel:
            call = channel.stream_stream(f"{SERVICE}/{method}")(timeout=10, **more)
            await call.write(request.SerializeToString())
            await call.done_writing()
            answer = await call.read()
            if answer is aio.EOF:
                raise AssertionError(f"{await call.code()}: {await call.details()}")
            return bytes(answer)


@asynccontextmanager
async def old_member(own: Credentials) -> AsyncIterator[OldMember]:
    """A member of version 1 that listens while the block lasts."""
    member = OldMember(own)
    server = aio.server()
    server.add_generic_rpc_handlers((member.handlers(),))
    tls = grpc.ssl_server_credentials([(own.key_pem, own.certificate_pem)], own.authority_pem, require_client_auth=True)
    member.port = server.add_secure_port("127.0.0.1:0", tls)
    await server.start()
    try:
        yield member
    finally:
        await server.stop(0)

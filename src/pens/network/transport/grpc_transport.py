# SPDX-License-Identifier: Apache-2.0
"""Transport over gRPC and mutual TLS 1.3.

grpc_transport   starts and stops both sides
├── grpc_server  answers calls: checks the caller, then the bounds, then the bytes
├── grpc_tunnels answers calls about tunnels to members that cannot be called (tunnels, attaching, outward)
├── grpc_client  makes calls: connections, deadlines, attempts
├── limits       bounds of everything that other members can make this one hold
├── wire         messages as bytes and as plain data, checked
└── grpc_core    the environment of gRPC's C core, and its log of failed handshakes
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from pens.network.transport.grpc_core import native_log_settings, native_tls_settings, refusal_in, set_tls_1_3_only

set_tls_1_3_only()  # gRPC reads the environment when it is imported

import grpc  # noqa: E402
from grpc import aio  # noqa: E402

from pens.errors import TransportError  # noqa: E402
from pens.network.certificates.credentials import Credentials  # noqa: E402
from pens.network.transport.attaching import Attaching  # noqa: E402
from pens.network.transport.grpc_client import MemberCaller  # noqa: E402
from pens.network.transport.grpc_server import server_options  # noqa: E402
from pens.network.transport.grpc_tunnels import TunnelService  # noqa: E402
from pens.network.transport.interface import (  # noqa: E402
    Address,
    Inbox,
    Introduction,
    MemberRecord,
    Parcel,
    Reception,
    TransportCounts,
)
from pens.network.transport.limits import Limits  # noqa: E402
from pens.network.transport.outward import Ways, attached_address  # noqa: E402
from pens.network.transport.terms import Accord  # noqa: E402
from pens.network.transport.tunnels import Switchboard, TunnelLimits  # noqa: E402

__all__ = ["GrpcTransport", "Limits", "native_log_settings", "native_tls_settings", "refusal_in"]


class GrpcTransport:
    """The transport of one member: its server, and its calls to others."""

    def __init__(
        self,
        credentials: Credentials,
        listen: Address,
        limits: Limits | None = None,
        jitter: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        ways: Ways | None = None,
        tunnel_limits: TunnelLimits | None = None,
    ) -> None:
        """`ways`: how it reaches others, and is reached. If nobody can call it, it does not listen at `listen`."""
        self._ways, self._tunnel_limits = ways or Ways(), tunnel_limits or TunnelLimits()
        self.traffic = TransportCounts()
        self._credentials, self._listen, self._clock = credentials, listen, clock
        self._limits = limits or Limits()
        self._jitter = jitter or random.Random()
        self._server: Any = None
        self._caller: MemberCaller | None = None
        self._attaching: Attaching | None = None

    async def start(self, inbox: Inbox, accord: Accord | None = None) -> Address:
        """Listen, and return the address with the real port."""
        own, most = self._credentials, self._tunnel_limits
        switchboard = Switchboard(own.identity.name, self._ways.relay, most, self.traffic, self._clock)
        tunnels = self._attaching = Attaching(own, switchboard, self._ways, self._limits, most)
        self._caller = MemberCaller(
            own, self._limits, self.traffic, self._jitter, accord, tunnels, proxy=self._ways.proxy
        )
        calls = self._limits.calls + most.attached + 2 * most.tunnels
        server = aio.server(options=server_options(self._limits), maximum_concurrent_rpcs=calls)
        service = TunnelService(own, inbox, self._limits, self.traffic, self._clock, accord)
        server.add_generic_rpc_handlers((service.handlers(), service.tunnel_handlers(switchboard, most)))
        tls = grpc.ssl_server_credentials(
            [(own.key_pem, own.certificate_pem)], own.authority_pem, require_client_auth=True
        )
        try:
            port = server.add_secure_port(str(self._listen) if self._ways.reachable else tunnels.own_socket, tls)
        except RuntimeError as error:
            await self.stop(0)
            raise TransportError(
                f"cannot listen at {self._listen}: {error}. "
                "Set peer.listen to another address or port, or stop what uses this one"
            ) from None
        self._server = server
        await server.start()
        return Address(self._listen.host, port) if self._ways.reachable else attached_address(own.identity.name)

    async def send_model(self, to: MemberRecord, parcel: Parcel) -> Reception:
        """Deliver a model; `TransportError` if the member cannot be reached or another one answers."""
        return await self._started().send_model(to, parcel)

    async def gossip(self, to: Address, name: str | None, records: Sequence[MemberRecord]) -> Introduction:
        """Exchange membership tables with whoever is at `to`; with `name`, only if it is that member."""
        return await self._started().gossip(to, name, records)

    async def stop(self, grace_s: float) -> None:
        """Stop listening; calls in progress have this long to end."""
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None
        if self._attaching is not None:
            await self._attaching.close()
            self._attaching = None
        if self._caller is not None:
            await self._caller.close()
            self._caller = None

    def _started(self) -> MemberCaller:
        if self._caller is None:
            raise TransportError("the transport is not started: call start() first")
        return self._caller

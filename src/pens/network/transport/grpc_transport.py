# SPDX-License-Identifier: Apache-2.0
"""Transport over gRPC and mutual TLS 1.3.

grpc_transport     starts and stops both sides
├── entrance       accepts connections: counts and meters them, and relays them to the server
│   ├── visitors   which connections are open, and which give way
│   └── relay      one connection
├── grpc_server    answers calls: checks the caller, then the bounds, then the bytes
├── grpc_tunnels   answers calls about tunnels to members that cannot be called (tunnels, outward)
├── attaching      makes tunnels
│   └── tunnel_door  where connections come out of them
├── grpc_client    makes calls: deadlines, attempts
├── channels       connections to others, for the client and for tunnels
│   └── dialling   which addresses are called
├── list_exchange  passes newer revocation lists on
├── limits         bounds of everything that other members can make this one hold
├── wire           messages as bytes and as plain data, checked
└── grpc_core      the environment of gRPC's C core, and its log of failed handshakes
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from pens.network.transport.grpc_core import native_log_settings, native_tls_settings, refusal_in, set_tls_1_3_only

set_tls_1_3_only()  # gRPC reads the environment when it is imported

import grpc  # noqa: E402
from grpc import aio  # noqa: E402

from pens.errors import AddressError, TransportError  # noqa: E402
from pens.network.certificates.credentials import Credentials, Material  # noqa: E402
from pens.network.transport.attaching import Attaching  # noqa: E402
from pens.network.transport.channels import Channels  # noqa: E402
from pens.network.transport.dialling import Dialling  # noqa: E402
from pens.network.transport.entrance import Entrance, listening_at  # noqa: E402
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
    Table,
    TransportCounts,
)
from pens.network.transport.limits import Limits  # noqa: E402
from pens.network.transport.list_exchange import ListExchange  # noqa: E402
from pens.network.transport.outward import Ways, attached_address  # noqa: E402
from pens.network.transport.relay import INSIDE  # noqa: E402
from pens.network.transport.terms import Accord  # noqa: E402
from pens.network.transport.tunnel_door import TunnelDoor  # noqa: E402
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
        dialling: Dialling | None = None,
    ) -> None:
        """`ways`: how it reaches others, and is reached. If nobody can call it, it does not listen at `listen`.

        `dialling`: which addresses to call; None: any but loopback, unless `listen` is on loopback.
        """
        self._ways, self._tunnel_limits = ways or Ways(), tunnel_limits or TunnelLimits()
        self.traffic = TransportCounts()
        self._credentials, self._listen, self._clock = credentials, listen, clock
        self._limits = limits or Limits()
        self._jitter = jitter or random.Random()
        self._dialling = dialling or Dialling(listen.host)
        self._server: Any = None
        self._entrance: Entrance | None = None
        self._caller: MemberCaller | None = None
        self._attaching: Attaching | None = None
        self._service: TunnelService | None = None

    async def start(self, inbox: Inbox, accord: Accord | None = None) -> Address:
        """Listen, and return the address with the real port."""
        own, most = self._credentials, self._tunnel_limits
        lists = ListExchange(own, self._limits.lists_s, self._clock)
        channels = Channels(own, self._limits, self._dialling, self._ways.proxy)
        door = TunnelDoor(self._limits, self.traffic, self._clock)
        switchboard = Switchboard(own.identity.name, self._ways.relay, most, self.traffic, self._clock)
        tunnels = self._attaching = Attaching(
            own.identity.name, switchboard, None if self._ways.reachable else door, channels, self._limits, most
        )
        self._caller = MemberCaller(own, self._limits, self.traffic, self._jitter, lists, channels, accord, tunnels)
        try:
            listening = listening_at(self._listen) if self._ways.reachable else None
        except OSError as error:
            await self.stop(0)
            raise AddressError(
                f"cannot listen at {self._listen}: {error.strerror or error}. "
                "Set peer.listen to another address or port, or stop what uses this one"
            ) from None
        entrance = Entrance(self._limits, self.traffic, self._clock) if listening else None
        calls = self._limits.calls + most.attached + 2 * most.tunnels
        server = aio.server(options=server_options(self._limits), maximum_concurrent_rpcs=calls)
        service = TunnelService(own, inbox, self._limits, self.traffic, self._clock, lists, entrance or door, accord)
        server.add_generic_rpc_handlers((service.handlers(), service.tunnel_handlers(switchboard, most)))
        inside = f"{INSIDE}:0" if entrance else tunnels.own_socket
        inner_port = server.add_secure_port(inside, _server_credentials(own))
        self._service = service
        self._server, self._entrance = server, entrance
        await server.start()
        if listening is None or entrance is None:
            return attached_address(own.identity.name)
        await entrance.open(listening, inner_port)
        return Address(self._listen.host, listening.getsockname()[1])

    async def send_model(self, to: MemberRecord, parcel: Parcel) -> Reception:
        """Deliver a model; `TransportError` if the member cannot be reached or another one answers."""
        return await self._started().send_model(to, parcel)

    async def gossip(self, to: Address, name: str | None, table: Table) -> Introduction:
        """Exchange tables with whoever is at `to`; with `name`, only if it is that member."""
        return await self._started().gossip(to, name, table)

    def change_limits(self, limits: Limits) -> None:
        """Take more or fewer models of others from now on; what gRPC itself bounds stays as it was."""
        self._limits = limits
        if self._service is not None:
            self._service.change_limits(limits)

    async def stop(self, grace_s: float) -> None:
        """Stop listening; calls in progress have this long to end."""
        if self._entrance is not None:
            self._entrance.close()
        if self._server is not None:
            await self._server.stop(grace_s)
            self._server = None
        if self._entrance is not None:
            self._entrance.abort()
            self._entrance = None
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


def _server_credentials(own: Credentials) -> Any:
    """What the server shows; gRPC asks again before each handshake, from threads of its own."""
    shown = own.material

    def newest() -> Any:
        nonlocal shown
        material = own.material
        if material is shown:
            return None  # as before
        shown = material
        return _server_configuration(material)

    return grpc.dynamic_ssl_server_credentials(_server_configuration(shown), newest, require_client_authentication=True)


def _server_configuration(material: Material) -> Any:
    pair = (material.key_pem, material.certificate_pem)
    return grpc.ssl_server_certificate_configuration([pair], material.authorities.pem)

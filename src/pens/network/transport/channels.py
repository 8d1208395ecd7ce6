# SPDX-License-Identifier: Apache-2.0
"""Channels of gRPC to other members: what this member shows, which certificate it demands, and the way there.

An address is checked and resolved here (`dialling`), also where it was called before. Through a proxy (CONNECT, RFC
9110, section 9.3.6) the proxy resolves names, so only what stands in the address can be checked. Members that cannot be
called have no address: the way to them is a local socket (`attaching`).
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc import aio

from pens.errors import TransportError
from pens.network.certificates.credentials import Credentials, Material
from pens.network.transport.dialling import Dialling
from pens.network.transport.interface import Address
from pens.network.transport.limits import Limits
from pens.network.transport.wire import check_address


class Unreachable(TransportError):
    """Nobody answered: another attempt may succeed."""


class Channels:
    """Makes channels to other members."""

    def __init__(self, credentials: Credentials, limits: Limits, dialling: Dialling, proxy: str | None = None) -> None:
        self._credentials, self._limits, self._dialling, self._proxy = credentials, limits, dialling, proxy
        self._tls: tuple[Material, Any] | None = None

    def present(self) -> tuple[Material, Any]:
        """What this member shows now, and the same for gRPC."""
        material = self._credentials.material
        if self._tls is None or self._tls[0] is not material:
            pem = material.authorities.pem
            self._tls = material, grpc.ssl_channel_credentials(pem, material.key_pem, material.certificate_pem)
        return self._tls

    async def open(self, to: Address, dns_name: str, tls: Any, local: str | None = None) -> Any:
        """A channel whose other end must hold a certificate for `dns_name`.

        `tls`: what is shown, from `present`. `local`: the socket in place of `to`, where that member cannot be called.
        """
        check_address(to)
        target = local or await self._target(to)
        name: list[tuple[str, int | str]] = [("grpc.ssl_target_name_override", dns_name)]
        return aio.secure_channel(target, tls, options=[*name, *self._way(local), *channel_options(self._limits)])

    def _way(self, local: str | None) -> list[tuple[str, int | str]]:
        if self._proxy is None or local:
            return [("grpc.enable_http_proxy", 0)]
        # the environment's variables no_proxy and no_grpc_proxy still count
        return [("grpc.http_proxy", self._proxy), ("grpc.enable_http_proxy", 1)]

    async def _target(self, to: Address) -> str:
        """The address to call, as gRPC names it. Of several, the first one's family decides."""
        if self._proxy is not None:
            self._dialling.check_unresolved(to)
            return f"dns:///{to}"
        try:
            async with asyncio.timeout(self._limits.call_s):
                found = await self._dialling.resolve(to)
        except (OSError, UnicodeError, TimeoutError) as error:
            raise Unreachable(f"{to}: the name cannot be resolved: {error or 'no answer'}") from None
        same = [ip for ip in found if ip.version == found[0].version]
        return f"ipv{found[0].version}:" + ",".join(str(Address(str(ip), to.port)) for ip in same)

    def close(self) -> None:
        """Wait for no further lookups of names."""
        self._dialling.close()


async def error_of(call: Any) -> aio.AioRpcError:
    """Why a call ended, as an exception."""
    return aio.AioRpcError(
        await call.code(), await call.initial_metadata(), await call.trailing_metadata(), await call.details()
    )


def channel_options(limits: Limits) -> list[tuple[str, int | str]]:
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
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", int(1000 * limits.call_s)),
        ("grpc.max_reconnect_backoff_ms", int(1000 * limits.max_backoff_s)),
    ]

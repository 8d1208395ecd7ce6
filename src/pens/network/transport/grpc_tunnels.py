# SPDX-License-Identifier: Apache-2.0
"""The listening side of tunnels: answers members that attach themselves, and those that want to reach them.

Callers are checked as in all other calls. Their bytes are not parsed: they go to the other end of the tunnel.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc

from pens.network.certificates.certificate import Identity
from pens.network.transport.attaching import OPEN, CallEnd
from pens.network.transport.grpc_server import SERVICE, MemberService
from pens.network.transport.tunnels import NoTunnel, Switchboard, TunnelLimits, splice
from pens.network.transport.wire import TICKET, TO, encode_wanted


class _Answered(CallEnd):
    """The end of an attached member, until whoever uses it is done."""

    def __init__(self, context: Any) -> None:
        super().__init__(context)
        self.over = asyncio.Event()

    def close(self) -> None:
        self.over.set()


class TunnelService(MemberService):
    """Answers the calls of other members, those about tunnels included."""

    def tunnel_handlers(self, switchboard: Switchboard, limits: TunnelLimits) -> Any:
        """The methods about tunnels, for gRPC."""
        self._switchboard, self._tunnel_limits = switchboard, limits
        methods = {
            "Attach": grpc.stream_stream_rpc_method_handler(self._attach),
            "Answer": grpc.stream_stream_rpc_method_handler(self._answer),
            "Reach": grpc.stream_stream_rpc_method_handler(self._reach),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _checked(self, context: Any) -> Identity:
        caller = await self._caller(context)
        await self._check_rate(caller.name, context)
        await self._check_version(caller.name, context)
        return caller

    async def _attach(self, _requests: Any, context: Any) -> None:
        name = (await self._checked(context)).name
        try:
            with self._switchboard.attached(name) as tickets:
                await context.send_initial_metadata(((OPEN, "attached"),))
                while True:
                    await context.write(encode_wanted(await tickets.get()))
        except NoTunnel as error:
            await self._no_tunnel(context, f"{name} cannot attach: {error}")

    async def _answer(self, _requests: Any, context: Any) -> None:
        name = (await self._checked(context)).name
        end = _Answered(context)
        try:
            self._switchboard.answer(name, self._told(context, TICKET) or b"", end)
        except NoTunnel as error:
            await self._no_tunnel(context, f"answer of {name}: {error}")
        await end.over.wait()

    async def _reach(self, _requests: Any, context: Any) -> None:
        name = (await self._checked(context)).name
        try:
            async with self._switchboard.tunnel(name, self._told(context, TO) or "") as (end, admit):
                await context.send_initial_metadata(((OPEN, "open"),))
                await splice(CallEnd(context), end, admit, self._tunnel_limits.idle_s)
        except NoTunnel as error:
            await self._no_tunnel(context, f"tunnel for {name}: {error}")

    def _told(self, context: Any, key: str) -> Any:
        return next((value for name, value in context.invocation_metadata() if name == key), None)

    async def _no_tunnel(self, context: Any, words: str) -> None:
        self._note(context, "no tunnel", words)
        await context.abort(grpc.StatusCode.NOT_FOUND, words)

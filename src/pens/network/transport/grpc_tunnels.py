# SPDX-License-Identifier: Apache-2.0
"""The listening side of tunnels: answers members that attach themselves, and those that want to reach them.

Callers are checked as in all other calls. Their bytes are not parsed: they go to the other end of the tunnel.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

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
            "Answer": grpc.stream_stream_rpc_method_handler(self._answer_ticket),
            "Reach": grpc.stream_stream_rpc_method_handler(self._reach),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    @asynccontextmanager
    async def _tunnel_call(self, context: Any, what: str) -> AsyncIterator[str]:
        """The name of the caller. These calls last: they count among a member's calls in progress only while they are
        checked, have no deadline, and keep their connection; the bounds of tunnels hold for them instead."""
        async with self._call(context) as name:
            await self._check_rate(name, context)
            await self._check_version(name, context)
        try:
            with self._doors.carrying(context.peer()):
                yield name
        except NoTunnel as error:
            words = f"{what} of {name}: {error}"
            self._note(context, "no tunnel", words, name)
            await context.abort(grpc.StatusCode.NOT_FOUND, words)

    async def _attach(self, _requests: Any, context: Any) -> None:
        async with self._tunnel_call(context, "attachment") as name:
            with self._switchboard.attached(name) as tickets:
                await context.send_initial_metadata(((OPEN, "attached"),))
                while ticket := await tickets.get():
                    await self._answer(name, context, encode_wanted(ticket))

    async def _answer_ticket(self, _requests: Any, context: Any) -> None:
        async with self._tunnel_call(context, "answer") as name:
            end = _Answered(context)
            self._switchboard.answer(name, self._told(context, TICKET) or b"", end)
            await end.over.wait()

    async def _reach(self, _requests: Any, context: Any) -> None:
        async with (
            self._tunnel_call(context, "tunnel") as name,
            self._switchboard.tunnel(name, self._told(context, TO) or "") as (end, admit),
        ):
            await context.send_initial_metadata(((OPEN, "open"),))
            await splice(CallEnd(context), end, admit, self._tunnel_limits.idle_s)

    def _told(self, context: Any, key: str) -> Any:
        return next((value for name, value in context.invocation_metadata() if name == key), None)

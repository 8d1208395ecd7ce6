# SPDX-License-Identifier: Apache-2.0
"""Calls in which members tell each other of members; `membership` decides what to tell and what to believe."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pens.network.members.callees import Target
from pens.network.members.membership import Membership
from pens.network.transport.interface import Address, MemberRecord, Table, Transport, TransportError

_CALLS = 16  # in progress
_LEAVING_S = 2.0
_GREETED_S = 3600.0
_log = logging.getLogger("pens.network.node")


class Gossiper:
    """Calls other members, and answers their calls."""

    def __init__(self, membership: Membership, transport: Transport, on_news: Callable[[], None]) -> None:
        self._membership, self._transport, self._on_news = membership, transport, on_news
        self._calls: dict[Address, asyncio.Task[None]] = {}

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def call(self) -> None:
        """Begin the calls of a round of gossip."""
        for target in self._membership.tick(self._now):
            self._call(target)

    def answer(self, speaker: str, table: Table) -> Table:
        """Take what a member told in a call, and answer it."""
        self._hear(speaker, table)
        return self._membership.answer(speaker, table, self._now)

    async def greet(self, record: MemberRecord) -> None:
        """Gossip with a member that is about to be sent a model and may not know this one, so that it can answer."""
        if not self._membership.has_met(record.name, self._now, _GREETED_S):
            await self._gossip(Target(record.address, record.name))

    def _hear(self, speaker: str, table: Table) -> None:
        forged = self._membership.forged
        self._membership.hear(table, self._now, speaker)
        if self._membership.forged > forged:
            self._transport.traffic.refusals["forged record"] += 1
            _log.warning("forged record refused", extra={"member": speaker})
        self._on_news()

    def _call(self, target: Target) -> None:
        """Gossip with one target.

        A call that nobody answers lasts long. So each address has at most one, and calls of members that may be gone
        take at most half of all calls.
        """
        is_there = target.name is not None and self._membership.status(target.name, self._now) == "alive"
        if target.address not in self._calls and len(self._calls) < (_CALLS if is_there else _CALLS // 2):
            call = asyncio.create_task(self._tell(target))
            self._calls[target.address] = call
            call.add_done_callback(lambda _: self._calls.pop(target.address))

    async def _tell(self, target: Target) -> None:
        try:
            await self._gossip(target)
        except TransportError as error:
            if target.name is not None:
                self._membership.missed(target.name)
            _log.debug("gossip failed", extra={"member": target.name, "at": str(target.address), "why": str(error)})

    async def _gossip(self, target: Target) -> None:
        """Call, and if the answer asks for certificates, or tells what needs some, call once more."""
        table: Table | None = self._membership.tell(target.name, self._now)
        name = target.name
        for _ in range(2):
            if table is None:
                return
            answer = await self._transport.gossip(target.address, name, table)
            name = answer.name
            self._hear(name, answer.table)
            self._membership.heard(name, self._now, target.address)
            table = self._membership.follow_up(name, answer.table)

    async def say_goodbye(self) -> None:
        """Leave the federation, and wait a moment for the answers of the members that are told."""
        self._membership.leave()
        others = self._membership.members(self._now, "alive")[:_CALLS]
        calls = [self._tell(Target(record.address, record.name)) for record in others]
        try:
            await asyncio.wait_for(asyncio.gather(*calls, *self._calls.values(), return_exceptions=True), _LEAVING_S)
        except TimeoutError:
            _log.info("left before all members answered")

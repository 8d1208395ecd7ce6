# SPDX-License-Identifier: Apache-2.0
"""Calls in which members exchange their membership tables; `membership` decides which lines to believe."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from pens.network.members.membership import Membership, Target
from pens.network.transport.interface import Address, MemberRecord, Transport, TransportError

_CALLS = 16  # in progress
_LEAVING_S = 2.0
_log = logging.getLogger("pens.network.node")


class Gossiper:
    """Calls other members, and merges the tables that they tell."""

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

    def hear(self, speaker: str, records: Sequence[MemberRecord]) -> None:
        """Merge the table that a member told."""
        self._membership.merge(records, self._now, speaker)
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
        records = self._membership.records(self._now)
        try:
            answer = await self._transport.gossip(target.address, target.name, records)
        except TransportError as error:
            _log.debug("gossip failed", extra={"member": target.name, "at": str(target.address), "why": str(error)})
        else:
            self.hear(answer.name, answer.records)

    async def say_goodbye(self) -> None:
        """Leave the federation, and wait a moment for the answers of the members that are told."""
        self._membership.leave()
        others = self._membership.members(self._now, "alive")[:_CALLS]
        calls = [self._tell(Target(record.address, record.name)) for record in others]
        try:
            await asyncio.wait_for(asyncio.gather(*calls, *self._calls.values(), return_exceptions=True), _LEAVING_S)
        except TimeoutError:
            _log.info("left before all members answered")

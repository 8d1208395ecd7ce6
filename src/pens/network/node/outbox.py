# SPDX-License-Identifier: Apache-2.0
"""Models that wait to be sent: a short queue for each member, so that a slow one delays no other.

A full queue drops its oldest model, because a newer one is worth more. A model for a member that cannot be reached is
dropped; the next one may reach it again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from pens.network.transport.interface import MemberRecord, Parcel, Reception, Transport, TransportError

Find = Callable[[str], MemberRecord | None]
Greet = Callable[[MemberRecord], Awaitable[None]]
Told = Callable[[str, Parcel, Reception | TransportError], None]


class Outbox:
    """Sends models to members, to each in order."""

    def __init__(self, transport: Transport, find: Find, greet: Greet, told: Told, length: int) -> None:
        """`find`: the record of a member. `greet`: sees to it that a member knows this one before a model comes.
        `told`: called with the outcome of each model."""
        self._transport, self._find, self._greet, self._told, self._length = transport, find, greet, told, length
        self._queues: dict[str, deque[Parcel]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def put(self, name: str, parcel: Parcel) -> None:
        """Send a model after those that already wait for the same member."""
        self._queues.setdefault(name, deque(maxlen=self._length)).append(parcel)
        if name not in self._tasks:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._send_all(name))

    async def _send_all(self, name: str) -> None:
        try:
            while queue := self._queues.get(name):
                await self._send(name, queue.popleft())
        finally:
            self._queues.pop(name, None)
            del self._tasks[name]

    async def _send(self, name: str, parcel: Parcel) -> None:
        record = self._find(name)
        if record is None:
            return
        try:
            await self._greet(record)
            outcome: Reception | TransportError = await self._transport.send_model(record, parcel)
        except TransportError as error:
            outcome = error
        self._told(name, parcel, outcome)

    async def close(self) -> None:
        """Stop sending, and drop the models that wait."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

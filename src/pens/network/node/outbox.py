# SPDX-License-Identifier: Apache-2.0
"""Models on their way out: a short queue for each member, so that a slow one holds up nobody else.

A queue that is full loses its oldest model: a newer one is worth more. Nothing waits for a member that cannot be
reached; the next model may find it again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from pens.network.transport.interface import MemberRecord, Parcel, Reception, Transport, TransportError

Find = Callable[[str], MemberRecord | None]
Told = Callable[[str, Parcel, Reception | TransportError], None]


class Outbox:
    """Sends what is put into it."""

    def __init__(self, transport: Transport, find: Find, told: Told, length: int) -> None:
        """`find`: where a member is. `told`: what became of a model."""
        self._transport, self._find, self._told, self._length = transport, find, told, length
        self._queues: dict[str, deque[Parcel]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def put(self, name: str, parcel: Parcel) -> None:
        """Send a model when those before it to the same member are sent."""
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
            outcome: Reception | TransportError = await self._transport.send_model(record, parcel)
        except TransportError as error:
            outcome = error
        self._told(name, parcel, outcome)

    async def close(self) -> None:
        """Send no more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

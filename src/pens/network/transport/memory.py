# SPDX-License-Identifier: Apache-2.0
"""A network in memory: the transport of tests, and of many nodes in one process.

Names are believed, as certificates make them elsewhere. A message takes `latency_s` of the event loop's time, whichever
clock that has. Links can be cut, and members vanish without a word.

A sender waits until it hears what became of a model, and sends the next one to that member then. With `posts` it does
not, and a link carries several models at once, as the simulator's do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pens.errors import TransportError
from pens.network.transport.interface import (
    Address,
    Inbox,
    Introduction,
    MemberRecord,
    Parcel,
    Reception,
    TransportCounts,
)

HOST = "memory"


class MemoryNetwork:
    """What the transports of one network have in common."""

    def __init__(self, latency_s: float = 0.0, posts: bool = False) -> None:
        self.latency_s, self.posts = latency_s, posts
        self._inboxes: dict[int, tuple[str, Inbox]] = {}
        self._ports = 0
        self._cut: set[frozenset[str]] = set()

    def join(self, name: str) -> MemoryTransport:
        """A transport for a member of this name."""
        return MemoryTransport(self, name)

    def cut(self, one: str, other: str) -> None:
        """Nothing goes between two members until the link is mended."""
        self._cut.add(frozenset((one, other)))

    def mend(self) -> None:
        """All links work again."""
        self._cut.clear()

    def listen(self, name: str, inbox: Inbox) -> int:
        """A new port, at which a member can be reached."""
        self._ports += 1
        self._inboxes[self._ports] = (name, inbox)
        return self._ports

    def vanish(self, port: int) -> None:
        """Nobody is there any more."""
        self._inboxes.pop(port, None)

    def reach(self, sender: str, to: Address, name: str | None) -> tuple[str, Inbox]:
        """Who listens there, if the sender can reach it and it is who it should be."""
        found = self._inboxes.get(to.port)
        if not found or frozenset((sender, found[0])) in self._cut:
            raise TransportError(f"{sender}: nobody answers at {to}")
        if name is not None and found[0] != name:
            raise TransportError(f"{sender}: {found[0]} answers at {to}, not {name}")
        return found


class MemoryTransport:
    """One member's place in the network."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self._network, self._name = network, name
        self._port = 0
        self._posted: set[asyncio.Task[Reception]] = set()
        self.traffic = TransportCounts()

    async def start(self, inbox: Inbox) -> Address:
        """Listen."""
        self._port = self._network.listen(self._name, inbox)
        return Address(HOST, self._port)

    async def send_model(self, to: MemberRecord, parcel: Parcel) -> Reception:
        """Deliver a model."""
        if not self._network.posts:
            return await self._deliver(to, parcel)
        self._network.reach(self._name, to.address, to.name)
        delivery = asyncio.create_task(self._deliver(to, parcel))
        self._posted.add(delivery)
        delivery.add_done_callback(self._posted.discard)
        return Reception.TAKEN

    async def _deliver(self, to: MemberRecord, parcel: Parcel) -> Reception:
        await self._travel()
        _, inbox = self._network.reach(self._name, to.address, to.name)
        verdict = inbox.wants(self._name, len(parcel.payload))
        if verdict is Reception.TAKEN:
            verdict = await inbox.take_model(self._name, parcel)
        self.traffic.models_out += verdict is Reception.TAKEN
        self.traffic.bytes_out += len(parcel.payload)
        return verdict

    async def gossip(self, to: Address, name: str | None, records: Sequence[MemberRecord]) -> Introduction:
        """Exchange tables."""
        await self._travel()
        found, inbox = self._network.reach(self._name, to, name)
        answer = await inbox.gossip(self._name, records)
        return Introduction(found, tuple(answer))

    async def stop(self, grace_s: float) -> None:
        """Listen no longer."""
        self._network.vanish(self._port)
        for delivery in self._posted:
            delivery.cancel()
        await asyncio.gather(*self._posted, return_exceptions=True)

    async def _travel(self) -> None:
        if self._network.latency_s:
            await asyncio.sleep(self._network.latency_s)

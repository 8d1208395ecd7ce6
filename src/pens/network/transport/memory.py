# SPDX-License-Identifier: Apache-2.0
"""A network in memory: the transport of tests, and of many nodes in one process.

This transport believes the names that members give; other transports check certificates. A message takes `latency_s`
of the event loop's time, whichever clock that has. Links can be cut, and members can vanish without telling anybody.

A sender waits for the answer to a model before it sends the next one to the same member. With `posts` it does not wait,
and a link carries several models at once, as a simulator's link does.
"""

from __future__ import annotations

import asyncio

from pens.errors import TransportError
from pens.network.transport.interface import (
    Address,
    Inbox,
    Introduction,
    MemberRecord,
    Parcel,
    Reception,
    Table,
    TransportCounts,
)
from pens.network.transport.terms import Accord, AnyTerms

HOST = "memory"


class MemoryNetwork:
    """The links between the transports of one network."""

    def __init__(self, latency_s: float = 0.0, posts: bool = False) -> None:
        self.latency_s, self.posts = latency_s, posts
        self._inboxes: dict[int, tuple[str, Inbox]] = {}
        self._accords: dict[str, Accord] = {}
        self._met: set[frozenset[str]] = set()
        self._ports = 0
        self._cut: set[frozenset[str]] = set()

    def join(self, name: str) -> MemoryTransport:
        """The transport of a member of this name."""
        return MemoryTransport(self, name)

    def cut(self, one: str, other: str) -> None:
        """Carry nothing between two members until `mend`."""
        self._cut.add(frozenset((one, other)))

    def mend(self) -> None:
        """Make all links work again."""
        self._cut.clear()

    def listen(self, name: str, inbox: Inbox, accord: Accord) -> int:
        """Open a port at which a member can be reached."""
        self._ports += 1
        self._accords[name] = accord
        self._met = {pair for pair in self._met if name not in pair}
        self._inboxes[self._ports] = (name, inbox)
        return self._ports

    def vanish(self, port: int) -> None:
        """Close a port: nobody answers at it any more."""
        self._inboxes.pop(port, None)

    def reach(self, sender: str, to: Address, name: str | None) -> tuple[str, Inbox]:
        """The name and inbox of the member at an address; TransportError if it cannot be reached or is not `name`."""
        listener = self._inboxes.get(to.port)
        if not listener or frozenset((sender, listener[0])) in self._cut:
            raise TransportError(f"{sender} called {to}, but nobody answers there")
        if name is not None and listener[0] != name:
            raise TransportError(f"{sender} called {name} at {to}, but {listener[0]} answers there")
        self._meet(sender, listener[0])
        return listener

    def _meet(self, caller: str, called: str) -> None:
        """Tell two members each other's terms before their first call, as members on a real network do."""
        pair = frozenset((caller, called))
        if caller != called and pair not in self._met and pair <= self._accords.keys():
            self._met.add(pair)
            for one, other in ((caller, called), (called, caller)):
                self._accords[one].hear(other, self._accords[other].terms)
        if refusal := self._accords[called].refusal(caller):
            raise TransportError(f"{called} refused {caller}: {refusal}")


class MemoryTransport:
    """One member's place in the network."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self._network, self._name = network, name
        self._port = 0
        self._posted: set[asyncio.Task[Reception]] = set()
        self.traffic = TransportCounts()

    async def start(self, inbox: Inbox, accord: Accord | None = None) -> Address:
        """Listen at a new port."""
        self._port = self._network.listen(self._name, inbox, accord or AnyTerms())
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

    async def gossip(self, to: Address, name: str | None, table: Table) -> Introduction:
        """Exchange tables with whoever is at `to`."""
        await self._travel()
        listener, inbox = self._network.reach(self._name, to, name)
        return Introduction(listener, await inbox.gossip(self._name, table))

    async def stop(self, grace_s: float) -> None:
        """Stop listening, and drop the models that are still on their way."""
        self._network.vanish(self._port)
        for delivery in self._posted:
            delivery.cancel()
        await asyncio.gather(*self._posted, return_exceptions=True)

    async def _travel(self) -> None:
        if self._network.latency_s:
            await asyncio.sleep(self._network.latency_s)

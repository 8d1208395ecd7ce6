# SPDX-License-Identifier: Apache-2.0
"""The seam between a node and its network: what crosses it is plain data, and names come from certificates.

A node offers an `Inbox` and uses a `Transport`. Neither knows the other's inside: gRPC over mutual TLS and the
in-memory network are two transports, and a node cannot tell them apart.

    node ── send_model, gossip ──▶ Transport ⇢ Transport ── wants, take_model, gossip ──▶ Inbox of another node
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from pens.errors import TransportError

__all__ = [
    "Address",
    "Inbox",
    "Introduction",
    "MemberRecord",
    "Parcel",
    "Reception",
    "Transport",
    "TransportCounts",
    "TransportError",
]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a member listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """One line of a membership table, as gossiped."""

    name: str
    address: Address
    incarnation: int
    heartbeat: int
    left: bool = False
    finished: bool = False
    """It has done its updates, or stopped early, and serves its model."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """The answer to a gossip call: who answered, by its certificate, and what it knows."""

    name: str
    records: tuple[MemberRecord, ...]


@dataclass(frozen=True, slots=True)
class Parcel:
    """A model on its way: `payload` is what the codec made of it."""

    version: int
    payload: bytes
    answer: bool = False
    """In return for one of the receiver's models."""
    note: bytes = b""
    """What the sender says beside it, as JSON; empty: nothing."""


class Reception(Enum):
    """What a receiver says about a model."""

    TAKEN = "taken"
    BUSY = "busy"
    """Full: try again later."""
    REFUSED = "refused"
    """Will not be taken: damaged, too many, not wanted."""
    OTHER_NETWORK = "another network"
    """Will not be taken: the receiver has another network than the sender. On the wire, a refusal with this reason."""


@dataclass(slots=True)
class TransportCounts:
    """What went through a transport. Bytes are those of models' payloads; refusals count by reason."""

    bytes_in: int = 0
    bytes_out: int = 0
    models_in: int = 0
    models_out: int = 0
    refusals: Counter[str] = field(default_factory=Counter)


class Inbox(Protocol):
    """What a node offers to its transport. `sender` is the name in the sender's certificate."""

    async def take_model(self, sender: str, parcel: Parcel) -> Reception:
        """A whole model has come."""
        ...

    async def gossip(self, sender: str, records: Sequence[MemberRecord]) -> Sequence[MemberRecord]:
        """Somebody says what it knows, and asks for what we know."""
        ...

    def wants(self, sender: str, size: int) -> Reception:
        """Asked before a single byte of a model of this many bytes is buffered."""
        ...


class Transport(Protocol):
    """How a node reaches the others."""

    @property
    def traffic(self) -> TransportCounts:
        """Plain counters."""
        ...

    async def start(self, inbox: Inbox) -> Address:
        """Listen; the address with the real port."""
        ...

    async def send_model(self, to: MemberRecord, parcel: Parcel) -> Reception:
        """Deliver a model; `TransportError` if the member cannot be reached or is not who it should be."""
        ...

    async def gossip(self, to: Address, name: str | None, records: Sequence[MemberRecord]) -> Introduction:
        """Exchange membership tables with whoever is at `to`.

        `name`: who must answer, checked against the certificate; None at the bootstrap, where any member will do.
        """
        ...

    async def stop(self, grace_s: float) -> None:
        """Listen no longer; calls in progress have this long to end."""
        ...

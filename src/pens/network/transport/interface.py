# SPDX-License-Identifier: Apache-2.0
"""The interface between a node and its network: what crosses it is plain data, and names come from certificates.

A node offers an `Inbox` and uses a `Transport`. Neither depends on how the other works: gRPC over mutual TLS and the
in-memory network are two transports, and a node cannot tell them apart.

    node ── send_model, gossip ──▶ Transport ⇢ Transport ── wants, take_model, gossip ──▶ Inbox of another node
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from pens.errors import TransportError
from pens.network.transport.terms import Accord

__all__ = [
    "Address",
    "Inbox",
    "Introduction",
    "MemberRecord",
    "Parcel",
    "Reception",
    "Table",
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


_PURPOSE = b"pens member record 1\0"  # so that no other signature of the same key can pass for that of a record


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """What a member says of itself, signed with the key of its certificate, as others pass it on."""

    name: str
    address: Address
    incarnation: int
    """A higher one in each of the member's lives."""
    heartbeat: int
    """When the record was signed, in seconds since 1970 by the member's own clock; always higher than before."""
    left: bool = False
    finished: bool = False
    """The member has done its updates, or stopped early, and serves its model."""
    serial: int = 0
    """The serial number of the certificate whose key signed the record."""
    signature: bytes = b""

    @property
    def version(self) -> tuple[int, int]:
        """Of two records of a member, the newer one has the higher version."""
        return self.incarnation, self.heartbeat

    @property
    def content(self) -> bytes:
        """What is signed: every field but the signature, each of one length or behind its length."""
        numbers = (self.address.port, self.incarnation, self.heartbeat, self.left, self.finished, self.serial)
        sized = (text.encode() for text in (self.name, self.address.host))
        texts = b"".join(len(text).to_bytes(2) + text for text in sized)
        return _PURPOSE + texts + b"".join(int(number).to_bytes(20) for number in numbers)


@dataclass(frozen=True, slots=True)
class Table:
    """What a member tells another one in a call of gossip, or in answer to one."""

    records: tuple[MemberRecord, ...] = ()
    wanted: tuple[int, ...] = ()
    """Serial numbers of certificates that the speaker needs to check what the other one told."""
    certificates: tuple[bytes, ...] = ()
    """Certificates that the other one wanted."""
    room: int = 0
    """How many records the speaker would like to be told."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """The answer to a call of gossip: who answered, by its certificate, and what it told."""

    name: str
    table: Table


@dataclass(frozen=True, slots=True)
class Parcel:
    """A model as it is sent: `payload` is what the codec made of it."""

    version: int
    payload: bytes
    answer: bool = False
    """Whether it was sent in return for one of the receiver's models."""
    note: bytes = b""
    """What the sender's method says beside the model, as JSON; empty: nothing."""


class Reception(Enum):
    """A receiver's answer to a model."""

    TAKEN = "taken"
    BUSY = "busy"
    """The receiver is full: the sender may try again later."""
    REFUSED = "refused"
    """The receiver does not take the model: it is damaged, not wanted, or one of too many."""
    OTHER_NETWORK = "another network"
    """The receiver does not take the model: it has another network than the sender. On the wire this is a refusal with
    this reason."""


@dataclass(slots=True)
class TransportCounts:
    """What went through a transport. Bytes are those of models' payloads; refusals are counted by reason."""

    bytes_in: int = 0
    bytes_out: int = 0
    models_in: int = 0
    models_out: int = 0
    bytes_relayed: int = 0
    """Carried between two others, as their relay."""
    refusals: Counter[str] = field(default_factory=Counter)


class Inbox(Protocol):
    """What a node offers to its transport. `sender` is the name in the sender's certificate."""

    async def take_model(self, sender: str, parcel: Parcel) -> Reception:
        """Receive a whole model."""
        ...

    async def gossip(self, sender: str, table: Table) -> Table:
        """Receive what a member tells of members, and answer likewise."""
        ...

    def wants(self, sender: str, size: int) -> Reception:
        """Whether to receive a model of this many bytes; asked before a byte of it is buffered."""
        ...


class Transport(Protocol):
    """How a node reaches other members."""

    @property
    def traffic(self) -> TransportCounts:
        """What went through this transport so far."""
        ...

    async def start(self, inbox: Inbox, accord: Accord | None = None) -> Address:
        """Listen, and return the address with the real port. `accord`: compares terms with other members."""
        ...

    async def send_model(self, to: MemberRecord, parcel: Parcel) -> Reception:
        """Deliver a model; `TransportError` if the member cannot be reached or another one answers."""
        ...

    async def gossip(self, to: Address, name: str | None, table: Table) -> Introduction:
        """Tell whoever is at `to` of members, and be told of some.

        `name`: the member that must answer, checked against the certificate; None for a bootstrap address, where any
        member may answer.
        """
        ...

    async def stop(self, grace_s: float) -> None:
        """Stop listening; calls in progress have this long to end."""
        ...

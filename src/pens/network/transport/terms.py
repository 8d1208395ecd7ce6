# SPDX-License-Identifier: Apache-2.0
"""Terms: what a member says of itself before models are exchanged, so that both sides can compare.

Terms consist of parts (the network's tensors, the classes, the task, …). A part has a digest, which decides whether two
parts are equal, and items in words, which tell people what differs. All text is bounded and escaped when terms are
made, here or from another member's bytes, so that it can go to logs and terminals as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from pens.network.transport.versions import OURS, Range
from pens.printable import printable

MOST_PARTS = 32
MOST_ITEMS = 256
_NAME, _ITEM, _ITEMS = 40, 160, 4096  # characters of a name, of an item, and of all items of a part


def plain(text: str, most: int) -> str:
    """A text that may come from another member, as it can be shown: control characters and those that change the
    direction of writing are escaped, and what is too long is cut."""
    shown = printable(text[: most + 1], most + 1)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing on which members may differ."""

    name: str
    digest: bytes
    """SHA-256 of all items, also of those for which there is no room."""
    items: tuple[str, ...]

    @staticmethod
    def of(name: str, items: Iterable[str]) -> Part:
        """A part of this member's own."""
        whole = tuple(items)
        digest = hashlib.sha256()
        for item in whole:
            digest.update(len(item.encode()).to_bytes(8) + item.encode())
        return Part(plain(name, _NAME), digest.digest(), shown_items(whole))

    @staticmethod
    def told(name: str, digest: bytes, items: Iterable[str]) -> Part:
        """A part that another member told."""
        return Part(plain(name, _NAME), digest, shown_items(items))


def shown_items(items: Iterable[str]) -> tuple[str, ...]:
    """The first of these items, as many as there is room for."""
    shown: list[str] = []
    room = _ITEMS
    for item in items:
        short = plain(item, _ITEM)
        room -= len(short)
        if room < 0 or len(shown) == MOST_ITEMS:
            break
        shown.append(short)
    return tuple(shown)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a member says of itself. It holds for that member alone."""

    versions: Range = OURS
    parts: tuple[Part, ...] = ()
    sends: str = "fp32"
    """The form of models in its messages."""
    reads: tuple[str, ...] = ("fp32", "fp16", "int8")
    """The forms of models that it understands."""
    trial: bool = False
    """The caller only compares: it exchanges nothing, and may run beside the peer of the same name."""
    relays: bool = False
    """It carries bytes between members that cannot be called."""
    software: str = ""
    """Its version of pens, for people."""

    def part(self, name: str) -> Part | None:
        """The part of this name; None: the member does not tell it."""
        return next((part for part in self.parts if part.name == name), None)


class Accord(Protocol):
    """What a node decides about members by their terms; a transport asks it. Names come from certificates."""

    @property
    def terms(self) -> Terms:
        """What this member says of itself."""
        ...

    def hear(self, member: str, terms: Terms | None) -> None:
        """Take a member's terms. None: it speaks version 1, which has no terms."""
        ...

    def refusal(self, member: str) -> str | None:
        """Why nothing at all can be exchanged with a member, in words; None: something can."""
        ...

    def fits(self, member: str) -> bool:
        """Whether models can be exchanged with a member, as far as its terms tell."""
        ...


class AnyTerms:
    """An accord with everybody: of transports whose user does not compare terms."""

    terms = Terms()

    def hear(self, member: str, terms: Terms | None) -> None:
        """Ignore the terms."""

    def refusal(self, member: str) -> str | None:
        """Refuse nobody."""
        return None

    def fits(self, member: str) -> bool:
        """Take everybody's models."""
        return True

# SPDX-License-Identifier: Apache-2.0
"""Agreement before training: compares this member's terms with those of others, and remembers who does not fit.

Some parts of the terms must be equal, because models could not be used otherwise, or would do harm: a network with the
same tensors but another order of classes takes a model and is spoilt by it. Others only should be equal; where they
differ, people are told, and models are exchanged all the same. A part that one side does not tell (it may have another
version of pens) is not compared.

A member's terms are what it says of itself, and concern that member alone: whoever lies in them keeps only itself out,
or sends models that the checks of each model (`misfits`, `transport.codec`) still have to take.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

from pens.network.transport.terms import Part, Terms
from pens.network.transport.versions import FIRST, Range, refusal

MUST_BE_EQUAL = ("tensors", "sent tensors", "inputs", "features", "outputs", "task", "notes")
"""Parts without which models cannot be used, or do harm. Those that terms have beside them should be equal."""
REMEDY = "`pens peer CONFIG.toml --check` on both sides compares all parts"
_MOST = 4096  # members that are remembered: more than a federation has
_SHOWN = 60  # characters of an item


@dataclass(frozen=True, slots=True)
class Compared:
    """How one part of two members' terms compares."""

    part: str
    must: bool
    """Whether it must be equal."""
    difference: str | None
    """In words; None: there is none."""

    @property
    def keeps_apart(self) -> bool:
        return self.must and self.difference is not None


def compare(mine: Terms, theirs: Terms) -> tuple[Compared, ...]:
    """All parts that both members tell, the protocol and the forms of models first."""
    told = [(part, other) for part in mine.parts if (other := theirs.part(part.name))]
    return (
        Compared("protocol", True, refusal(theirs.versions, mine.versions)),
        Compared("wire", True, _unread(mine, theirs)),
        *(Compared(mine.name, mine.name in MUST_BE_EQUAL, _difference(mine, theirs)) for mine, theirs in told),
    )


def why_apart(compared: tuple[Compared, ...]) -> str | None:
    """Why two members cannot use each other's models; None: they can."""
    found = [f"{c.part}: {c.difference}" for c in compared if c.keeps_apart]
    return "; ".join(found) or None


def differing(compared: tuple[Compared, ...]) -> str | None:
    """What differs, although models can be used; None: nothing."""
    found = [f"{c.part}: {c.difference}" for c in compared if c.difference and not c.must]
    return "; ".join(found) or None


def fingerprint(terms: Terms) -> str:
    """A short text that is the same at all members whose necessary parts are equal, for people to compare."""
    digest = hashlib.sha256()
    for part in sorted((part for part in terms.parts if part.name in MUST_BE_EQUAL), key=lambda part: part.name):
        digest.update(part.name.encode() + part.digest)
    return digest.hexdigest()[:16]


def _unread(mine: Terms, theirs: Terms) -> str | None:
    if mine.sends not in theirs.reads:
        return f"it does not understand {mine.sends}, which this member sends"
    if theirs.sends not in mine.reads:
        return f"it sends {theirs.sends}, which this member does not understand"
    return None


def _difference(mine: Part, theirs: Part) -> str | None:
    if mine.digest == theirs.digest:
        return None
    for ours, other in zip_longest(mine.items, theirs.items):
        if ours != other:
            return f"{_quoted(ours)} here, {_quoted(other)} there"
    return "the parts that are too long to show differ"


def _quoted(item: str | None) -> str:
    if item is None:
        return "nothing more"
    return repr(item if len(item) <= _SHOWN else f"{item[: _SHOWN - 1]}…")


@dataclass(frozen=True, slots=True)
class Heard:
    """What follows from the terms that a member told."""

    member: str
    why: str | None
    """Why the two cannot use each other's models; None: they can."""
    difference: str | None
    """What differs, although they can."""
    trial: bool
    """The member only compares, perhaps beside the peer of the same name: nothing changes for that peer."""


class Agreement:
    """This member's terms, and what follows from those of others."""

    def __init__(self, terms: Terms, told: Callable[[Heard], None]) -> None:
        """`told`: called whenever a member told its terms."""
        self.terms, self._told = terms, told
        self._versions: dict[str, Range] = {}
        self._apart: set[str] = set()

    def hear(self, member: str, terms: Terms | None) -> None:
        """Take a member's terms. None: it speaks version 1, which has no terms."""
        theirs = terms or Terms(FIRST)
        compared = compare(self.terms, theirs)
        heard = Heard(member, why_apart(compared), differing(compared), theirs.trial)
        if not heard.trial:
            self._remember(member, theirs.versions, heard.why is not None)
        self._told(heard)

    def _remember(self, member: str, versions: Range, apart: bool) -> None:
        self._versions.pop(member, None)
        self._versions[member] = versions
        (self._apart.add if apart else self._apart.discard)(member)
        if len(self._versions) > _MOST:
            oldest = next(iter(self._versions))
            del self._versions[oldest]
            self._apart.discard(oldest)

    def versions(self, member: str) -> Range:
        """The versions of the protocol that a member understands; version 1 where it has not said so."""
        return self._versions.get(member, FIRST)

    def refusal(self, member: str) -> str | None:
        """Why nothing at all can be exchanged with a member, in words; None: something can."""
        return refusal(self.versions(member), self.terms.versions)

    def fits(self, member: str) -> bool:
        """Whether models can be exchanged with a member, as far as its terms tell."""
        return member not in self._apart

# SPDX-License-Identifier: Apache-2.0
"""Versions of the protocol between members: what each one has, and which version two members speak with each other.

A member says which range of versions it understands (`Terms`), and two members speak the highest version that is in
both ranges. A version that adds to the protocol gets a new line in `VERSIONS`. What a member cannot do without is in
`NEEDED`: members whose newest version lacks it are refused, in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Feature(Enum):
    """Something that members can do with each other, in words for people."""

    MODELS = "models"
    TABLES = "membership tables"
    AGREEMENT = "agreement before models are exchanged"
    SIGNED = "signed membership records"
    LISTS = "revocation lists that members pass on"
    TUNNELS = "connections to members that cannot be called"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of the protocol."""

    number: int
    has: frozenset[Feature]


VERSIONS = (
    Version(1, frozenset({Feature.MODELS, Feature.TABLES})),
    Version(2, frozenset(Feature)),
)
NEEDED = frozenset({Feature.MODELS, Feature.TABLES, Feature.SIGNED})
"""Features without which this member talks to nobody."""


@dataclass(frozen=True, slots=True)
class Range:
    """The versions that a member understands: all from the oldest to the newest."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"version {self.newest}" if self.oldest == self.newest else f"versions {self.oldest} to {self.newest}"


FIRST = Range(1, 1)
"""Of members that say nothing about versions: version 1 has no call for it."""
OURS = Range(min(v.number for v in VERSIONS if v.has >= NEEDED), max(v.number for v in VERSIONS))


def spoken(theirs: Range, ours: Range = OURS) -> int | None:
    """The version in which two members talk to each other; None: they have none in common."""
    newest = min(ours.newest, theirs.newest)
    return newest if newest >= max(ours.oldest, theirs.oldest) else None


def features(version: int) -> frozenset[Feature]:
    """What members that speak this version can do with each other."""
    return next((v.has for v in VERSIONS if v.number == version), frozenset())


def refusal(theirs: Range, ours: Range = OURS) -> str | None:
    """Why two members cannot talk to each other, with the remedy; None: they can."""
    if spoken(theirs, ours) is not None:
        return None
    ranges = f"it understands {theirs} of the protocol, this member {ours}"
    if theirs.newest < ours.oldest:
        lacking = sorted(feature.value for feature in NEEDED - features(theirs.newest))
        missing = f", and version {theirs.newest} has no {', '.join(lacking)}" if lacking else ""
        return f"{ranges}{missing}: install a newer version of pens on its machine"
    return f"{ranges}: install a newer version of pens on this machine"

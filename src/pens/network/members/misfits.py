# SPDX-License-Identifier: Apache-2.0
"""Members that have another network than this peer, so that neither can use the other's models.

This peer learns it at the handshake, where the terms of the two differ (`agreement`). Members that tell no terms, or
false ones, are recognised by their models: a model of the member has other tensors than its own, or the member answers
so to one of its models. Either way both sides need the same remedy, so both record and log it. For the protocol such a
member is not there: the peer does not wait for its models, and sends it none. When one of the two has been corrected
and started again, it tells the other its terms, or sends it its model. Terms that fit, or the first model that fits, in
either direction, end the record of that kind.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

AGAIN_S = 3600.0  # between two log lines about the same thing
_MOST = 4096  # members and occasions that are remembered: more than a federation has

REMEDY = "all peers need the same network: compare [model], peer.model and data.num_classes"


class Occasions:
    """When something was last logged, so that it is not logged again within the hour."""

    def __init__(self) -> None:
        self._logged: dict[tuple[str, str], float] = {}

    def is_due(self, what: str, member: str, now: float) -> bool:
        """Whether to log it now; if so, it counts as logged. Where there are too many, the oldest are forgotten."""
        key = (what, member)
        if now - self._logged.get(key, -math.inf) < AGAIN_S:
            return False
        self._logged.pop(key, None)
        self._logged[key] = now
        if len(self._logged) > _MOST:
            del self._logged[next(iter(self._logged))]
        return True


class Misfits(Collection[str]):
    """The members that have another network, and how each was recognised."""

    def __init__(self) -> None:
        self._why: dict[str, str] = {}
        self._terms: dict[str, str] = {}

    def add(self, member: str, why: str) -> None:
        """Record that a member's model did not fit. `why`: how it was recognised."""
        _put(self._why, member, why)

    def hear(self, member: str, why: str | None) -> None:
        """Record that a member's terms differ from this peer's, and why. None: they agree."""
        self._terms.pop(member, None)
        if why is not None:
            _put(self._terms, member, why)

    def by_terms(self, member: str) -> str | None:
        """How a member's terms differ from this peer's; None: they do not, or it has told none."""
        return self._terms.get(member)

    def __iter__(self) -> Iterator[str]:
        return iter(self._why | self._terms)

    def __len__(self) -> int:
        return len(self._why | self._terms)

    def remove(self, member: str) -> None:
        """Forget that a member's model did not fit: another one did."""
        self._why.pop(member, None)

    def __contains__(self, member: object) -> bool:
        return member in self._why or member in self._terms

    def among(self, members: Iterable[str]) -> dict[str, str]:
        """Which of these members do not fit, and how each was recognised: by its terms, or else by a model."""
        why = self._why | self._terms
        return {name: why[name] for name in members if name in why}


def _put(notes: dict[str, str], member: str, why: str) -> None:
    """Note something of a member; where there are too many, forget the oldest."""
    notes.pop(member, None)
    notes[member] = why
    if len(notes) > _MOST:
        del notes[next(iter(notes))]

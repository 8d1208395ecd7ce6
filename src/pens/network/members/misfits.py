# SPDX-License-Identifier: Apache-2.0
"""Members that have another network than this peer, so that neither can use the other's models.

This peer learns it in two ways: a model of the member has other tensors than its own, or the member answers so to one
of its models. Either way both sides need the same remedy, so both record and log it. For the protocol such a member is
not there: the peer does not wait for its models, and sends it none. When one of the two networks has been corrected and
that peer started again, that peer sends its model to the other; the first model that fits, in either direction, ends
the record.
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

    def add(self, member: str, why: str) -> None:
        """Record that a member has another network. `why`: how it was recognised."""
        self._why.pop(member, None)
        self._why[member] = why
        if len(self._why) > _MOST:
            del self._why[next(iter(self._why))]

    def __iter__(self) -> Iterator[str]:
        return iter(self._why)

    def __len__(self) -> int:
        return len(self._why)

    def remove(self, member: str) -> None:
        """Forget a member: a model fitted."""
        self._why.pop(member, None)

    def __contains__(self, member: object) -> bool:
        return member in self._why

    def among(self, members: Iterable[str]) -> dict[str, str]:
        """Which of these members have another network, and how each was recognised."""
        return {name: self._why[name] for name in members if name in self._why}

# SPDX-License-Identifier: Apache-2.0
"""Members that have another network than this peer, so that neither can use the other's models.

It shows in two ways: a model of theirs has other tensors than ours, or they say so of one of ours. Either way both
sides need the same remedy, so both note it, and both tell their people. For the protocol such a member is not there:
nobody waits for its models, and it is sent none. Once its network, or ours, is put right and that peer started again,
that peer sends to the other; the first model that fits, in either direction, ends it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

AGAIN_S = 3600.0
_MOST = 4096  # members and occasions that are remembered: more than a federation has

REMEDY = "all peers need the same network: compare [model], peer.model and data.num_classes"


class Occasions:
    """When something was last told, so that it is not told again within the hour."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], float] = {}

    def is_due(self, what: str, member: str, now: float) -> bool:
        """Whether to tell it now; then it counts as told. The oldest are forgotten where there are too many."""
        key = (what, member)
        if now - self._told.get(key, -math.inf) < AGAIN_S:
            return False
        self._told.pop(key, None)
        self._told[key] = now
        if len(self._told) > _MOST:
            del self._told[next(iter(self._told))]
        return True


class Misfits(Collection[str]):
    """Who they are, and how it showed."""

    def __init__(self) -> None:
        self._why: dict[str, str] = {}

    def add(self, member: str, why: str) -> None:
        """A model showed that a member's network is another one."""
        self._why.pop(member, None)
        self._why[member] = why
        if len(self._why) > _MOST:
            del self._why[next(iter(self._why))]

    def __iter__(self) -> Iterator[str]:
        return iter(self._why)

    def __len__(self) -> int:
        return len(self._why)

    def remove(self, member: str) -> None:
        """A model fitted."""
        self._why.pop(member, None)

    def __contains__(self, member: object) -> bool:
        return member in self._why

    def among(self, members: Iterable[str]) -> dict[str, str]:
        """Those of these members, and how it showed."""
        return {name: self._why[name] for name in members if name in self._why}

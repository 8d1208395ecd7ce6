# SPDX-License-Identifier: Apache-2.0
"""Versions of the models that other members send: they count a member's updates, so they only ever advance.

A member sends the same version until its next update, and for ever once it has finished. It never sends an older one,
nor another model under the same version; unless it was started again, which shows in its incarnation, and lost its
state.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

LARGEST = 1_000_000
"""Versions beyond are absurd: an update each minute for two years."""
_MOST = 4096  # members that are remembered: more than a federation has


class _Newest(NamedTuple):
    incarnation: int
    version: int
    digest: str


class Versions:
    """The newest version of each member's model."""

    def __init__(self) -> None:
        self._newest: dict[str, _Newest] = {}

    def refusal(self, member: str, incarnation: int, version: int, payload: bytes) -> str | None:
        """Why a model is refused for its version; None if it is not, and then it counts as the member's newest.
        `incarnation`: the member's, as it is known here."""
        if not 1 <= version <= LARGEST:
            return f"version {version} is absurd: versions count updates, from 1 to {LARGEST:,}"
        known = self._newest.get(member)
        sent = _Newest(incarnation, version, blake2b(payload, digest_size=16).hexdigest())
        if known and incarnation <= known.incarnation:
            if version < known.version:
                return f"version {version} is old: it has sent {known.version} before"
            if version == known.version and sent.digest != known.digest:
                return f"version {version} is repeated with another model"
        self._newest.pop(member, None)
        self._newest[member] = sent
        if len(self._newest) > _MOST:
            del self._newest[next(iter(self._newest))]
        return None

    def state(self) -> list[list[Any]]:
        """As plain data."""
        return [[member, *newest] for member, newest in self._newest.items()]

    def restore(self, state: Sequence[Sequence[Any]]) -> None:
        """Become what `state` described."""
        self._newest = {member: _Newest(*newest) for member, *newest in state}

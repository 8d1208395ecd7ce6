# SPDX-License-Identifier: Apache-2.0
"""Whom a real peer can reach: what `pens.topology` is to a simulation's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from pens.messages import PeerId


class Reachable(Sequence[PeerId]):
    """Those who are there, in ascending order: a view that its owner keeps up to date."""

    def __init__(self) -> None:
        self.ids: tuple[PeerId, ...] = ()
        self._set: frozenset[PeerId] = frozenset()

    def become(self, ids: Sequence[PeerId]) -> None:
        """From now on, these."""
        self.ids = tuple(sorted(ids))
        self._set = frozenset(ids)

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> PeerId: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PeerId, ...]: ...
    def __getitem__(self, index: int | slice) -> PeerId | tuple[PeerId, ...]:
        return self.ids[index]

    def __contains__(self, peer: object) -> bool:
        return peer in self._set

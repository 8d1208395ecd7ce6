# SPDX-License-Identifier: Apache-2.0
"""Whom a real peer can reach: what `pens.topologies.views` is to a simulation's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from pens.protocol.messages import PeerId


class Reachable(Sequence[PeerId]):
    """Those who are there, in ascending order: a view that its owner keeps up to date."""

    def __init__(self, narrow: Callable[[Sequence[PeerId]], Sequence[PeerId]] | None = None) -> None:
        """`narrow`: those of the others, in ascending order, to whom the method lets a peer talk; None: to all."""
        self._narrow = narrow
        self.ids: tuple[PeerId, ...] = ()
        self._set: frozenset[PeerId] = frozenset()

    def become(self, ids: Sequence[PeerId]) -> None:
        """From now on, these, as far as the method lets a peer talk to them."""
        self.ids = tuple(sorted(ids))
        if self._narrow and self.ids:
            self.ids = tuple(self._narrow(self.ids))
        self._set = frozenset(self.ids)

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

# SPDX-License-Identifier: Apache-2.0
"""Which peers a real peer can reach: the counterpart of `pens.topologies.views` in a simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from pens.protocol.messages import PeerId


class Reachable(Sequence[PeerId]):
    """The peers that are there, in ascending order: a view that its owner keeps up to date."""

    def __init__(self, narrow: Callable[[Sequence[PeerId]], Sequence[PeerId]] | None = None) -> None:
        """`narrow`: of the other peers, in ascending order, those that the method lets this peer talk to; None: all."""
        self._narrow = narrow
        self.ids: tuple[PeerId, ...] = ()
        self._set: frozenset[PeerId] = frozenset()

    def become(self, ids: Sequence[PeerId]) -> None:
        """From now on, show these peers, as far as the method lets this peer talk to them."""
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

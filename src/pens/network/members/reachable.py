# SPDX-License-Identifier: Apache-2.0
"""Which peers a real peer can reach: the counterpart of `pens.topologies.views` in a simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from pens.protocol.messages import PeerId


class Reachable(Sequence[PeerId]):
    """The peers that are there, in ascending order: a view that its owner keeps up to date.

    A behaviour draws from those in view, which are a random sample where the federation is large. Others may be reached
    besides: neighbours that are not in view, and peers whose models came, to answer them. These are not drawn, but are
    contained.
    """

    def __init__(self, narrow: Callable[[Sequence[PeerId]], Sequence[PeerId]] | None = None) -> None:
        """`narrow`: of the other peers, in ascending order, those that the method lets this peer talk to; None: all."""
        self._narrow = narrow
        self.ids: tuple[PeerId, ...] = ()
        self._set: frozenset[PeerId] = frozenset()

    def become(self, ids: Sequence[PeerId], besides: Sequence[PeerId] = ()) -> None:
        """From now on, show these peers, as far as the method lets this peer talk to them. `besides`: peers that can be
        reached, but are not in view."""
        self.ids = self._allowed(ids)
        self._set = frozenset(self.ids).union(self._allowed(besides))

    def _allowed(self, ids: Sequence[PeerId]) -> tuple[PeerId, ...]:
        ordered = tuple(sorted(ids))
        return tuple(self._narrow(ordered)) if self._narrow and ordered else ordered

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

"""Who may talk to whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from pens.messages import PeerId


class EveryoneElse(Sequence[PeerId]):
    """All peers but one, without a list of them: a fully connected network costs nothing at 100,000 peers."""

    def __init__(self, num_peers: int, me: PeerId) -> None:
        self._num_peers, self._me = num_peers, me

    def __len__(self) -> int:
        return self._num_peers - 1

    @overload
    def __getitem__(self, index: int) -> PeerId: ...
    @overload
    def __getitem__(self, index: slice) -> list[PeerId]: ...
    def __getitem__(self, index: int | slice) -> PeerId | list[PeerId]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return PeerId(index + (index >= self._me))

    def __contains__(self, peer: object) -> bool:
        return isinstance(peer, int) and 0 <= peer < self._num_peers and peer != self._me

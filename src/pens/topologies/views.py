# SPDX-License-Identifier: Apache-2.0
"""Who may talk to whom."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import overload

from pens.protocol.messages import PeerId


class Others(Sequence[PeerId]):
    """All members of a group but one, as a view: a network of 100,000 peers that may all talk to each other holds one
    group, not 100,000 lists."""

    def __init__(self, members: Sequence[int], me: PeerId) -> None:
        """`members` in ascending order, `me` among them."""
        self._members, self._mine = members, bisect_left(members, me)

    def __len__(self) -> int:
        return len(self._members) - 1

    @overload
    def __getitem__(self, index: int) -> PeerId: ...
    @overload
    def __getitem__(self, index: slice) -> list[PeerId]: ...
    def __getitem__(self, index: int | slice) -> PeerId | list[PeerId]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        count = len(self._members) - 1
        place = index if index >= 0 else index + count
        if not 0 <= place < count:
            raise IndexError(index)
        return PeerId(self._members[place if place < self._mine else place + 1])

    def __contains__(self, peer: object) -> bool:
        if not isinstance(peer, int):
            return False
        place = bisect_left(self._members, peer)
        return place != self._mine and place < len(self._members) and self._members[place] == peer


class Followed(Sequence[PeerId]):
    """Some peers, and servers after them, as a view."""

    def __init__(self, peers: Sequence[PeerId], servers: Sequence[PeerId]) -> None:
        """Both in ascending order; the servers' numbers follow the peers'."""
        self._peers, self._servers = peers, servers

    def __len__(self) -> int:
        return len(self._peers) + len(self._servers)

    @overload
    def __getitem__(self, index: int) -> PeerId: ...
    @overload
    def __getitem__(self, index: slice) -> list[PeerId]: ...
    def __getitem__(self, index: int | slice) -> PeerId | list[PeerId]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = index if index >= 0 else index + len(self)
        if not 0 <= place < len(self):
            raise IndexError(index)
        count = len(self._peers)
        return self._peers[place] if place < count else self._servers[place - count]

    def __contains__(self, peer: object) -> bool:
        return peer in self._servers or peer in self._peers

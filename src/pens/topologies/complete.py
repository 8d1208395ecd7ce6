# SPDX-License-Identifier: Apache-2.0
"""`complete`: each peer can reach all others (paper)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from pens.protocol.messages import PeerId
from pens.settings.schema import SettingsTree
from pens.topologies.topology import Graph, Topology
from pens.topologies.views import Others


class Everybody(Sequence[Sequence[PeerId]]):
    """The neighbours of each peer, as views: 100,000 peers that can all talk to each other hold one range."""

    def __init__(self, num_peers: int) -> None:
        self._peers = range(num_peers)

    def __len__(self) -> int:
        return len(self._peers)

    @overload
    def __getitem__(self, index: int) -> Others: ...
    @overload
    def __getitem__(self, index: slice) -> list[Others]: ...
    def __getitem__(self, index: int | slice) -> Others | list[Others]:
        if isinstance(index, slice):
            return [Others(self._peers, PeerId(peer)) for peer in self._peers[index]]
        return Others(self._peers, PeerId(self._peers[index]))


class Complete(Topology):
    """Everybody can talk to everybody."""

    name = "complete"
    about = "each peer can reach all others (paper)"
    is_complete = True

    def neighbours(self, num_peers: int, settings: SettingsTree, seed: int) -> Graph:
        return Everybody(num_peers)

    def fewest_neighbours(self, num_peers: int, settings: SettingsTree, seeds: Iterable[int]) -> int:
        return num_peers - 1

# SPDX-License-Identifier: Apache-2.0
"""`ring`: peers stand in a circle, by number, and each can reach those next to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from pens.errors import SettingsError
from pens.settings.schema import SettingsTree
from pens.settings.section import Count, Section
from pens.topologies.topology import Graph, Topology, graph_of


class RingSettings(Section):
    """Topology ring: how far a peer can reach."""

    title: ClassVar[str] = "ring"
    ring_reach: Count = 1
    """How many peers on each side a peer can reach: with 1 each has two neighbours."""


class Ring(Topology):
    """Peer p can reach p ± 1, …, p ± ring_reach."""

    name = "ring"
    about = "peers stand in a circle in the order of their numbers, and each can reach those next to it"
    section = RingSettings

    def check(self, settings: SettingsTree, num_peers: int) -> None:
        reach = settings.section(RingSettings).ring_reach
        if 2 * reach >= num_peers:
            raise SettingsError(
                f"ring_reach = {reach} means {2 * reach} neighbours, but each peer has {num_peers - 1} others: "
                "lower it or add peers"
            )

    def neighbours(self, num_peers: int, settings: SettingsTree, seed: int) -> Graph:
        steps = range(1, 1 + settings.section(RingSettings).ring_reach)
        return graph_of(num_peers, ((peer, (peer + step) % num_peers) for peer in range(num_peers) for step in steps))

    def fewest_neighbours(self, num_peers: int, settings: SettingsTree, seeds: Iterable[int]) -> int:
        return 2 * settings.section(RingSettings).ring_reach

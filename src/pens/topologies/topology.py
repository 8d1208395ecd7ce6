# SPDX-License-Identifier: Apache-2.0
"""A topology says which peers can talk to which: a static undirected graph, built once per run from its seed.

Write your own as a subclass of `Topology` in a file, and name it in the settings: `topology = "mine.py:Mine"`. It is
found, checked, stored and resumed as those of this package are. docs/decisions/0031 says what a sparse graph means for
methods that select neighbours.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from pens.errors import SettingsError
from pens.hooks import calling, is_ours, refuse_result
from pens.parts import TOPOLOGIES
from pens.protocol.messages import PeerId
from pens.settings.schema import SettingsTree
from pens.settings.section import Section

Graph = Sequence[Sequence[PeerId]]
"""The neighbours of each peer, in ascending order."""


class Topology(ABC):
    """Which peers can talk to which, whatever the method."""

    name: ClassVar[str]
    """What `gossip.topology` calls it: small letters, digits, + and -."""
    about: ClassVar[str]
    """What it is, in one sentence."""
    section: ClassVar[type[Section] | None] = None
    """Its own section of the settings; `settings.section(…)` reads it."""
    keys: ClassVar[tuple[str, ...]] = ()
    """Settings of [scenario] that it reads."""
    is_complete: ClassVar[bool] = False
    """Whether each peer can reach all others, so that nobody need look at the graph."""

    def check(self, settings: SettingsTree, num_peers: int) -> None:  # noqa: B027
        """Refuse settings that cannot work for so many peers: raise `SettingsError`."""

    @abstractmethod
    def neighbours(self, num_peers: int, settings: SettingsTree, seed: int) -> Graph:
        """The neighbours of each peer, in ascending order, after `check` has passed. If one peer is a neighbour of
        another, the other is one of it. A seed always gives the same graph: a generator comes from
        `pens.rng.stream(seed, "topology", …)`."""

    def fewest_neighbours(self, num_peers: int, settings: SettingsTree, seeds: Iterable[int]) -> int:
        """How many neighbours the peer with the fewest has, in any of the graphs of these seeds."""
        graphs = (checked(self, num_peers, settings, seed) for seed in seeds)
        return min(len(neighbours) for graph in graphs for neighbours in graph)


def topology_of(settings: SettingsTree) -> Topology:
    """The topology that these settings name."""
    found: Topology = TOPOLOGIES.find(settings.gossip.topology)
    return found


def is_complete(settings: SettingsTree) -> bool:
    """Whether every peer can reach all others; False where the topology is not installed here."""
    try:
        return topology_of(settings).is_complete
    except SettingsError:
        return False


def build_graph(settings: SettingsTree, num_peers: int, seed: int) -> Graph:
    """Who can talk to whom by the topology of these settings, checked."""
    return checked(_agreeing(settings, num_peers), num_peers, settings, seed)


def fewest_neighbours(settings: SettingsTree, num_peers: int, seeds: Iterable[int]) -> int:
    """How many others the peer with the fewest neighbours can reach, by the topology of these settings, checked."""
    topology, seeds = _agreeing(settings, num_peers), tuple(seeds)
    _check_repeats(topology, num_peers, settings, seeds)
    with calling(_who(topology), topology, "fewest_neighbours"):
        return topology.fewest_neighbours(num_peers, settings, seeds)


def _check_repeats(topology: Topology, num_peers: int, settings: SettingsTree, seeds: tuple[int, ...]) -> None:
    """Refuse a topology of others that gives another graph when it is asked again: a run that is stopped would go on in
    it, and reports would show it."""
    if is_ours(type(topology)) or topology.is_complete:
        return
    for seed in seeds[:1]:
        if checked(topology, num_peers, settings, seed) != checked(topology, num_peers, settings, seed):
            raise SettingsError(
                f"{_who(topology)} gives two different graphs for seed {seed}: draw all random numbers from "
                'pens.rng.stream(seed, "topology", self.name), and take nothing from a clock'
            )


def lonely_peer(settings: SettingsTree, num_peers: int, seeds: Iterable[int]) -> int | None:
    """A peer that the topology of these settings gives no neighbour, with one of these seeds."""
    graphs = (build_graph(settings, num_peers, seed) for seed in seeds)
    return next((peer for graph in graphs for peer, neighbours in enumerate(graph) if not neighbours), None)


def _agreeing(settings: SettingsTree, num_peers: int) -> Topology:
    """The topology of these settings, which it has checked."""
    topology = topology_of(settings)
    with calling(_who(topology), topology, "check"):
        topology.check(settings, num_peers)
    return topology


def _who(topology: Topology) -> str:
    return f"topology {topology.name!r}"


def checked(topology: Topology, num_peers: int, settings: SettingsTree, seed: int) -> Graph:
    """A topology's graph; an error that names the topology where it is none."""
    with calling(_who(topology), topology, "neighbours"):
        graph = topology.neighbours(num_peers, settings, seed)
    if topology.is_complete:
        return graph
    found = _plain(topology, graph)
    if len(found) != num_peers:
        raise SettingsError(
            f"{_who(topology)} has {len(found)} peers, but there are {num_peers}: return one list for each peer"
        )
    sets, everybody = [set(neighbours) for neighbours in found], set(range(num_peers))
    for me, neighbours in enumerate(found):
        if list(neighbours) != sorted(sets[me]) or me in sets[me] or not sets[me] <= everybody:
            raise SettingsError(
                f"{_who(topology)} gives peer {me} the neighbours {list(neighbours)[:10]}: give other peers, "
                f"from 0 to {num_peers - 1}, in ascending order, each once"
            )
    for me, other in ((me, other) for me, neighbours in enumerate(found) for other in neighbours):
        if me not in sets[other]:
            raise SettingsError(
                f"{_who(topology)}: peer {other} is a neighbour of peer {me}, but not the other way round: give both"
            )
    return found


def _plain(topology: Topology, graph: Any) -> Graph:
    """The graph as Python's own numbers, whatever it is made of."""
    remedy = "return one list of peers' numbers for each peer, as pens.graph_of does"
    if isinstance(graph, dict | set | str) or not hasattr(graph, "__len__"):
        refuse_result(_who(topology), "neighbours", graph, remedy)
    if any(isinstance(neighbours, set | frozenset) for neighbours in graph):
        refuse_result(
            _who(topology), "neighbours", graph, f"{remedy}; a set has no order: sorted(…) makes a list of it"
        )
    try:
        return [tuple(PeerId(operator.index(other)) for other in neighbours) for neighbours in graph]
    except TypeError:
        refuse_result(_who(topology), "neighbours", graph, remedy)


def graph_of(num_peers: int, edges: Iterable[tuple[int, int]]) -> Graph:
    """The neighbours of each peer by pairs of peers that can talk to each other; a pair may be given twice."""
    found: list[set[int]] = [set() for _ in range(num_peers)]
    for edge in edges:
        try:
            one, other = map(operator.index, edge)
        except (TypeError, ValueError):
            raise ValueError(f"{edge!r} is no edge: give pairs of peers' numbers, such as (0, 1)") from None
        if not (0 <= one < num_peers and 0 <= other < num_peers) or one == other:
            raise ValueError(
                f"({one}, {other}) is no edge: give pairs of two different peers, which are numbered 0 to "
                f"{num_peers - 1}"
            )
        found[one].add(other)
        found[other].add(one)
    return [tuple(map(PeerId, sorted(neighbours))) for neighbours in found]


def check_real(settings: SettingsTree) -> None:
    """Refuse a topology that real peers cannot follow: they reach whoever is a member of their network."""
    if not topology_of(settings).is_complete:
        raise SettingsError(
            f"topology = {settings.gossip.topology!r}, but real peers reach all members of their network: "
            "set topology = 'complete'"
        )

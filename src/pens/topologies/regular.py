# SPDX-License-Identifier: Apache-2.0
"""`regular`: a random connected graph in which all peers have equally many neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import ClassVar

from pens import rng
from pens.errors import SettingsError
from pens.settings.schema import SettingsTree
from pens.settings.section import Count, Section
from pens.topologies.topology import Graph, Topology, graph_of

_TRIES = 100  # to find a connected graph: with three neighbours or more nearly all are
_SWAPS = 4  # tried for each edge


class RegularSettings(Section):
    """Topology regular: how many neighbours each peer has."""

    title: ClassVar[str] = "regular"
    degree: Count = 4
    """How many neighbours each peer has."""


class Regular(Topology):
    """A circle in which each peer reaches its nearest, of which random pairs of edges then exchange their ends."""

    name = "regular"
    about = "a random connected graph, another one for each seed, in which all peers have equally many neighbours"
    section = RegularSettings

    def check(self, settings: SettingsTree, num_peers: int) -> None:
        degree = settings.section(RegularSettings).degree
        if degree >= num_peers:
            raise SettingsError(f"degree = {degree}, but each peer has {num_peers - 1} others: lower it or add peers")
        if degree * num_peers % 2:
            raise SettingsError(
                f"degree = {degree} with {num_peers} peers: an edge has two ends, so their product has to be even: "
                "change one of both by 1"
            )
        if degree == 1 and num_peers > 2:
            raise SettingsError(f"degree = 1 with {num_peers} peers leaves pairs apart: set degree to at least 2")

    def neighbours(self, num_peers: int, settings: SettingsTree, seed: int) -> Graph:
        degree, random = settings.section(RegularSettings).degree, rng.stream(seed, "topology", self.name)
        for _ in range(_TRIES):
            edges = _circle(random.sample(range(num_peers), num_peers), degree)
            if degree > 2:  # a connected graph of degree 2 is a circle
                _exchange_ends(edges, random)
            graph = graph_of(num_peers, edges)
            if is_connected(graph):
                return graph
        raise SettingsError(f"degree = {degree}: {_TRIES} random graphs were not connected, raise it")

    def fewest_neighbours(self, num_peers: int, settings: SettingsTree, seeds: Iterable[int]) -> int:
        return settings.section(RegularSettings).degree


def _circle(order: Sequence[int], degree: int) -> list[tuple[int, int]]:
    """Each peer with its nearest in this order; where the degree is odd, also with the one opposite."""
    count = len(order)
    edges = [(order[i], order[(i + step) % count]) for step in range(1, degree // 2 + 1) for i in range(count)]
    opposite = [(order[i], order[i + count // 2]) for i in range(count // 2)] if degree % 2 else []
    return edges + opposite


def _exchange_ends(edges: list[tuple[int, int]], random: Random) -> None:
    """a – b and c – d become a – d and c – b, unless one of these is there already, or is none."""
    there = {frozenset(edge) for edge in edges}
    for _ in range(_SWAPS * len(edges)):
        first, second = random.randrange(len(edges)), random.randrange(len(edges))
        (a, b), (c, d) = edges[first], edges[second] if random.random() < 0.5 else edges[second][::-1]
        if len({a, b, c, d}) == 4 and not there & (new := {frozenset((a, d)), frozenset((c, b))}):
            there -= {frozenset((a, b)), frozenset((c, d))}
            there |= new
            edges[first], edges[second] = (a, d), (c, b)


def is_connected(graph: Graph) -> bool:
    """Whether everybody can be reached from peer 0, over others."""
    seen, waiting = {0}, [0]
    while waiting:
        new = set(graph[waiting.pop()]) - seen
        seen |= new
        waiting += new
    return len(seen) == len(graph)

# SPDX-License-Identifier: Apache-2.0
"""`edges`: a graph that a file lists, edge by edge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from pydantic import field_validator

from pens.errors import SettingsError
from pens.settings.schema import SettingsTree
from pens.settings.section import Section
from pens.topologies.topology import Graph, Topology, graph_of


class EdgesSettings(Section):
    """Topology edges: where the graph is."""

    title: ClassVar[str] = "edges"
    edges_file: str = ""
    """A file of pairs of peers, numbered from 0, that can talk to each other: JSON, [[0, 1], [1, 2]], or CSV, one pair
    in each line without a header."""

    @field_validator("edges_file")
    @classmethod
    def _from_anywhere(cls, file: str) -> str:
        """A path that means the same in every working directory."""
        return str(Path(file).resolve()) if file else file


class Edges(Topology):
    """Each pair of the file can talk to each other, in both directions."""

    name = "edges"
    about = "a graph from a file that lists its edges"
    section = EdgesSettings

    def check(self, settings: SettingsTree, num_peers: int) -> None:
        file = settings.section(EdgesSettings).edges_file
        edges = read_edges(file)
        for one, other in edges:
            if unknown := [peer for peer in (one, other) if not 0 <= peer < num_peers]:
                raise SettingsError(f"{file}: there is no peer {unknown[0]}, peers are numbered 0 to {num_peers - 1}")
            if one == other:
                raise SettingsError(f"{file}: an edge leads from peer {one} to itself: remove it")
        if alone := sorted(set(range(num_peers)) - {peer for edge in edges for peer in edge}):
            raise SettingsError(f"{file}: peer {alone[0]} has no edge, so it could talk to nobody: give each peer one")

    def neighbours(self, num_peers: int, settings: SettingsTree, seed: int) -> Graph:
        return graph_of(num_peers, read_edges(settings.section(EdgesSettings).edges_file))


def read_edges(file: str) -> list[tuple[int, int]]:
    """The pairs of a JSON or CSV file."""
    if not file:
        raise SettingsError("edges_file is not set, but topology = 'edges' needs a file of edges: set it")
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
        pairs = json.loads(text) if file.endswith(".json") else _rows(text)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{file}: cannot be read as a list of edges: {error}") from None
    return [_edge(file, pair) for pair in (pairs if isinstance(pairs, list) else [pairs])]


def _rows(text: str) -> list[list[int]]:
    return [[int(number) for number in line.split(",")] for line in text.splitlines() if line.strip()]


def _edge(file: str, pair: Any) -> tuple[int, int]:
    if not isinstance(pair, list) or len(pair) != 2 or any(type(peer) is not int for peer in pair):
        raise SettingsError(f"{file}: {pair!r} is no edge: give pairs of whole numbers, such as [0, 1]")
    return pair[0], pair[1]

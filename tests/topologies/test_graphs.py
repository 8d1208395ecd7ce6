# SPDX-License-Identifier: Apache-2.0
"""Topologies: graphs by hand, what holds for all of them, and what is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens import rng
from pens.errors import SettingsError
from pens.parts import TOPOLOGIES
from pens.protocol.messages import PeerId
from pens.settings.catalogue import find
from pens.settings.reading import flat_keys
from pens.settings.schema import SettingsTree
from pens.settings.tree import Settings
from pens.topologies.complete import Everybody
from pens.topologies.edges import EdgesSettings
from pens.topologies.regular import _exchange_ends, is_connected
from pens.topologies.topology import Graph, Topology, build_graph, checked, fewest_neighbours, graph_of, topology_of
from pens.topologies.views import Others


def graph(num_peers: int, seed: int = 0, **values: Any) -> list[list[int]]:
    built = build_graph(Settings().replace(values), num_peers, seed)
    return [[int(peer) for peer in neighbours] for neighbours in built]


def test_in_a_ring_each_peer_reaches_those_next_to_it() -> None:
    assert graph(4, topology="ring") == [[1, 3], [0, 2], [1, 3], [0, 2]]
    assert graph(6, topology="ring", ring_reach=2)[:2] == [[1, 2, 4, 5], [0, 2, 3, 5]]
    assert graph(3, topology="ring") == [[1, 2], [0, 2], [0, 1]]


@pytest.mark.parametrize(("name", "text"), [("e.json", "[[0, 1], [2, 1], [1, 0]]"), ("e.csv", "0,1\n\n2, 1\n1,0\n")])
def test_a_file_lists_edges_which_go_both_ways_and_count_once(tmp_path: Path, name: str, text: str) -> None:
    """A path of three peers."""
    (tmp_path / name).write_text(text)
    values: dict[str, Any] = {"topology": "edges", "edges_file": str(tmp_path / name)}
    assert graph(3, **values) == [[1], [0, 2], [1]]
    assert fewest_neighbours(Settings().replace(values), 3, [0]) == 1


def test_everybody_is_a_view() -> None:
    """100,000 peers hold one range."""
    everybody = build_graph(Settings(), 100_000, 0)
    assert isinstance(everybody, Everybody)
    assert (len(everybody), len(everybody[7]), isinstance(everybody[7], Others)) == (100_000, 99_999, True)
    assert [list(others) for others in Everybody(3)] == [[1, 2], [0, 2], [0, 1]]
    assert list(Everybody(3)[-1]) == [0, 1]
    assert [list(others) for others in Everybody(3)[1:]] == [[0, 2], [0, 1]]
    assert fewest_neighbours(Settings(), 100_000, [0]) == 99_999


@given(st.integers(2, 24), st.integers(1, 23), st.integers(0, 99))
def test_random_graphs_are_regular_connected_and_come_again(num_peers: int, degree: int, seed: int) -> None:
    values: dict[str, Any] = {"topology": "regular", "degree": degree}
    if degree >= num_peers or degree * num_peers % 2 or (degree == 1 and num_peers > 2):
        with pytest.raises(SettingsError, match=f"degree = {degree}"):
            graph(num_peers, seed, **values)
        return
    found = graph(num_peers, seed, **values)
    assert [len(neighbours) for neighbours in found] == [degree] * num_peers
    assert found == graph(num_peers, seed, **values)
    assert is_connected([tuple(map(PeerId, neighbours)) for neighbours in found])
    assert fewest_neighbours(Settings().replace(values), num_peers, [seed]) == degree


@given(st.integers(3, 30), st.integers(1, 9))
def test_rings_are_regular_and_connected(num_peers: int, reach: int) -> None:
    values: dict[str, Any] = {"topology": "ring", "ring_reach": reach}
    if 2 * reach >= num_peers:
        with pytest.raises(SettingsError, match=f"ring_reach = {reach} means {2 * reach} neighbours"):
            graph(num_peers, **values)
        return
    found = graph(num_peers, **values)
    assert {len(neighbours) for neighbours in found} == {2 * reach}
    assert is_connected([tuple(map(PeerId, neighbours)) for neighbours in found])
    assert fewest_neighbours(Settings().replace(values), num_peers, [0]) == 2 * reach


@pytest.mark.parametrize(
    ("values", "num_peers", "why"),
    [
        ({"topology": "ring", "ring_reach": 2}, 4, "ring_reach = 2 means 4 neighbours, but each peer has 3 others"),
        ({"topology": "regular", "degree": 3}, 5, "degree = 3 with 5 peers: an edge has two ends"),
        ({"topology": "regular", "degree": 1}, 4, "degree = 1 with 4 peers leaves pairs apart"),
        ({"topology": "regular", "degree": 4}, 4, "degree = 4, but each peer has 3 others"),
    ],
)
def test_degrees_that_cannot_be_are_refused(values: dict[str, Any], num_peers: int, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        fewest_neighbours(Settings().replace(values), num_peers, [0])


def test_random_graphs_differ_by_seed_and_are_more_than_a_circle() -> None:
    """Of 40 peers with 4 neighbours, in a circle each would share neighbours with those next to it: 40 triangles."""
    found = [graph(40, seed, topology="regular") for seed in range(5)]
    assert len({str(one) for one in found}) == 5
    for one in found:
        triangles = sum(c in one[a] for a in range(40) for b in one[a] for c in one[b] if a < b < c)
        assert triangles < 20


def test_two_neighbours_each_are_a_circle_in_random_order() -> None:
    """A connected graph of degree 2 is a circle, so no ends are exchanged."""
    order = rng.stream(3, "topology", "regular").sample(range(6), 6)
    found = graph(6, 3, topology="regular", degree=2)
    assert found == [sorted([order[order.index(p) - 1], order[(order.index(p) + 1) % 6]]) for p in range(6)]


def test_three_neighbours_each_are_more_than_a_circle_and_its_diameters() -> None:
    order = rng.stream(0, "topology", "regular").sample(range(20), 20)
    opposite = {order[i]: order[(i + 10) % 20] for i in range(20)}
    assert any(opposite[p] not in graph(20, 0, topology="regular", degree=3)[p] for p in range(20))


class FirstTwo(Random):
    """Always draws the first edge and then the second, and leaves their direction."""

    def __init__(self) -> None:
        super().__init__(0)
        self.drawn = 0

    def randrange(self, *_: Any) -> int:
        self.drawn += 1
        return (self.drawn - 1) % 2

    def random(self) -> float:
        return 0.0


def test_edges_that_exchanged_their_ends_are_free_again() -> None:
    """0 – 1 and 2 – 3 become 2 – 1 and 0 – 3 or the other way round, and with the next exchange what they were."""
    edges, random = [(0, 1), (2, 3)], FirstTwo()
    before = list(edges)
    _exchange_ends(edges, random)
    assert random.drawn % 4 == 0, "an even number of exchanges"
    assert {frozenset(edge) for edge in edges} == {frozenset(edge) for edge in before}


def test_a_file_of_edges_may_come_from_a_spreadsheet(tmp_path: Path) -> None:
    """Which begins with a byte order mark."""
    (tmp_path / "e.csv").write_text("0,1\n1,2\n", encoding="utf-8-sig")
    assert graph(3, topology="edges", edges_file=str(tmp_path / "e.csv")) == [[1], [0, 2], [1]]


def test_two_parts_are_not_connected() -> None:
    assert not is_connected([(PeerId(1),), (PeerId(0),), (PeerId(3),), (PeerId(2),)])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[0, 1], [1, 3]]", "there is no peer 3, peers are numbered 0 to 2"),
        ("[[0, 1], [1, -1]]", "there is no peer -1"),
        ("[[0, 1], [2, 2]]", "an edge leads from peer 2 to itself"),
        ("[[0, 1]]", "peer 2 has no edge"),
        ("[[0, 1, 2]]", r"\[0, 1, 2\] is no edge"),
        ("[[0, true]]", "is no edge"),
        ("[0, 1]", "0 is no edge"),
        ("{}", r"\{\} is no edge"),
        ("[[0, 1]", "cannot be read as a list of edges"),
    ],
)
def test_files_that_are_no_graph_are_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "e.json"
    file.write_text(text)
    with pytest.raises(SettingsError, match=why):
        graph(3, topology="edges", edges_file=str(file))


def test_a_file_that_is_not_there_or_not_named_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="edges_file is not set"):
        graph(3, topology="edges")
    with pytest.raises(SettingsError, match="gone: cannot be read"):
        graph(3, topology="edges", edges_file=str(tmp_path / "gone"))


def test_a_file_is_named_in_a_way_that_means_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Settings().replace({"edges_file": "e.csv"}).section(EdgesSettings).edges_file == str(tmp_path / "e.csv")


class Own(Topology):
    """Whose function a test writes."""

    name = "own"
    about = "what a test says"

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def neighbours(self, num_peers: int, settings: SettingsTree, seed: int) -> Graph:
        graph: Graph = self.make(num_peers)
        return graph


@pytest.mark.parametrize(
    "make",
    [
        lambda n: graph_of(n, zip(np.arange(n), (np.arange(n) + 1) % n, strict=True)),
        lambda n: np.array([sorted(((i + 1) % n, (i - 1) % n)) for i in range(n)]),
        lambda n: [[np.int64(other) for other in sorted(((i + 1) % n, (i - 1) % n))] for i in range(n)],
    ],
)
def test_a_graph_of_another_librarys_numbers_becomes_plain(make: Callable[[int], Any]) -> None:
    """Checkpoints are JSON, which knows no numbers of numpy."""
    found = checked(Own(make), 4, Settings(), 0)
    assert json.dumps(found) == "[[1, 3], [0, 2], [1, 3], [0, 2]]"


def test_edges_of_another_librarys_numbers_become_plain() -> None:
    assert json.dumps(graph_of(2, np.array([[0, 1]]))) == "[[1], [0]]"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda n: graph_of(n, [(0, n)]),
            r"its neighbours failed: .*\(0, 4\) is no edge: .* 0 to 3 \(/.*line",
        ),
        (lambda n: graph_of(n, [(0, -1)]), r"\(0, -1\) is no edge"),
        (lambda n: graph_of(n, [(2, 2)]), r"\(2, 2\) is no edge: give pairs of two different peers"),
        (lambda n: graph_of(n, list[Any]([(0, 1, 2)])), r"\(0, 1, 2\) is no edge"),
        (lambda n: graph_of(n, list[Any]([0, 1])), "0 is no edge"),
        (lambda n: 1 // 0, r"its neighbours failed: ZeroDivisionError: .*test_graphs\.py, line"),
        (lambda n: None, "its neighbours returned None: return one list of peers' numbers for each peer"),
        (lambda n: {0: [1], 1: [0]}, "a dict: return one list"),
        (lambda n: [["1"], ["0"]], "a list: return one list"),
        (lambda n: [{1, 2, 3}, {0}, {0}, {0}], r"a list: return one list .*; a set has no order: sorted\(…\) makes"),
        (lambda n: [1, 0, 3, 2], "a list: return one list"),
    ],
)
def test_what_is_no_graph_is_refused_in_words(make: Callable[[int], Any], why: str) -> None:
    with pytest.raises(SettingsError, match=f"^topology 'own'.*{why}"):
        checked(Own(make), 4, Settings(), 0)


def test_a_topology_that_fails_in_its_checks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("degree")

    monkeypatch.setattr("pens.topologies.topology.topology_of", lambda _: Own(lambda n: [(1,), (0,)]))
    for name in ("check", "fewest_neighbours"):
        with monkeypatch.context() as patch:
            patch.setattr(Own, name, fail)
            with pytest.raises(SettingsError, match=f"topology 'own': its {name} failed: KeyError"):
                fewest_neighbours(Settings(), 2, [0])


class Told(Topology):
    name = "told"
    about = "what a test says"

    def __init__(self, *neighbours: Sequence[int]) -> None:
        self.told = neighbours

    def neighbours(self, num_peers: int, settings: SettingsTree, seed: int) -> Graph:
        return [tuple(map(PeerId, of)) for of in self.told]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (((1,), (0,)), "has 2 peers, but there are 3"),
        (((2, 1), (0,), (0,)), r"gives peer 0 the neighbours \[2, 1\]"),
        (((1, 1), (0,), (0,)), "gives peer 0"),
        (((0, 1), (0,), (1,)), "gives peer 0"),
        (((1,), (0, 3), (1,)), "gives peer 1"),
        (((1,), (0, 2), ()), "peer 2 is a neighbour of peer 1, but not the other way round"),
    ],
)
def test_an_own_graph_is_checked(told: Sequence[Sequence[int]], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        checked(Told(*told), 3, Settings(), 0)


def test_the_fewest_neighbours_are_those_of_any_seed() -> None:
    class Growing(Told):
        def neighbours(self, num_peers: int, settings: SettingsTree, seed: int) -> Graph:
            return build_graph(Settings().replace({"topology": "ring", "ring_reach": seed}), num_peers, 0)

    assert Growing().fewest_neighbours(9, Settings(), [3, 2, 4]) == 4


OWN = """
import pens
from pens import rng

class Star(pens.Topology):
    name = "star"
    about = "all can reach peer 0"

    def neighbours(self, num_peers, settings, seed):
        return [tuple(range(1, num_peers))] + [(0,)] * (num_peers - 1)
"""


def test_an_own_topology_is_found_beside_the_file_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TOPOLOGIES, "_references", {})
    monkeypatch.setattr(TOPOLOGIES, "_found", {})
    (tmp_path / "star.py").write_text(OWN)
    (tmp_path / "own.toml").write_text('[gossip]\ntopology = "star.py:Star"\n')
    settings = Settings().replace(flat_keys(tmp_path / "own.toml"))
    assert settings.gossip.topology == f"{tmp_path}/star.py:Star"
    assert topology_of(settings).name == "star"
    assert list(build_graph(settings, 4, 0)) == [(1, 2, 3), (0,), (0,), (0,)]
    assert Settings().replace({"topology": f"{tmp_path}/star.py:Star"}) == settings


def test_topologies_explain_themselves() -> None:
    assert TOPOLOGIES.names() == ("complete", "ring", "regular", "edges")
    (entry,) = find("gossip.topology")
    for name in TOPOLOGIES.names():
        assert f"{name}: {TOPOLOGIES.find(name).about}." in entry.about
    assert [entry.key for entry in find("regular")] == ["degree"]
    assert "ring" not in Settings().model_dump()
    assert Settings().replace({"topology": "ring"}).model_dump()["ring"] == {"ring_reach": 1}
    with pytest.raises(SettingsError, match="unknown topology 'rin', did you mean 'ring'"):
        Settings().replace({"topology": "rin"})


def test_an_own_topology_that_does_not_repeat_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = itertools.count(1)
    edges = {1: [(0, 1)], 2: [(1, 2)]}
    other = Own(lambda n: graph_of(n, edges.get(next(asked), [(0, 2)])))
    monkeypatch.setattr("pens.topologies.topology.topology_of", lambda _: other)
    with pytest.raises(SettingsError, match="topology 'own' gives two different graphs for seed 4: draw all random"):
        fewest_neighbours(Settings(), 3, [4, 5])
    assert fewest_neighbours(Settings(), 3, [4, 5]) == 0  # the same each time from now on

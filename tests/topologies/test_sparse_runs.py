# SPDX-License-Identifier: Apache-2.0
"""Runs on sparse graphs: whom peers reach, what is expected, what recall counts, what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pens
from pens.errors import SettingsError
from pens.experiment.wiring import reached
from pens.measuring.metrics import neighbour_agreement
from pens.measuring.results import Comparisons
from pens.methods.method import Participants
from pens.methods.names import check_methods, find_method, participants
from pens.network.federation.loopback import fit_settings
from pens.parts import TOPOLOGIES
from pens.protocol.messages import PeerId, Request, Send
from pens.protocol.policies import SelectionRule, Tally, choose_neighbours
from pens.report.page import write_report
from pens.report.selection_curves import agreement_by_round, selection_curve
from pens.report.study import read_studies
from pens.settings.schema import SettingsTree
from pens.settings.tree import Settings
from pens.topologies.topology import Graph, Topology, build_graph, graph_of
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.fakes import fake_federation, fake_simulation
from tests.simulations import Log, run


def test_a_peer_reaches_whom_its_method_and_the_topology_allow() -> None:
    """A ring of six peers in clusters 0 0 0 1 1 1. Peer 2's neighbours are 1, of its cluster, and 3, of the other."""
    federation, graph = fake_federation(6), build_graph(Settings().replace({"topology": "ring"}), 6, 0)

    def reach(method: str) -> list[list[int]]:
        of = reached(find_method(method), federation, graph)
        return [[int(peer) for peer in of(PeerId(me))] for me in range(6)]

    assert reach("random") == [[1, 5], [0, 2], [1, 3], [2, 4], [3, 5], [0, 4]]
    assert reach("oracle") == [[1], [0, 2], [1], [4], [3, 5], [4]]
    assert reach("local") == [[]] * 6


@pytest.mark.parametrize("method", ["random", "pens", "oracle", "dac"])
@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_nobody_talks_to_a_peer_that_is_not_its_neighbour(method: str, schedule: str) -> None:
    """In step 1, in step 2, and while it waits for others; nine peers that reach two on each side."""
    log = Log()
    values = {"topology": "ring", "ring_reach": 2, "n_sampled": 2, "m": 1, "peers": 9, "schedule": schedule}
    simulator, _ = fake_simulation(Settings().replace({**TINY, **values}), method)
    simulator._trace = log
    run(simulator)
    talked = {
        (peer, other)
        for _, peer, _, actions in log.entries
        for action in actions
        for other in (
            action.sources if isinstance(action, Request) else [action.to] if isinstance(action, Send) else []
        )
    }
    assert talked
    assert {(other - peer) % 9 for peer, other in talked} <= {1, 2, 7, 8}


def test_more_than_expected_depends_on_how_many_a_peer_can_reach() -> None:
    """m = 1 and 12 samplings: with 3 others, each is expected to be selected 12 / 3 = 4 times, with 6 others 2 times.
    Three selections are more than expected in the second case only (docs/decisions/0031)."""
    tally = Tally(Counter({PeerId(4): 3, PeerId(5): 9}), Counter({PeerId(4): 12, PeerId(5): 12}), 12, 2)
    few, many = (SelectionRule(m=1, n_sampled=2, num_others=others, expected="uniform") for others in (3, 6))
    assert choose_neighbours(tally, few).neighbours == (5,)
    assert choose_neighbours(tally, many).neighbours == (4, 5)


def star(tmp_path: Path) -> Settings:
    """Peers 0 to 5; peer 0 can reach all, the others peer 0 and those next to them, in a circle of 1 to 5."""
    edges = [[0, p] for p in range(1, 6)] + [[p, p % 5 + 1] for p in range(1, 6)]
    (tmp_path / "star.json").write_text(str(edges))
    return Settings().replace(
        {**TINY, "topology": "edges", "edges_file": str(tmp_path / "star.json"), "n_sampled": 2, "m": 1}
    )


def test_each_peer_has_the_rule_of_its_own_reach(tmp_path: Path) -> None:
    """In a star with a rim, its centre can reach 5 others, all others 3."""
    simulator, _ = fake_simulation(star(tmp_path), "pens")
    rules = [peer.plan.search.rule for peer in simulator.peers if peer.plan.search]
    assert [rule.num_others for rule in rules] == [5, 3, 3, 3, 3, 3]
    assert len({id(peer.plan) for peer in simulator.peers}) == 2
    dense, _ = fake_simulation(Settings().replace(TINY), "pens")
    assert {peer.plan.search.rule.num_others for peer in dense.peers if peer.plan.search} == {5}


def test_recall_counts_only_those_that_a_peer_can_reach() -> None:
    """A path 0 – 1 – 2 – 3 in clusters a a a b. Peer 0 selects 1, the only one of its cluster that it can reach: 1/1.
    Peer 1 selects 2, but not 0: 1/2. Peer 2 selects 3, and not 1: 0/1. Peer 3 can reach none of its cluster. Mean 1/2;
    without the graph: 1/2, 1/2 and 0/2, mean 1/3. Precision is 1, 1 and 0 in both."""
    graph = graph_of(4, [(0, 1), (1, 2), (2, 3)])
    selections = {PeerId(p): (PeerId(n),) for p, n in ((0, 1), (1, 2), (2, 3))} | {PeerId(3): ()}
    found = neighbour_agreement(selections, (0, 0, 0, 1), graph)
    assert found
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == 0.5
    everywhere = neighbour_agreement(selections, (0, 0, 0, 1))
    assert everywhere
    assert everywhere.recall == pytest.approx(1 / 3)


def test_a_reports_neighbours_by_round_are_those_of_the_rule_and_of_recall() -> None:
    """The path above. Of 6 samplings of 2, peer 1 (2 others, so 3 expected) selected 0 three and 2 four times: only 2
    is a neighbour, recall 1/2. Were there 3 others for it, 2 would be expected, and both would be neighbours. The only
    other counts are peer 0's of peer 1. Recall: 1 of peer 0, 1/2 of peer 1, 0 of peer 2."""
    graph = graph_of(4, [(0, 1), (1, 2), (2, 3)])
    columns = [(0, 1, 0, 12, 12), (1, 1, 0, 6, 3), (1, 1, 2, 6, 4)]
    counts = Comparisons(*(np.array(column) for column in zip(*columns, strict=True)))
    rule = SelectionRule(m=1, n_sampled=2, num_others=3, expected="uniform")
    (found,) = agreement_by_round(counts, rule, (0, 0, 0, 1), graph)
    assert (found.precision, found.recall) == (1.0, 0.5)
    (dense,) = agreement_by_round(counts, rule, (0, 0, 0, 1))
    assert dense.recall == pytest.approx((1 / 2 + 1 + 0) / 3)


@pytest.mark.parametrize(
    ("method", "values", "why"),
    [
        (
            "random",
            {"n_peers": 3},
            "n_peers = 3, but each peer can hear at most 2 others: lower it or choose",
        ),
        ("dac", {"n_peers": 3}, "n_peers = 3, but each peer can hear at most 2 others: lower it or choose"),
        ("pens", {"n_sampled": 3}, "n_sampled = 3, but each peer can hear at most 2 others: lower it or choose"),
    ],
)
def test_a_sparse_graph_bounds_what_a_peer_can_hear(method: str, values: dict[str, object], why: str) -> None:
    ring = Settings().replace({"topology": "ring", "n_peers": 2, "n_sampled": 2, "m": 1})
    check_methods(ring, [method], participants(ring))
    with pytest.raises(SettingsError, match=why):
        check_methods(ring.replace(values), [method], participants(ring))


def test_pens_needs_two_others_to_compare() -> None:
    few = Settings().replace({"n_sampled": 1, "m": 1})
    with pytest.raises(SettingsError, match="in this topology a peer hears 1 other: choose a topology with more"):
        check_methods(few, ["pens"], Participants(9, 3, 1))


@pytest.mark.parametrize("method", ["random", "pens"])
def test_a_peer_without_neighbours_is_named(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pairs(Topology):
        name = "pairs"
        about = "all but the last peer reach each other"

        def neighbours(self, num_peers: int, settings: SettingsTree, seed: int) -> Graph:
            return graph_of(num_peers, [(a, b) for a in range(num_peers - 1) for b in range(a)])

    monkeypatch.setitem(TOPOLOGIES._found, "ring", Pairs())
    with pytest.raises(SettingsError, match="but peer 5 has no neighbour in the topology: give it at least"):
        pens.run({**TINY, "topology": "ring"}, methods=method, model=TinyNet, data=tiny_dataset())
    pens.run({**TINY, "topology": "ring"}, methods="local", model=TinyNet, data=tiny_dataset())


def test_a_run_on_a_sparse_graph_is_refused_before_it_begins_or_told_and_reported(tmp_path: Path) -> None:
    settings = star(tmp_path)
    with pytest.raises(SettingsError, match="n_peers = 4, but each peer can hear at most 3"):
        pens.run(settings, methods="random", data=tiny_dataset(), model=TinyNet, overrides={"n_peers": 4})
    result = pens.run(settings, methods="pens", data=tiny_dataset(), model=TinyNet, out=tmp_path / "run")
    (found,) = result.runs
    assert found.agreement
    study = read_studies([tmp_path / "run"])[0]
    curve = selection_curve(study, study.of("pens")[0])
    assert curve
    assert (curve.precision[-1], curve.recall[-1]) == (found.agreement.precision, found.agreement.recall)
    (tmp_path / "star.json").unlink()
    assert selection_curve(study, study.of("pens")[0]) is None


def test_real_peers_are_refused_a_sparse_graph() -> None:
    settings = Settings().replace({"n_peers": 2})
    with pytest.raises(SettingsError, match="topology = 'ring', but real peers reach all members"):
        fit_settings(settings, {"topology": "ring"}, 8, "random")


@pytest.mark.parametrize(("topology", "chance"), [("complete", True), ("ring", False)])
def test_a_report_tells_of_chance_only_where_everybody_can_reach_everybody(
    topology: str, chance: bool, tmp_path: Path
) -> None:
    """On a sparse graph a peer's neighbours need not be as mixed as all peers are."""
    settings = Settings().replace({**TINY, "topology": topology})
    pens.run(settings, methods="random", data=tiny_dataset(), model=TinyNet, out=tmp_path / "run")
    page = write_report([tmp_path / "run"], tmp_path / "page.html")[0].read_text(encoding="utf-8")
    assert ("% would be expected by chance" in page) == chance
    assert ("the share expected by chance depends on it" in page) != chance

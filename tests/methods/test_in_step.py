# SPDX-License-Identifier: Apache-2.0
"""`dpsgd` and `el`, whose peers exchange models at the same moments, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pens.errors import SettingsError
from pens.methods.dpsgd import metropolis_weights
from pens.methods.method import Participants
from pens.methods.names import check_methods
from pens.protocol.messages import Drop, ModelRef, PeerId, Received, Send, Start, Update, Updated, Wake, WakeAfter
from pens.protocol.peer import Peer
from pens.settings.tree import Settings
from pens.topologies.topology import build_graph
from tests.byhand import federation, models_of, run_by_hand
from tests.conftest import TINY
from tests.fakes import fake_simulation
from tests.methods.specs import IN_STEP, spec_of
from tests.simulations import Log, run

NOBODY_LOSES = [[0.0] * 3] * 3


def test_dpsgd_on_a_path_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path 0 – 1 – 2: degrees 1, 2 and 1, so that both edges weigh 1 / (1 + 2) = 1/3, and the own models 2/3, 1/3 and
    2/3. Each peer trains one epoch at the start, and then merges and trains once:

        peer 0: 2/3 of its own (1, 0, 0) and 1/3 of (0, 1, 0), and an epoch of its own
        peer 1: 1/3 of each
        peer 2: 2/3 of (0, 0, 1) and 1/3 of (0, 1, 0)
    """
    (tmp_path / "path.csv").write_text("0,1\n1,2\n")
    settings = {"topology": "edges", "edges_file": str(tmp_path / "path.csv"), "rounds": 1, "tested": "last"}
    (result,), _ = run_by_hand(monkeypatch, federation((0, 0, 0), NOBODY_LOSES), "dpsgd", settings)
    assert models_of(result) == [
        pytest.approx([1.66667, 0.33333, 0]),
        pytest.approx([0.33333, 1.33333, 0.33333]),
        pytest.approx([0, 0.33333, 1.66667]),
    ]
    assert result.communication.received.tolist() == [1, 2, 1]


@given(st.integers(3, 15), st.data())
def test_metropolis_weights_are_symmetric_sum_to_one_and_keep_the_mean(num_peers: int, data: st.DataObject) -> None:
    """On any graph; none is negative."""
    pairs = st.tuples(st.integers(0, num_peers - 1), st.integers(0, num_peers - 1)).filter(lambda p: p[0] < p[1])
    edges = data.draw(st.sets(pairs))
    degree = [sum(peer in edge for edge in edges) for peer in range(num_peers)]
    weights = torch.zeros((num_peers, num_peers), dtype=torch.float64)
    for me in range(num_peers):
        others = [sum(edge) - me for edge in sorted(edges) if me in edge]
        weights[me, [me, *others]] = torch.tensor(
            metropolis_weights(degree[me], [degree[other] for other in others]), dtype=torch.float64
        )
    assert torch.equal(weights - weights.diag().diag(), (weights - weights.diag().diag()).T)
    assert weights.min() >= -1e-12
    torch.testing.assert_close(weights.sum(1), torch.ones(num_peers, dtype=torch.float64))
    models = torch.arange(num_peers * 2, dtype=torch.float64).view(num_peers, 2) ** 2
    torch.testing.assert_close((weights @ models).mean(0), models.mean(0))


@pytest.mark.parametrize("topology", ["complete", "ring", "regular"])
def test_peers_of_dpsgd_merge_all_their_neighbours_by_these_weights(topology: str) -> None:
    """All have the same degree d, so that each of the d + 1 models weighs 1 / (d + 1)."""
    log = Log()
    settings = Settings().replace({**TINY, "peers": 8, "patience": 50, "topology": topology})
    simulator, _ = fake_simulation(settings, "dpsgd")
    simulator._trace = log
    run(simulator)
    graph = build_graph(settings, 8, 0)
    merging = [(peer, a) for _, peer, _, actions in log.entries for a in actions if isinstance(a, Update) and a.models]
    assert len(merging) == 8 * 5
    for peer, update in merging:
        assert [model.owner for model in update.models] == list(graph[peer])
        assert update.weights == pytest.approx([1 / (1 + len(graph[peer]))] * (1 + len(graph[peer])))


def epidemic(n_peers: int = 2, num_peers: int = 5) -> Peer:
    settings = Settings().replace({**TINY, "peers": num_peers, "n_peers": n_peers, "latency": 0.1})
    plan = spec_of("el", settings).plan(9, 5, num_peers)
    it = Peer(PeerId(0), 1, plan, tuple(map(PeerId, range(1, num_peers))))
    it.handle(Start())
    it.handle(Updated())
    return it


def test_a_peer_of_el_sends_waits_and_merges_all_that_came() -> None:
    """Its second model of one sender takes the place of the first. With nothing to merge it trains on alone."""
    it = epidemic()
    *sends, wait = it.handle(Wake())
    assert all(isinstance(send, Send) for send in sends)
    assert len({send.to for send in sends if isinstance(send, Send)}) == 2
    assert isinstance(wait, WakeAfter)
    assert wait.delay == pytest.approx(0.15)
    came = [ModelRef(PeerId(3), 1), ModelRef(PeerId(1), 1), ModelRef(PeerId(4), 1)]
    older = ModelRef(PeerId(1), 0)
    assert it.handle(Received(older)) == it.handle(Received(came[0])) == []
    assert it.handle(Received(came[1])) == [Drop(older, "replaced")]
    assert it.handle(Received(came[2])) == []
    again = Peer(PeerId(0), 1, it.plan, it.reachable)
    again.restore(json.loads(json.dumps(it.state())))
    for peer in (it, again):
        assert peer.handle(Wake()) == [Update(tuple(came), None, 2, may_stop=True)]
        assert peer.handle(Updated()) == []
        assert len(peer.handle(Wake())) == 3
        assert peer.handle(Wake()) == [Update((), None, 2, may_stop=True)]


def test_el_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three peers that send to both others: each merges all three models, which are one epoch each, and trains once."""
    settings = {"n_peers": 2, "rounds": 1, "tested": "last"}
    (result,), _ = run_by_hand(monkeypatch, federation((0, 0, 0), NOBODY_LOSES), "el", settings)
    for peer, model in enumerate(models_of(result)):
        assert model == pytest.approx([1 / 3 + (place == peer) for place in range(3)], abs=1e-4)
    assert result.communication.sent.tolist() == result.communication.received.tolist() == [2, 2, 2]


@pytest.mark.parametrize("latency", [0.0, 0.1, 0.4])
def test_each_round_of_el_merges_what_was_sent_in_it(latency: float) -> None:
    """Ten rounds of eight peers that send to three each: all that is sent comes in the same round, and is merged."""
    log = Log()
    settings = Settings().replace(
        {**TINY, "peers": 8, "rounds": 10, "n_peers": 3, "patience": 50, "latency": latency, "topology": "regular"}
    )
    simulator, _ = fake_simulation(settings, "el")
    simulator._trace = log
    run(simulator)
    sent: dict[tuple[int, int], set[int]] = {}
    merged: dict[tuple[int, int], set[int]] = {}
    graph = build_graph(settings, 8, 0)
    for time, peer, _, actions in log.entries:
        for action in actions:
            if isinstance(action, Send):
                assert action.to in graph[peer]
                sent.setdefault((int(time), action.to), set()).add(peer)
            if isinstance(action, Update) and time >= 1:
                merged[int(time), peer] = {model.owner for model in action.models}
                assert all(model.version == int(time) for model in action.models)
    assert len(merged) == 80
    assert {key: of for key, of in merged.items() if of} == sent
    assert simulator.traffic.sent == [30] * 8
    assert len({len(of) for of in merged.values()}) > 2


@pytest.mark.parametrize("method", IN_STEP)
def test_peers_that_go_in_step_need_rounds_and_one_snapshot(method: str) -> None:
    few, who = Settings().replace({"n_peers": 2}), Participants(20, 10)
    check_methods(few, [method], who)
    with pytest.raises(SettingsError, match=f"schedule = async, but the peers of {method} go in step: set schedule"):
        check_methods(few.replace({"schedule": "async"}), [method], who)
    with pytest.raises(SettingsError, match=f"pull_from = latest, but the peers of {method} all exchange"):
        check_methods(few.replace({"pull_from": "latest"}), [method], who)


def test_what_does_not_fit_is_refused() -> None:
    few, who = Settings().replace({"n_peers": 2}), Participants(20, 10, 4)
    with pytest.raises(SettingsError, match=r"latency = 0\.5, but the models of a round of el have to come before"):
        check_methods(few.replace({"latency": 0.5}), ["el"], who)
    check_methods(few.replace({"latency": 0.4, "n_peers": 4}), ["el"], who)
    with pytest.raises(SettingsError, match="n_peers = 5, but each peer can reach at most 4 others: lower it"):
        check_methods(few.replace({"n_peers": 5}), ["el"], who)
    with pytest.raises(SettingsError, match="merge = 'median' knows no weights, but dpsgd says"):
        check_methods(few.replace({"merge": "median"}), ["dpsgd"], who)

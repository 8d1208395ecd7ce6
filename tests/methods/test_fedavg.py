# SPDX-License-Identifier: Apache-2.0
"""`fedavg`, whose server is a participant without data, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import pens
from pens.data.samples import Samples
from pens.data.scenarios import Federation, PeerData
from pens.errors import SettingsError
from pens.measuring.results import spec_of, work_of
from pens.methods.names import check_methods, networked_method, participants
from pens.parts import METHODS
from pens.protocol.messages import Action, Ask, Finish, Losses, PeerId, Send, Update
from pens.report.tables import print_results
from pens.settings.tree import Settings
from pens.storage.runlog import ExperimentDir
from tests.byhand import CountingEngine, federation, models_of, run_by_hand
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.fakes import fake_simulation
from tests.simulations import Log, run

SERVER = PeerId(6)


def unequal(counts: Sequence[int]) -> Federation:
    """Peers with so many training samples, each of the class of its peer's number. A model's loss on any peer's
    validation sample is minus the sum of its numbers: the longer it was trained, the better."""
    same, better = ([[loss] * len(counts)] * len(counts) for loss in (0.0, -1.0))
    equal = federation([0] * len(counts), same, val_losses=better)
    peers = []
    for count, peer in zip(counts, equal.peers, strict=True):
        train = Samples(np.repeat(peer.train.x, count, 0), np.repeat(peer.train.y, count))
        peers.append(PeerData(train, peer.val))
    return replace(equal, peers=tuple(peers))


def test_two_rounds_of_three_peers_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers with 1, 2 and 1 samples count for 1/4, 1/2 and 1/4. From (0, 0, 0), each trains one epoch, which adds a
    peer's number of samples to its own place:

        round 1: (1, 0, 0), (0, 2, 0), (0, 0, 1)                → (0.25, 1, 0.25)
        round 2: (1.25, 1, 0.25), (0.25, 3, 0.25), (0.25, 1, 1.25) → (0.5, 2, 0.5)

    All three are tested with the last of these. Each received a model in both rounds, and the last one after them.
    """
    settings = {"rounds": 2, "stop_on": "loss"}
    (result,), engine = run_by_hand(monkeypatch, unequal([1, 2, 1]), "fedavg", settings)
    assert models_of(result) == [[0.5, 2, 0.5]] * 3
    assert result.communication.sent.tolist() == [2, 2, 2]
    assert result.communication.received.tolist() == result.communication.merged.tolist() == [3, 3, 3]
    assert result.servers is not None
    assert (result.servers.sent.tolist(), result.servers.received.tolist()) == ([9], [6])
    assert result.servers.merged.tolist() == [6]
    assert [one.before for one in engine.trainings] == [[0, 0, 0]] * 3 + [[0.25, 1, 0.25]] * 3
    assert {one.slot for one in engine.trainings} == {0, 1, 2}
    assert not len(result.pairs.receiver)
    history = result.history
    assert history.epochs is not None
    assert [history.epochs[history.peer == peer].tolist() for peer in range(3)] == [[1, 1, 0]] * 3
    assert not history.searching.any()


def test_the_work_of_a_peer_is_its_training_and_not_what_it_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds of one epoch on 1, 2 and 1 samples, of which each counts three; and three validations of one."""
    settings = Settings().replace({**TINY, "epochs": 1, "rounds": 2, "n_peers": 2})
    (result,), _ = run_by_hand(monkeypatch, unequal([1, 2, 1]), "fedavg", {"rounds": 2})
    work = work_of(result, spec_of(result, settings))
    assert work == pytest.approx((2 * 3 * (1 + 2 + 1) / 3, 3, 0))


def simulated(**values: object) -> Log:
    log = Log()
    simulator, _ = fake_simulation(Settings().replace({**TINY, "peers": 6, **values}), "fedavg")
    simulator._trace = log
    run(simulator)
    return log


def of_server(log: Log) -> list[tuple[float, Action]]:
    return [(time, action) for time, peer, _, actions in log.entries if peer == SERVER for action in actions]


@pytest.mark.parametrize("latency", [0.0, 0.2])
@pytest.mark.parametrize(("participation", "drawn"), [(1.0, 6), (0.5, 3), (0.01, 1)])
def test_a_share_of_the_peers_trains_in_each_round(participation: float, drawn: int, latency: float) -> None:
    log = simulated(participation=participation, latency=latency, rounds=8)
    actions = of_server(log)
    sent = {r: [a.to for time, a in actions if isinstance(a, Send) and int(time) == r] for r in range(1, 9)}
    merged = [(time, a) for time, a in actions if isinstance(a, Update)]
    assert [int(time) for time, _ in merged] == list(range(1, 9))
    for (time, update), whom in zip(merged, sent.values(), strict=True):
        first = whom[:drawn]
        assert len(set(first)) == drawn
        assert sorted(model.owner for model in update.models) == sorted(first)
        assert update.epochs == 0
        assert update.weights == pytest.approx([0.0, *[1 / drawn] * drawn])
        assert time == pytest.approx(int(time) + 0.5 + 2 * latency)
    assert sent[8][drawn:] == list(range(6))
    assert isinstance(actions[-1][1], Finish)
    if drawn == 3:
        assert len({frozenset(whom[:3]) for whom in sent.values()}) > 1


def test_nobody_stops_early() -> None:
    """`patience` does not count: the server says when training ends."""
    log = simulated(patience=1, window=1, rounds=12)
    updates = [a for _, peer, _, actions in log.entries for a in actions if peer == 0 and isinstance(a, Update)]
    assert [update.epochs for update in updates] == [2] * 12 + [0]


def test_a_rule_without_weights_takes_the_place_of_the_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """The median of (1, 0, 0), (0, 2, 0) and (0, 0, 1) is (0, 0, 0), however many samples they have."""
    (result,), _ = run_by_hand(monkeypatch, unequal([1, 2, 1]), "fedavg", {"rounds": 1, "merge": "median"})
    assert models_of(result) == [[0, 0, 0]] * 3


def test_an_update_that_fails_leaves_the_peers_own_model_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peer 0 fails in round 1. It answers with its own model from before, which is untrained: (0, 0, 0)."""
    engine = CountingEngine(3)
    engine.fails = {(0, 0)}
    settings = {"rounds": 1, "stop_on": "loss"}
    (result,), _ = run_by_hand(monkeypatch, unequal([1, 2, 1]), "fedavg", settings, engine=engine)
    assert models_of(result) == [[0, 1, 0.25]] * 3
    assert any("peer 0: 1 update(s) undone" in warning for warning in result.warnings)


def test_what_does_not_fit_is_refused() -> None:
    settings = Settings()
    who = participants(settings)
    check_methods(settings.replace({"latency": 0.2}), ["fedavg"], who)
    with pytest.raises(SettingsError, match=r"latency = 0\.3, but a round of fedavg sends models twice"):
        check_methods(settings.replace({"latency": 0.3}), ["fedavg"], who)
    with pytest.raises(SettingsError, match="method fedavg: real peers cannot follow it"):
        networked_method("fedavg")


class Curious(pens.Behaviour):
    phase = "gossiping"

    def on_wake(self) -> list[pens.Action]:
        return [Ask("losses", Losses((), own=True))]

    def on_answered(self, name: str, answer: object) -> list[pens.Action]:
        return []


class Diligent(pens.Behaviour):
    phase = "gossiping"

    def on_wake(self) -> list[pens.Action]:
        return [self.peer.update((), may_stop=True)]


class Served(pens.Method):
    name = "served"
    num_servers = 1
    serves: type[pens.Behaviour]

    def server_plan(self, settings: pens.RunSettings, num_peers: int) -> pens.Plan:
        return replace(self.plan(settings, 0, 0, num_peers), train_first=False, behaviours={"gossiping": self.serves})


class WithCurious(Served):
    name = "with-curious"
    serves = Curious


class WithDiligent(Served):
    name = "with-diligent"
    serves = Diligent


@pytest.mark.parametrize(("method", "does"), [(WithCurious, "asks for losses"), (WithDiligent, "compares models, or")])
def test_a_server_has_no_samples_to_score_or_train_on(method: type[Served], does: str) -> None:
    with pytest.raises(SettingsError, match=f"the server 6 {does}.* it holds no samples"):
        pens.run(TINY, methods=method, model=TinyNet, data=tiny_dataset())


@pytest.mark.parametrize(("topology", "reached"), [("complete", [1, 2, 3, 4, 5, 6]), ("ring", [1, 5, 6])])
def test_peers_reach_servers_beside_each_other(topology: str, reached: list[int]) -> None:
    """Peer 0 of six reaches its neighbours in the topology, and the server, which has number 6."""
    METHODS.add(WithCurious)
    settings = Settings().replace({**TINY, "peers": 6, "topology": topology})
    simulator, _ = fake_simulation(settings, "with-curious")
    peers = simulator.peers[0].reachable
    assert list(peers) == reached
    assert (len(peers), peers[-1], list(peers[:2])) == (len(reached), 6, reached[:2])
    assert [6 in peers, 0 in peers, 7 in peers] == [True, False, False]
    with pytest.raises(IndexError):
        peers[len(reached)]


def test_peers_of_fedavg_reach_the_server_alone() -> None:
    simulator, _ = fake_simulation(Settings().replace({**TINY, "peers": 6}), "fedavg")
    assert [tuple(peer.reachable) for peer in simulator.peers] == [(6,)] * 6 + [(0, 1, 2, 3, 4, 5)]


def test_what_the_server_sent_is_kept_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Five rounds and the last model: 6 × 6 models out, 5 × 6 in. No peer is added to results."""
    settings = {**TINY, "latency": 0.0}
    result = pens.run(settings, methods="fedavg", model=TinyNet, data=tiny_dataset(), out=tmp_path / "run")
    (again,) = ExperimentDir(tmp_path / "run").results()
    assert again.servers is not None
    assert (again.servers.sent.tolist(), again.servers.received.tolist()) == ([36], [30])
    assert len(again.communication.sent) == len(again.accuracy) == 6
    print_results(Console(width=100), result, "tiny")
    assert "fedavg: the server received 30 models and sent 36 (" in capsys.readouterr().out

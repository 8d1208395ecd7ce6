# SPDX-License-Identifier: Apache-2.0
"""`ifca`, which has a server for each cluster, and `fedbn`, worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import pens
from pens.data.samples import Samples
from pens.engine.layout import Layout
from pens.errors import SettingsError
from pens.methods.ifca import Ifca
from pens.methods.names import check_methods, networked_method, participants
from pens.methods.spec import RunSpec
from pens.protocol.messages import Action, Finish, PeerId, Send, Update
from pens.settings.tree import Settings
from tests.byhand import CountingEngine, federation, models_of, run_by_hand
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.fakes import fake_simulation
from tests.methods.specs import made_of, spec_of
from tests.simulations import Log, run

UNTOLD = [[-1.0] * 3] * 3
"""Losses on validation samples: the longer a model was trained, the better."""


class Beginning(CountingEngine):
    """Peers begin with zeros, the three servers after them with other numbers."""

    def _new_row(self, key: int) -> Tensor:
        super()._new_row(key)
        servers = {3: [10.0, 0, 0], 4: [0, 10.0, 0], 5: [0, 0, 50.0]}
        return torch.tensor(servers.get(len(self.keys) - 1, [0.0, 0, 0]))


def test_two_rounds_of_three_peers_and_three_servers_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers A, B and C begin with (10, 0, 0), (0, 10, 0) and (0, 0, 50). Training adds 1 to the place of a peer's
    number for each of its samples, of which peer 0 has two. Losses in round 1:

        peer 0   A 0    B 10   C 50      trains A: (12, 0, 0)
        peer 1   A 90   B 10   C 11.5    trains B: (0, 11, 0)
        peer 2   A 1    B 10   C 50      trains A: (10, 0, 1)      A ← (11, 0, 0.5), whoever has more samples

    In round 2 they choose the same: A ← (12, 0, 1), B ← (0, 12, 0). C was never chosen, and is as it was. At the end B
    costs peer 1 12, and C 11.5: it keeps C. Peers 0 and 2 keep A, and are neighbours.
    """
    data = federation((0, 1, 0), [[0.0, 1, 1], [9.0, 1, 0.23], [0.1, 1, 1]], val_losses=UNTOLD)
    peers = list(data.peers)
    train = peers[0].train
    peers[0] = pens.PeerData(Samples(train.x.repeat(2, 0), train.y.repeat(2)), peers[0].val)
    data = pens.Federation(tuple(peers), data.clusters, data.tests, data.cluster_names)
    engine = Beginning(3)
    settings = {"rounds": 2, "stop_on": "loss", "num_clusters": 3, "init": "common"}
    (result,), _ = run_by_hand(monkeypatch, data, "ifca", settings, engine=engine)
    assert len(set(engine.keys)) == 6
    assert models_of(result) == [[12, 0, 1], [0, 0, 50], [12, 0, 1]]
    assert result.neighbours == {0: (2,), 1: (), 2: (0,)}
    assert result.agreement is not None
    assert result.communication.sent.tolist() == [2, 2, 2]
    assert result.communication.received.tolist() == result.communication.scored.tolist() == [9, 9, 9]
    assert result.communication.merged.tolist() == [3, 3, 3]
    assert result.servers is not None
    assert (result.servers.sent.tolist(), result.servers.received.tolist()) == ([9, 9, 9], [4, 2, 0])
    assert not len(result.pairs.receiver)


def servers_of(log: Log) -> dict[PeerId, list[tuple[float, Action]]]:
    found: dict[PeerId, list[tuple[float, Action]]] = {PeerId(6): [], PeerId(7): []}
    for time, peer, _, actions in log.entries:
        if peer in found:
            found[peer] += [(time, action) for action in actions]
    return found


@pytest.mark.parametrize("latency", [0.0, 0.2])
@pytest.mark.parametrize(("participation", "drawn"), [(1.0, 6), (0.5, 3), (0.01, 1)])
def test_all_servers_send_to_the_same_share_of_the_peers(participation: float, drawn: int, latency: float) -> None:
    log = Log()
    settings = Settings().replace(
        {**TINY, "peers": 6, "rounds": 8, "participation": participation, "latency": latency, "patience": 1}
    )
    simulator, _ = fake_simulation(settings, "ifca")
    simulator._trace = log
    run(simulator)
    told: list[list[list[PeerId]]] = []
    for actions in servers_of(log).values():
        sent = [[a.to for time, a in actions if isinstance(a, Send) and int(time) == r] for r in range(1, 9)]
        told.append([whom[:drawn] for whom in sent])
        assert all(len(set(whom)) == drawn for whom in told[-1])
        assert sent[7][drawn:] == list(range(6))
        updates = [(time, action) for time, action in actions if isinstance(action, Update)]
        assert [int(time) for time, _ in updates] == list(range(1, 9))
        assert {action.epochs for _, action in updates} == {0}
        assert isinstance(actions[-1][1], Finish)
    assert told[0] == told[1]
    merged = [
        sorted(
            model.owner
            for actions in servers_of(log).values()
            for time, action in actions
            if isinstance(action, Update) and int(time) == r
            for model in action.models
        )
        for r in range(1, 9)
    ]
    assert merged == told[0]
    if drawn == 3:
        assert len({tuple(whom) for whom in told[0]}) > 1


def test_two_clusters_find_their_servers() -> None:
    """A model that a peer of one cluster trained costs the other cluster at least 1, its own at most 0.5."""
    simulator, _ = fake_simulation(Settings().replace({**TINY, "peers": 10, "rounds": 9}), "ifca", seed=2)
    run(simulator)
    chosen = [simulator.selections[PeerId(peer)] for peer in range(10)]
    assert chosen == [chosen[0]] * 5 + [chosen[5]] * 5
    assert chosen[0] != chosen[5]


def test_models_begin_apart_and_are_sent_whole() -> None:
    made = made_of(Settings().replace({"init": "common", "batch_norm": "local"}), "ifca")
    assert (made.model.init, made.model.batch_norm) == ("independent", "merged")
    assert (made.stopping.validated, made.gossip.own_in_merge, made.training.train_first) == ("merged", False, False)


def test_what_does_not_fit_is_refused() -> None:
    settings = Settings()
    check_methods(settings.replace({"latency": 0.2}), ["ifca"], participants(settings))
    with pytest.raises(SettingsError, match=r"latency = 0\.3, but a round of ifca sends models twice"):
        check_methods(settings.replace({"latency": 0.3}), ["ifca"], participants(settings))
    with pytest.raises(SettingsError, match=r"num_clusters = 1: .*greater than or equal to 2"):
        settings.replace({"num_clusters": 1})
    with pytest.raises(SettingsError, match="method ifca: real peers cannot follow it"):
        networked_method("ifca")


@pytest.mark.parametrize("wrong", [0, -1, 2.0, None])
def test_a_number_of_servers_is_checked(wrong: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ifca, "servers", lambda *_: wrong)
    with pytest.raises(SettingsError, match=r"its servers returned .*: return a whole number, and 0 where num_serv"):
        _ = spec_of("ifca", Settings()).num_servers
    assert RunSpec.of(pens.Method(), Settings(), 0).num_servers == 0


def test_fedbn_averages_all_but_batch_normalisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third of three numbers is a scale of batch normalisation. Peers 0, 1 and 2 add one to the number of their
    place:

        round 1: (1, 0, 0), (0, 1, 0), (0, 0, 1)         → the server's (1/3, 1/3, ·)
        round 2: (4/3, 1/3, 0), (1/3, 4/3, 0), (1/3, 1/3, 2) → (2/3, 2/3, ·)

    Peer 2 keeps the 2 that it has learned itself. `fedavg` with `batch_norm = merged` averages it, too.
    """
    for method, more, scales in (("fedbn", {}, [0, 0, 2]), ("fedavg", {"batch_norm": "merged"}, [0.66667] * 3)):
        engine = CountingEngine(3)
        layout = Layout.stored({"body": torch.Size([2]), "scale": torch.Size([1])}, {}, ["scale"])
        engine.network = SimpleNamespace(**{**vars(engine.network), "stored": layout})
        settings = {"rounds": 2, "stop_on": "loss", **more}
        data = federation((0, 0, 0), [[0.0] * 3] * 3, val_losses=UNTOLD)
        (result,), _ = run_by_hand(monkeypatch, data, method, settings, engine=engine)
        assert models_of(result) == [[0.66667, 0.66667, scale] for scale in scales]


def test_fedbn_is_for_networks_with_batch_normalisation() -> None:
    assert made_of(Settings().replace({"batch_norm": "merged"}), "fedbn").model.batch_norm == "local"
    with pytest.raises(SettingsError, match="fedbn keeps each peer's own batch normalisation, but TinyNet has none: "):
        pens.run(TINY, methods="fedbn", model=TinyNet, data=tiny_dataset())

# SPDX-License-Identifier: Apache-2.0
"""`deprl` and `fedrep`, whose peers share bodies and keep heads, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import pens
from pens.errors import SettingsError
from pens.measuring.results import spec_of, work_of
from pens.methods.deprl import DeprlSettings
from pens.methods.fedrep import FedrepSettings
from pens.methods.names import check_methods, networked_method, participants
from pens.protocol.messages import Phase, Update
from pens.settings.tree import Settings
from tests.byhand import federation, run_by_hand
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.fakes import fake_simulation
from tests.methods import specs
from tests.methods.parts import PartsEngine, bodies, heads
from tests.methods.test_fedavg import unequal
from tests.network.node.test_node import cluster
from tests.simulations import Log, final_models, run, simulation

NOBODY_LOSES = [[0.0] * 3] * 3


def test_deprl_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three peers that hear both others, and train their heads for two epochs and then their bodies for one.

        first training: peer 0 has the head (2, 0, 0) and the body (1, 0, 0), and so on
        round 1: all bodies become (1, 1, 1) / 3. Peer 0's head becomes (4, 0, 0), and then its body (4, 1, 1) / 3

    A model on its way is a body: three numbers of four bytes. An update is three epochs of work."""
    settings = {"rounds": 1, "n_peers": 2, "deprl.head_epochs": 2, "tested": "last"}
    engine = PartsEngine(3)
    (result,), _ = run_by_hand(monkeypatch, federation((0, 0, 0), NOBODY_LOSES), "deprl", settings, engine=engine)
    assert heads(result) == [[4, 0, 0], [0, 4, 0], [0, 0, 4]]
    assert bodies(result) == [[1.3333 if one == other else 0.3333 for other in range(3)] for one in range(3)]
    of_peer = [(one.epochs, one.parts) for one in engine.phases if one.slot == 0]
    assert of_peer == [(2, "head.epochs"), (1, "body.epochs")] * 2
    last = [one for one in engine.phases if one.slot == 0][-1]
    assert last.head == [4, 0, 0]  # the head is trained first
    assert result.communication.model_bytes == 12
    assert result.communication.received.tolist() == [2, 2, 2]
    assert result.history.epochs is not None
    assert result.history.epochs.tolist() == [3] * 6
    work = work_of(result, spec_of(result, Settings().replace({**TINY, **settings})))
    assert work
    assert work[0] == pytest.approx(2 * 3 * 3)  # two updates of three epochs, of which each counts three


def test_fedrep_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers with 1, 2 and 1 samples, for whose number an epoch counts. Heads are trained for two epochs, then bodies
    for one:

        round 1: bodies (1, 0, 0), (0, 2, 0), (0, 0, 1)                → (0.25, 1, 0.25)
        round 2: (1.25, 1, 0.25), (0.25, 3, 0.25), (0.25, 1, 1.25) → (0.5, 2, 0.5), which all are sent in the end

    Heads are (4, 0, 0), (0, 8, 0) and (0, 0, 4), and no server has any."""
    settings = {"rounds": 2, "tested": "last", "fedrep.head_epochs": 2}
    engine = PartsEngine(3)
    (result,), _ = run_by_hand(monkeypatch, unequal([1, 2, 1]), "fedrep", settings, engine=engine)
    assert bodies(result) == [[0.5, 2, 0.5]] * 3
    assert heads(result) == [[4, 0, 0], [0, 8, 0], [0, 0, 4]]
    assert result.communication.model_bytes == 12
    assert result.communication.received.tolist() == [3, 3, 3]
    of_peer = [(one.epochs, one.parts, one.head) for one in engine.phases if one.slot == 1]
    assert of_peer == [
        (2, "head.epochs", [0, 0, 0]),
        (1, "body.epochs", [0, 4, 0]),
        (2, "head.epochs", [0, 4, 0]),
        (1, "body.epochs", [0, 8, 0]),
    ]


def test_a_peer_of_fedrep_tests_its_own_best_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here each epoch of another peer costs validation loss, so that the model that peer 0 trained itself is better
    than the server's last one: the body (1, 0, 0) of round 1."""
    losses = [[-1.0 if one == other else 99.0 for other in range(3)] for one in range(3)]
    data = federation((0, 0, 0), NOBODY_LOSES, val_losses=losses)
    settings = {"rounds": 2, "stop_on": "loss"}
    (result,), _ = run_by_hand(monkeypatch, data, "fedrep", settings, engine=PartsEngine(3))
    assert bodies(result)[0] == [1, 0, 0]
    assert heads(result)[0] == [10, 0, 0]


def test_a_share_of_the_peers_of_fedrep_trains_in_each_round() -> None:
    values = {**TINY, "peers": 6, "fedrep_participation": 0.5, "rounds": 4}
    log = Log()
    simulator, _ = fake_simulation(Settings().replace(values), "fedrep")
    simulator._trace = log
    run(simulator)
    server = [a for _, peer, _, actions in log.entries if peer == 6 for a in actions if isinstance(a, Update)]
    assert [len(update.models) for update in server] == [3] * 4
    trained = [a for _, peer, _, actions in log.entries if peer < 6 for a in actions if isinstance(a, Update)]
    assert {update.phases for update in trained} == {(Phase(10, ("auto",)), Phase(1, (), ("auto",))), ()}
    assert all(update.epochs == 0 for update in trained if not update.phases)


@pytest.mark.parametrize("method", ["deprl", "fedrep"])
@pytest.mark.parametrize("head", [("auto",), ("out",), ("conv",)])
def test_a_head_never_leaves_its_peer(method: str, head: Sequence[str]) -> None:
    """The body alone is sent, and counted; all begin with the same head, and no two end with the same."""
    settings = Settings().replace({**TINY, f"{method}.head": list(head), "rounds": 1, "patience": 9, "init": "common"})
    simulator = simulation(settings, method)
    layout = simulator.learners.executor.engine.network.stored
    assert set(simulator.learners.travelling or ()) == set(layout.part((), head))
    run(simulator)
    tensors = layout.tensors(final_models(simulator)[:6])
    for name in layout.part(head):
        assert len({tuple(of.flatten().tolist()) for of in tensors[name]}) == 6


@pytest.mark.parametrize(
    ("method", "values", "told"),
    [
        ("deprl", {"deprl.head": ["layer"]}, "as each peer's own 'layer', but no tensor's name begins with it"),
        ("deprl", {"deprl.head": ["conv", "out"]}, "keeps conv, out as each peer's own, which is all that could be"),
        ("fedrep", {"fedrep.head": ["outs"]}, "no tensor's name begins with it.* did you mean 'out"),
    ],
)
def test_a_head_that_is_none_is_refused_before_a_run(method: str, values: dict[str, object], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        pens.run({**TINY, **values}, methods=method, model=TinyNet, data=tiny_dataset())


def test_what_does_not_fit_is_refused() -> None:
    settings = Settings().replace({"n_peers": 99})
    with pytest.raises(SettingsError, match="n_peers = 99, but each peer can hear at most 19 others"):
        check_methods(settings, ["deprl"], participants(settings))
    with pytest.raises(SettingsError, match="method fedrep: real peers cannot follow it"):
        networked_method("fedrep")
    assert networked_method("deprl").name == "deprl"


def test_published_values_are_the_defaults() -> None:
    deprl, fedrep = DeprlSettings(), FedrepSettings()
    assert (deprl.head_epochs, deprl.body_epochs, deprl.head) == (3, 1, ("auto",))
    assert (fedrep.head_epochs, fedrep.body_epochs, fedrep.fedrep_participation) == (10, 1, 1.0)
    assert specs.spec_of("fedrep", Settings()).settings.stopping.validated == "trained"


@pytest.mark.parametrize(
    ("head", "stays"), [(("auto",), {"out.weight", "out.bias"}), (("conv",), {"conv.weight", "conv.bias"})]
)
def test_the_heads_of_real_peers_never_leave_them_either(head: tuple[str, ...], stays: set[str]) -> None:
    """Messages have one form, so that zeros are sent in a head's place. The peer's own model is what it was."""
    node = cluster("deprl", **{"deprl.head": list(head)}).node(0, known=6)
    (row,) = node.learners.models.read([node.learners.names.row(node.learning.current)])
    payload = node.learning._pack(node.learning.current)
    assert payload
    layout = node.learners.executor.engine.network.stored
    own, sent = layout.tensors(row), layout.tensors(node.learning.read(payload))
    for name, tensor in sent.items():
        assert torch.equal(tensor, torch.zeros_like(tensor) if name in stays else own[name])
    (again,) = node.learners.models.read([node.learners.names.row(node.learning.current)])
    assert torch.equal(again, row)


def test_peers_of_deprl_begin_with_the_same_model() -> None:
    assert specs.made_of(Settings().replace({"init": "independent"}), "deprl").model.init == "common"

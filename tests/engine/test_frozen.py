# SPDX-License-Identifier: Apache-2.0
"""What is frozen is kept once, computed once per sample where it can be, and changes no result."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from pens.engine.frozen import set_mode
from pens.engine.functional import StackedNetwork
from pens.engine.optimizers import Recipe
from pens.engine.rounding import model_bytes
from pens.engine.stack import ModelStack
from pens.engine.training import StackEngine, new_engine
from pens.errors import ModelError
from pens.settings.schema import EngineSettings
from tests.engine.networks import FROZEN_NETWORKS, freeze
from tests.engine.test_training import CPU, RECIPES, assert_same_training, engines, first_rows, holders, train

CUT = {"backbone and head": "0", "exchanged last layer": "out", "backbone and batch norm": "0", "adapter": "backbone.0"}


@pytest.mark.parametrize("counts", [(8, 8), (10, 3, 7)], ids=["equal", "unequal"])
@pytest.mark.parametrize("name", list(FROZEN_NETWORKS))
def test_networks_with_frozen_parts_train_as_a_stack_like_alone(name: str, counts: tuple[int, ...]) -> None:
    assert_same_training(FROZEN_NETWORKS[name], holders(counts), Recipe("sgd", 2e-2, 0.5, 0.0, 4))


@pytest.mark.parametrize("name", list(FROZEN_NETWORKS))
def test_what_is_computed_once_per_sample(name: str) -> None:
    network = StackedNetwork(FROZEN_NETWORKS[name], holders((3,)).x[0], 10)
    assert (network.cut.name if network.cut else None) == CUT.get(name)


@pytest.mark.parametrize("name", list(CUT))
def test_features_that_are_not_kept_give_the_same_results(name: str) -> None:
    data = holders((10, 3, 7))
    kept = engines(FROZEN_NETWORKS[name], data)[0]
    anew = StackEngine(kept.network, 1)
    a, b = train(kept, data, RECIPES[0]), train(anew, data, RECIPES[0])
    assert [engine._features[data] is None for engine in (kept, anew)] == [False, True]
    torch.testing.assert_close(a.rows, b.rows, rtol=1e-4, atol=1e-5)
    models = ModelStack(kept.network.size, CPU)
    rows = models.add(a.rows)
    one, other = (engine.evaluate(models, rows, data, [0, 1, 2]).loss for engine in (kept, anew))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", list(FROZEN_NETWORKS))
def test_no_bit_depends_on_company_or_on_the_cut_of_the_work(name: str) -> None:
    data = holders((10, 3, 7, 4))
    whole = engines(FROZEN_NETWORKS[name], data)[0]
    reference = train(whole, data, RECIPES[0])
    small = StackEngine(whole.network, 4 * (4 * whole.network.bytes_per_sample + 20 * whole.network.size))
    small._features = whole._features
    assert torch.equal(train(small, data, RECIPES[0]).rows, reference.rows)
    first = first_rows(whole.network, 4)
    some = whole.train(first[[3, 1]], data, [3, 1], [103, 101], 2, RECIPES[0])
    assert torch.equal(some.rows, reference.rows[[3, 1]])


@pytest.mark.parametrize("name", list(FROZEN_NETWORKS))
def test_what_is_frozen_is_in_no_row_and_in_every_state(name: str) -> None:
    data = holders((5, 5))
    stack, loop = engines(FROZEN_NETWORKS[name], data)
    network, module = stack.network, FROZEN_NETWORKS[name]()
    trained = {n for n, p in module.named_parameters() if p.requires_grad}
    assert {p.name for p in network.stored.trained} <= trained
    rows = {p.name for p in (*network.stored.trained, *network.stored.kept)}
    assert not rows & {n for n, p in module.named_parameters() if not p.requires_grad}
    assert model_bytes(network.stored, "fp32") == 4 * network.size
    after = train(stack, data, RECIPES[0]).rows
    state = network.state(after)
    assert state.keys() == module.state_dict().keys()
    models = ModelStack(network.size, CPU)
    found = stack.evaluate(models, models.add(after), data, [0, 1])
    for peer in (0, 1):
        module.load_state_dict({n: t[peer] for n, t in state.items()})
        with torch.no_grad():
            loss = nn.functional.cross_entropy(module.eval()(data.x[peer]), data.y[peer]).item()
        assert found.loss[peer] == pytest.approx(loss, rel=1e-4)
    for n in state.keys() - rows:
        assert torch.equal(state[n][0], loop.network.state(after)[n][1])


def test_frozen_values_are_the_same_in_every_process_and_in_memory_once() -> None:
    x = holders((3,)).x[0]
    one, other = (StackedNetwork(FROZEN_NETWORKS["exchanged last layer"], x, 10) for _ in range(2))
    torch.manual_seed(1)
    assert torch.equal(one.whole.first.weight, other.whole.first.weight)  # type: ignore[union-attr, arg-type]
    places = {
        id(p)
        for modules in ([one.whole], one._modules.values(), one.copied()._modules.values())
        for module in modules
        for n, p in module.named_parameters()
        if n == "first.weight"
    }
    assert len(places) == 1
    engine = new_engine(FROZEN_NETWORKS["adapter"], x, 10, EngineSettings(), 1.0)
    assert engine.network.cut


def test_a_network_that_is_frozen_as_a_whole_is_refused() -> None:
    with pytest.raises(ModelError, match="no parameters to train"):
        StackedNetwork(lambda: freeze(nn.Sequential(nn.Flatten(), nn.Linear(64, 10))), holders((3,)).x[0], 10)


def test_statistics_of_a_frozen_module_stay() -> None:
    data = holders((5, 5))
    for engine in engines(FROZEN_NETWORKS["backbone and head"], data):
        before = {n: t.clone() for n, t in engine.network.whole.state_dict().items()}
        train(engine, data, RECIPES[0])
        assert all(torch.equal(t, before[n]) for n, t in engine.network.whole.state_dict().items() if n[0] == "0")


def test_frozen_recurrent_layers_pass_gradients_on_a_gpu_and_drop_nothing() -> None:
    """cuDNN computes gradients of recurrent layers in training mode alone."""
    layer, head = nn.LSTM(3, 4, 2, dropout=0.5), nn.Linear(4, 2)
    set_mode(nn.Sequential(freeze(layer), head), False)
    assert (layer.training, layer.dropout, head.training) == (True, 0.0, False)

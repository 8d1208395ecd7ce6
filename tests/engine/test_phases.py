# SPDX-License-Identifier: Apache-2.0
"""Training a part of a network: all else stands still to the last bit, and law 1 holds for the part."""

from __future__ import annotations

import shutil
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from pens import rng
from pens.engine.batches import plan_visits
from pens.engine.functional import StackedNetwork
from pens.engine.layout import Layout
from pens.engine.optimizers import Recipe
from pens.engine.training import LoopEngine, StackEngine, Trained, _torch_optimizer, train_in_parts
from pens.nets import NetFactory
from tests.engine.networks import BATCH_NORM_NETWORKS, FROZEN_NETWORKS, IMAGE_NETWORKS
from tests.engine.test_training import RECIPES, UNEQUAL, engines, first_rows, holders

NETWORKS: dict[str, NetFactory] = {
    **{name: IMAGE_NETWORKS[name] for name in ("digits", "dropout", "group norm", "residual", "running scale")},
    "batch norm": BATCH_NORM_NETWORKS["dropout, batch norm"],
}
CASES = [pair for pair in product(NETWORKS, ("head", "body")) if pair != ("running scale", "body")]
"""The one layer of "running scale" is its head, beside which there are buffers that training moves."""
SLOTS, KEYS = [0, 1, 2], [100, 101, 102]
BOTH = [pytest.param(RECIPES[1], id="adam"), pytest.param(RECIPES[3], id="sgd")]


def part(engine: StackEngine | LoopEngine, name: str) -> tuple[str, ...]:
    return engine.network.stored.part(*{"head": (("auto",), ()), "body": ((), ("auto",))}[name])


def assert_only_these_change(network: StackedNetwork, before: torch.Tensor, trained: Trained, only: set[str]) -> None:
    old, new = network.tensors(before), network.tensors(trained.rows)
    parameters = {place.name for place in network.stored.trained}
    for name in old:
        if name not in only:
            assert torch.equal(old[name], new[name]), name
        elif name in parameters:
            assert not (old[name] == new[name]).flatten(1).all(1).any(), name


@pytest.mark.parametrize(("name", "trains"), CASES)
@pytest.mark.parametrize("recipe", BOTH)
def test_a_part_is_trained_as_a_stack_like_alone_and_nothing_else_changes(
    name: str, recipe: Recipe, trains: str
) -> None:
    """With weight decay, by which an optimizer changes parameters without a gradient, too."""
    data = holders(UNEQUAL)
    found = []
    for engine in engines(NETWORKS[name], data):
        before, only = first_rows(engine.network, 3), part(engine, trains)
        trained = engine.train(before, data, SLOTS, KEYS, 2, recipe, None, only)
        assert_only_these_change(engine.network, before, trained, set(only))
        found.append(trained)
    torch.testing.assert_close(found[0].rows, found[1].rows, rtol=1e-3, atol=2e-4)
    np.testing.assert_allclose(found[0].loss, found[1].loss, rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler here")
@pytest.mark.parametrize("trains", ["head", "body"])
def test_a_part_is_trained_by_the_compiled_kernels(trains: str) -> None:
    data = holders(UNEQUAL)
    network = StackedNetwork(IMAGE_NETWORKS["digits"], data.x[0, :3], 10, levels=("compiled",))
    before, results = first_rows(network, 3), []
    for engine in (StackEngine(network, 1 << 30), engines(IMAGE_NETWORKS["digits"], data)[1]):
        only = part(engine, trains)
        results.append(engine.train(before, data, SLOTS, KEYS, 2, RECIPES[1], None, only))
        assert_only_these_change(network, before, results[-1], set(only))
    torch.testing.assert_close(results[0].rows, results[1].rows, rtol=1e-3, atol=2e-4)


def test_no_bit_depends_on_how_the_work_is_cut() -> None:
    data = holders((10, 3, 7, 4, 9))
    whole = engines(IMAGE_NETWORKS["dropout"], data)[0]
    rows, slots = first_rows(whole.network, 5), [0, 1, 2, 3, 4]
    parts = [(1, part(whole, "head")), (2, part(whole, "body"))]
    reference = train_in_parts(whole, rows, data, slots, slots, RECIPES[1], parts)
    cut = StackEngine(whole.network, 2 * (whole.network.bytes_per_sample * 4 + 20 * whole.network.size))
    assert torch.equal(train_in_parts(cut, rows, data, slots, slots, RECIPES[1], parts).rows, reference.rows)


@pytest.mark.parametrize("recipe", BOTH)
def test_phases_are_those_of_torch_with_frozen_parameters(recipe: Recipe) -> None:
    """Two epochs of the head and then one of the body, each phase by an optimizer of PyTorch's that begins anew and
    knows the phase's parameters alone. The second phase visits the samples in an order of its own."""
    data = holders((10,))
    loop = engines(IMAGE_NETWORKS["digits"], data)[1]
    rows, seen = first_rows(loop.network, 1), []
    module = IMAGE_NETWORKS["digits"]()
    module.load_state_dict(loop.network.tensors(rows[0].clone()))
    for number, (epochs, trains) in enumerate([(2, "head"), (1, "body")]):
        names = part(loop, trains)
        optimizer = _torch_optimizer(recipe, [p for name, p in module.named_parameters() if name in names])
        key = 100 if not number else rng.key(100, "phase", 1)
        visits = plan_visits(data, [0], torch.tensor([key]), epochs, 4)
        for step in range(len(visits)):
            index = visits.index[step, 0][visits.weight[step, 0] > 0]
            seen.append(index.tolist())
            module.zero_grad()
            loss = nn.functional.cross_entropy(module(data.x[0, index]), data.y[0, index])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    assert seen[:3] != seen[6:]
    parts = [(2, part(loop, "head")), (1, part(loop, "body"))]
    for engine in engines(IMAGE_NETWORKS["digits"], data):
        found = train_in_parts(engine, rows, data, [0], [100], recipe, parts)
        for name, tensor in module.state_dict().items():
            torch.testing.assert_close(engine.network.tensors(found.rows[0])[name], tensor, rtol=1e-4, atol=1e-5)


def test_one_phase_of_everything_is_an_update_without_phases() -> None:
    data = holders(UNEQUAL)
    for engine in engines(IMAGE_NETWORKS["digits"], data):
        rows, everything = first_rows(engine.network, 3), engine.network.stored.part()
        phased = train_in_parts(engine, rows, data, SLOTS, KEYS, RECIPES[1], [(2, everything)])
        plain = engine.train(rows, data, SLOTS, KEYS, 2, RECIPES[1])
        assert torch.equal(phased.rows, plain.rows)
        np.testing.assert_array_equal(phased.loss, plain.loss)


def test_a_loss_that_is_no_number_in_any_phase_is_one_of_the_update() -> None:
    """The losses of the first phase are infinite for the model of slot 1, and its numbers are finite all the same."""

    class Failing:
        calls = 0

        def train(self, rows: torch.Tensor, *_: object) -> Trained:
            self.calls += 1
            return Trained(rows + 1, torch.tensor([1.0, torch.inf if self.calls == 1 else 2.0]))

    found = train_in_parts(Failing(), torch.zeros(2, 3), None, [0, 1], [5, 6], None, [(1, ("a",)), (1, ("b",))])  # type: ignore[arg-type]
    assert found.loss[0] == 1.0
    assert np.isnan(found.loss[1])
    assert found.rows.tolist() == [[2.0] * 3] * 2


def test_the_last_layer_is_the_one_that_holds_the_last_trained_tensor() -> None:
    shapes = {name: torch.Size([2]) for name in ("a.1.weight", "a.10.weight", "a.10.bias", "b.scale")}
    layout = Layout.stored({name: shapes[name] for name in list(shapes)[:3]}, {"b.scale": shapes["b.scale"]})
    assert layout.part(("auto",)) == ("a.10.weight", "a.10.bias")
    assert layout.part((), ("auto",)) == ("a.1.weight", "b.scale")
    assert layout.part(("a",), ("a.1",)) == ("a.10.weight", "a.10.bias")
    assert layout.part() == tuple(shapes)


def test_a_frozen_backbone_is_cut_off_whatever_is_trained() -> None:
    data = holders(UNEQUAL)
    network = StackedNetwork(FROZEN_NETWORKS["backbone and head"], data.x[0, :3], 10)
    assert network.cut
    rows, only = first_rows(network, 3), network.stored.part(("auto",))
    trained = StackEngine(network, 1 << 30).train(rows, data, SLOTS, KEYS, 1, RECIPES[1], None, only)
    assert_only_these_change(network, rows, trained, set(only))

# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation trains as a stack, by the statistics of real samples alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from pens.data.samples import Samples
from pens.engine.batches import SampleStack, Subset
from pens.engine.functional import StackedNetwork
from pens.engine.optimizers import Recipe
from pens.engine.stack import ModelStack
from pens.engine.training import LoopEngine, StackEngine
from pens.errors import ModelError
from tests.engine.networks import BATCH_NORM_NETWORKS
from tests.engine.test_training import CPU, RECIPES, engines, first_rows, holders, train

COUNTS = {
    "equal": (8, 8, 8),
    "short batches": (10, 10, 10),
    "unequal": (10, 3, 7),
    "one left over": (9, 5, 4, 1),
}


@pytest.mark.parametrize("counts", list(COUNTS.values()), ids=list(COUNTS))
@pytest.mark.parametrize("name", list(BATCH_NORM_NETWORKS))
def test_batch_norm_trains_as_a_stack_like_alone(name: str, counts: tuple[int, ...]) -> None:
    data, recipe = holders(counts), Recipe("sgd", 2e-2, 0.5, 1e-3, 4)
    stack, loop = engines(BATCH_NORM_NETWORKS[name], data)
    together, one_by_one = train(stack, data, recipe), train(loop, data, recipe)
    torch.testing.assert_close(together.rows, one_by_one.rows, rtol=1e-3, atol=2e-4)
    np.testing.assert_allclose(together.loss, one_by_one.loss, rtol=1e-3, atol=1e-4)
    models = ModelStack(stack.network.size, CPU)
    rows, slots = models.add(together.rows), list(range(len(counts)))
    for subset in (None, Subset(3, [5 + s for s in slots])):
        a, b = (engine.evaluate(models, rows, data, slots, subset) for engine in (stack, loop))
        np.testing.assert_allclose(a.loss, b.loss, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(a.accuracy, b.accuracy)


def test_statistics_by_hand_leave_padding_out() -> None:
    """A peer with values 1, 2, 6 and a batch of two: its epoch is a batch of two, and one of a single value.

    Its key visits them in some order. The batch of two, a and b, has the mean (a + b) / 2 and the unbiased variance
    (a − b)² / 2, and momentum 0.1 makes of the running 0 and 1: 0.1 × mean, and 0.9 + 0.1 × variance. The batch of one
    value has no variance and changes nothing; padding would make it a batch of two.
    """
    values = [1.0, 2.0, 6.0]
    x = np.array(values, np.float32)[:, None]
    long = Samples(np.arange(4, dtype=np.float32)[:, None], np.array([0, 1, 0, 1]))
    data = SampleStack([Samples(x, np.array([0, 1, 1])), long], CPU)

    def make() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(1, affine=False), nn.Linear(1, 2))

    stack, loop = (
        StackEngine(StackedNetwork(make, data.x[0], 2), 1 << 28),
        LoopEngine(StackedNetwork(make, data.x[0], 2, stacked=False)),
    )
    pairs = {tuple(sorted(pair)): ((sum(pair)) / 2, (pair[0] - pair[1]) ** 2 / 2) for pair in ((1, 2), (1, 6), (2, 6))}
    for engine in (stack, loop):
        network = engine.network
        trained = engine.train(first_rows(network, 2), data, [0, 1], [3, 4], 1, Recipe("sgd", 0.0, 0.0, 0.0, 2))
        found = network.tensors(trained.rows[0])
        mean, var = found["0.running_mean"].item(), found["0.running_var"].item()
        expected = [(0.1 * m, 0.9 + 0.1 * v) for m, v in pairs.values()]
        assert any(np.allclose((mean, var), one, atol=1e-6) for one in expected)
        assert found["0.num_batches_tracked"].item() == 1
        assert network.tensors(trained.rows[1])["0.num_batches_tracked"].item() == 2


def test_a_stack_has_the_statistics_that_pytorch_computes() -> None:
    data = holders((10,))
    for momentum in (0.1, 0.7, None):

        def make(momentum: float | None = momentum) -> nn.Module:
            return nn.Sequential(nn.BatchNorm2d(1, momentum=momentum), nn.Flatten(), nn.Linear(64, 10))

        network = StackedNetwork(make, data.x[0, :3], 10)
        module, rows = make(), first_rows(network, 2)
        tensors = network.tensors(rows)
        for start in (0, 4, 7):
            module(data.x[0, start : start + 3])
            x = data.x[0, start : start + 3].expand(2, -1, -1, -1, -1)
            network.logits(tensors, x, torch.zeros(2, dtype=torch.int64), train=True)
        state = network.state(rows)
        assert state.keys() == module.state_dict().keys()
        for name, value in module[0].named_buffers():  # type: ignore[index]
            torch.testing.assert_close(state[f"0.{name}"][1], value)  # the counter is a whole number, too


@pytest.mark.parametrize("counts", [(8,) * 5, (10, 3, 7, 4, 9)], ids=["equal", "unequal"])
@pytest.mark.parametrize("name", ["residual blocks", "dropout, batch norm", "without running statistics"])
def test_no_bit_depends_on_the_cut_or_on_company(name: str, counts: tuple[int, ...]) -> None:
    data, slots = holders(counts), list(range(5))
    whole = engines(BATCH_NORM_NETWORKS[name], data)[0]
    reference = train(whole, data, RECIPES[1])
    models = ModelStack(whole.network.size, CPU)
    rows = models.add(reference.rows)
    scores = whole.evaluate(models, rows, data, slots)
    per_model = whole.network.bytes_per_sample * 4 + 20 * whole.network.size
    for chunk in (1, 2, 3):
        cut = StackEngine(whole.network, chunk * per_model)
        assert torch.equal(train(cut, data, RECIPES[1]).rows, reference.rows)
        np.testing.assert_array_equal(cut.evaluate(models, rows, data, slots).loss, scores.loss)
    first = first_rows(whole.network, 5)
    some = whole.train(first[[3, 1]], data, [3, 1], [103, 101], 2, RECIPES[1])
    assert torch.equal(some.rows, reference.rows[[3, 1]])


def test_evaluation_without_running_statistics_takes_all_samples_as_one_batch() -> None:
    data = holders((150, 70))
    stack = engines(BATCH_NORM_NETWORKS["without running statistics"], data)[0]
    network, models = stack.network, ModelStack(stack.network.size, CPU)
    rows = first_rows(network, 2)
    found = stack.evaluate(models, models.add(rows), data, [0, 1])
    for slot, count in enumerate((150, 70)):
        module = BATCH_NORM_NETWORKS["without running statistics"]()
        module.load_state_dict(network.tensors(rows[slot]))
        scores = module.eval()(data.x[slot, :count])
        assert found.loss[slot] == pytest.approx(nn.functional.cross_entropy(scores, data.y[slot, :count]).item(), 1e-5)


def test_networks_without_batch_norm_need_not_know_which_samples_are_real() -> None:
    network = StackedNetwork(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), holders((3,)).x[0], 10)
    assert not network.has_batch_norm
    assert not network.evaluates_as_one_batch
    assert not network.stored.batch_norm


def test_batch_norm_that_shares_statistics_between_processes_is_refused() -> None:
    with pytest.raises(ModelError, match=r"nn\.SyncBatchNorm"):
        StackedNetwork(
            lambda: nn.Sequential(nn.Flatten(), nn.SyncBatchNorm(64), nn.Linear(64, 10)), holders((3,)).x[0], 10
        )

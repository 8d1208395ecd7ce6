# SPDX-License-Identifier: Apache-2.0
"""Law 1: training a stack = training its models one by one. And on a CPU, no bit depends on the cut (law 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from pens.data.samples import Samples
from pens.engine import training
from pens.engine.batches import SampleStack, Subset, Visits, plan_visits
from pens.engine.functional import StackedNetwork
from pens.engine.optimizers import CORRECTED, Moments, Recipe, corrections
from pens.engine.stack import ModelStack
from pens.engine.training import LoopEngine, StackEngine, Trained, _alike, _torch_optimizer
from pens.engine.update import StackUpdate, rounded_up
from pens.nets import NetFactory, PaperCNN
from tests.engine.networks import IMAGE_NETWORKS, Words

CPU = torch.device("cpu")
RECIPES = [
    Recipe("adam", 3e-3, 0.0, 0.0, 4),
    Recipe("adam", 3e-3, 0.0, 1e-2, 4),
    Recipe("sgd", 5e-2, 0.0, 0.0, 4),
    Recipe("sgd", 5e-2, 0.9, 1e-2, 4),
]
EQUAL, UNEQUAL = (10, 10, 10), (10, 3, 7)


def holders(
    counts: Sequence[int], shape: tuple[int, ...] = (1, 8, 8), seed: int = 0, device: torch.device = CPU
) -> SampleStack:
    generator = np.random.default_rng(seed)
    return SampleStack(
        [Samples(generator.normal(size=(n, *shape)).astype(np.float32), generator.integers(0, 10, n)) for n in counts],
        device,
    )


def engines(factory: NetFactory, data: SampleStack, memory: int = 1 << 30) -> tuple[StackEngine, LoopEngine]:
    example = data.x[0, :3]
    return (
        StackEngine(StackedNetwork(factory, example, 10), memory),
        LoopEngine(StackedNetwork(factory, example, 10, stacked=False)),
    )


def first_rows(network: StackedNetwork, count: int) -> torch.Tensor:
    return torch.stack([network.new_row(seed) for seed in range(count)])


def train(engine: StackEngine | LoopEngine, data: SampleStack, recipe: Recipe, epochs: int = 2) -> Trained:
    slots = list(range(len(data.counts)))
    rows = first_rows(engine.network, len(slots))
    return engine.train(rows, data, slots, [100 + s for s in slots], epochs, recipe)


def assert_same_training(factory: NetFactory, data: SampleStack, recipe: Recipe) -> None:
    stack, loop = engines(factory, data)
    together, one_by_one = train(stack, data, recipe), train(loop, data, recipe)
    assert not torch.equal(together.rows, first_rows(stack.network, len(data.counts)))
    torch.testing.assert_close(together.rows, one_by_one.rows, rtol=1e-3, atol=2e-4)
    np.testing.assert_allclose(together.loss, one_by_one.loss, rtol=1e-3, atol=1e-4)
    models = ModelStack(stack.network.size, CPU)
    rows, slots = models.add(together.rows), list(range(len(data.counts)))
    a, b = stack.evaluate(models, rows, data, slots), loop.evaluate(models, rows, data, slots)
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(a.accuracy, b.accuracy)


@pytest.mark.parametrize("counts", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("name", list(IMAGE_NETWORKS))
def test_a_stack_trains_like_its_models_one_by_one(name: str, counts: tuple[int, ...]) -> None:
    assert_same_training(IMAGE_NETWORKS[name], holders(counts), RECIPES[1])


@pytest.mark.parametrize("counts", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_all_optimizers_train_a_stack_like_its_models_one_by_one(recipe: Recipe, counts: tuple[int, ...]) -> None:
    assert_same_training(IMAGE_NETWORKS["digits"], holders(counts), recipe)


def train_twice(engine: StackEngine | LoopEngine, data: SampleStack, recipe: Recipe) -> Trained:
    """Two updates, of which the second goes on with what the optimizers remember of the first."""
    slots = list(range(len(data.counts)))
    rows = first_rows(engine.network, len(slots)).to(data.device)
    nothing = torch.zeros((len(slots), recipe.num_moments, engine.network.size), device=data.device)
    found = Trained(rows, np.zeros(len(slots)), Moments(nothing, [0] * len(slots)))
    for update in (100, 200):
        found = engine.train(found.rows, data, slots, [update + s for s in slots], 1, recipe, found.moments)
    return found


def assert_same_moments(stack: StackEngine | LoopEngine, loop: LoopEngine, data: SampleStack, recipe: Recipe) -> None:
    together, one_by_one = train_twice(stack, data, recipe), train_twice(loop, data, recipe)
    assert together.moments
    assert one_by_one.moments
    assert together.moments.steps == one_by_one.moments.steps
    torch.testing.assert_close(together.rows, one_by_one.rows, rtol=1e-3, atol=2e-4)
    for a, b in zip(together.moments.values.unbind(1), one_by_one.moments.values.unbind(1), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=float(b.abs().max()) / 1000)


@pytest.mark.parametrize("counts", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_optimizers_that_remember_do_so_in_a_stack_as_one_by_one(recipe: Recipe, counts: tuple[int, ...]) -> None:
    data = holders(counts)
    stack, loop = engines(IMAGE_NETWORKS["digits"], data)
    assert_same_moments(stack, loop, data, recipe)
    assert_same_moments(engines(IMAGE_NETWORKS["digits"], data, memory=1)[0], loop, data, recipe)
    once = train(stack, data, recipe, 1)
    anew = stack.train(once.rows, data, [0, 1, 2], [200, 201, 202], 1, recipe)
    assert torch.equal(anew.rows, train_twice(stack, data, recipe).rows) == (recipe.num_moments == 0)


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_what_is_remembered_is_what_torchs_optimizer_would_go_on_with(recipe: Recipe) -> None:
    data = holders((10,))
    loop = engines(IMAGE_NETWORKS["digits"], data)[1]
    module = IMAGE_NETWORKS["digits"]()
    first = loop.network.tensors(first_rows(loop.network, 1)[0])
    module.load_state_dict(dict(first))
    optimizer = _torch_optimizer(recipe, list(module.parameters()))
    for key in (100, 200):
        visits = plan_visits(data, [0], torch.tensor([key]), 1, recipe.batch_size)
        for step in range(len(visits)):
            index = visits.index[step, 0][visits.weight[step, 0] > 0]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(data.x[0, index]), data.y[0, index])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    found = loop.network.tensors(train_twice(loop, data, recipe).rows[0])
    for name, tensor in module.state_dict().items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)


def test_adams_corrections_end_where_they_are_one() -> None:
    table = corrections(1e-3, CPU)
    assert len(table) == CORRECTED + 1
    assert table[-1].tolist() == [torch.tensor(1e-3).item(), 1.0]
    data, recipe = holders((4,)), RECIPES[0]
    stack, loop = engines(IMAGE_NETWORKS["digits"], data)
    rows = first_rows(stack.network, 1)
    past = Moments(torch.full((1, 2, stack.network.size), 1e-3), [10**6])
    torch.testing.assert_close(
        *(engine.train(rows, data, [0], [7], 2, recipe, past).rows for engine in (stack, loop)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 28)], ids=["cifar-10", "fashion-mnist"])
def test_the_papers_networks_train_as_a_stack(channels: int, side: int) -> None:
    data = holders((6, 6), (channels, side, side))
    assert_same_training(lambda: PaperCNN(channels, side), data, Recipe("adam", 1e-3, 0.0, 0.0, 4))


def test_tokens_embeddings_and_attention_train_as_a_stack() -> None:
    generator = np.random.default_rng(0)
    data = SampleStack([Samples(generator.integers(0, 20, (n, 5)), generator.integers(0, 10, n)) for n in (8, 5)], CPU)
    assert_same_training(Words, data, RECIPES[3])


@given(
    channels=st.integers(1, 3),
    out=st.integers(1, 4),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    bias=st.booleans(),
)
def test_any_convolution_as_slices_equals_torchs_own(
    channels: int,
    out: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    bias: bool,
) -> None:
    height, width = 7, 9
    for size, k, p, d in zip((height, width), kernel, padding, dilation, strict=True):
        assume(size + 2 * p >= d * (k - 1) + 1)
    conv = nn.Conv2d(channels, out, kernel, stride, padding, dilation, bias=bias)
    features = conv(torch.zeros(1, channels, height, width)).numel()

    def make() -> nn.Module:
        own = nn.Conv2d(channels, out, kernel, stride, padding, dilation, bias=bias)
        return nn.Sequential(own, nn.Flatten(), nn.Linear(features, 10))

    data = holders((3, 3), (channels, height, width))
    stack, loop = engines(make, data)
    recipe = Recipe("sgd", 0.05, 0.0, 0.0, 3)
    torch.testing.assert_close(
        train(stack, data, recipe, 1).rows, train(loop, data, recipe, 1).rows, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("counts", [(10,) * 5, (10, 3, 7, 4, 9)], ids=["equal", "unequal"])
@pytest.mark.parametrize("name", ["digits", "dropout", "group norm", "running scale"])
def test_no_bit_depends_on_how_work_is_cut(name: str, counts: tuple[int, ...]) -> None:
    data = holders(counts)
    whole = engines(IMAGE_NETWORKS[name], data)[0]
    per_model = whole.network.bytes_per_sample * 4 + 20 * whole.network.size
    reference = train(whole, data, RECIPES[1])
    models = ModelStack(whole.network.size, CPU)
    rows, slots = models.add(reference.rows), list(range(5))
    scores = whole.evaluate(models, rows, data, slots)
    for chunk in (1, 2, 3, 4):
        cut = StackEngine(whole.network, chunk * per_model)
        assert torch.equal(train(cut, data, RECIPES[1]).rows, reference.rows)
        small = StackEngine(whole.network, chunk * 3 * whole.network.bytes_per_sample)
        np.testing.assert_array_equal(small.evaluate(models, rows, data, slots).loss, scores.loss)


def test_a_models_result_does_not_depend_on_other_models() -> None:
    data = holders((10, 3, 7))
    stack = engines(IMAGE_NETWORKS["dropout"], data)[0]
    rows = first_rows(stack.network, 3)
    together = stack.train(rows, data, [0, 1, 2], [7, 8, 9], 2, RECIPES[0])
    swapped = stack.train(rows[[2, 0]], data, [2, 0], [9, 7], 2, RECIPES[0])
    assert torch.equal(swapped.rows[0], together.rows[2])
    assert torch.equal(swapped.rows[1], together.rows[0])


def test_one_peers_bad_numbers_stay_its_own() -> None:
    data = holders((8, 8, 8))
    stack, loop = engines(IMAGE_NETWORKS["digits"], data)
    clean = train(stack, data, RECIPES[0])
    data.x[1, 3] = torch.nan
    for engine in (stack, loop):
        trained = train(engine, data, RECIPES[0])
        assert np.isnan(trained.loss).tolist() == [False, True, False]
    assert torch.equal(train(stack, data, RECIPES[0]).rows[[0, 2]], clean.rows[[0, 2]])


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 3), st.integers(0, 99))
def test_an_update_visits_each_sample_once_per_epoch(counts: list[int], batch: int, epochs: int, key: int) -> None:
    data = holders(counts, (1,))
    slots = list(range(len(counts)))
    keys = torch.tensor([key + 1000 * s for s in slots])
    visited: list[list[int]] = [[] for _ in slots]
    visits = plan_visits(data, slots, keys, epochs, batch)
    assert visits.index.shape == (len(visits), len(counts), batch)
    for step in range(len(visits)):
        for slot in slots:
            real = visits.weight[step, slot] > 0
            visited[slot] += visits.index[step, slot][real].tolist()
            assert bool(real.any()) == bool(visits.active[step, slot])
            if real.any():
                assert visits.weight[step, slot].sum().item() == pytest.approx(1)
    torch.testing.assert_close(visits.share.sum(0), torch.ones(len(counts)))
    for slot, count in enumerate(counts):
        assert len(visited[slot]) == epochs * count
        for epoch in range(epochs):
            assert sorted(visited[slot][epoch * count : (epoch + 1) * count]) == list(range(count))


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(1, 14), st.integers(0, 2**62))
def test_a_subset_is_drawn_by_its_key_from_the_slots_own_samples(counts: list[int], size: int, key: int) -> None:
    data, slots = holders(counts, (1,)), list(range(len(counts)))
    subset = Subset(size, [key + s for s in slots])
    together = subset.positions(data, slots, slots)
    for slot, count in enumerate(counts):
        drawn = together[slot, : subset.count(count)].tolist()
        assert drawn == sorted(set(drawn))
        assert all(0 <= position < count for position in drawn)
        assert torch.equal(subset.positions(data, slots, [slot])[0], together[slot])
    assert not together[:, size:].any()


def test_subsets_are_drawn_afresh() -> None:
    data = holders((30,), (1,))
    draws = Subset(10, list(range(500))).positions(data, [0] * 500, range(500))
    assert len({tuple(draw) for draw in draws.tolist()}) == 500
    assert torch.bincount(draws.flatten(), minlength=30).min() > 100  # of 167 expected


@pytest.mark.parametrize("size", [1, 4, 7, 99])
def test_stack_and_loop_score_the_same_subsets(size: int) -> None:
    data = holders((10, 3, 7))
    stack, loop = engines(IMAGE_NETWORKS["digits"], data)
    models = ModelStack(stack.network.size, CPU)
    rows = models.add(first_rows(stack.network, 3))
    pairs = [(row, slot, 5 + slot % 2) for row in rows for slot in range(3)]
    chosen, slots, keys = (list(column) for column in zip(*pairs, strict=True))
    subset = Subset(size, keys)
    a = stack.evaluate(models, chosen, data, slots, subset)
    b = loop.evaluate(models, chosen, data, slots, subset)
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(a.accuracy, b.accuracy)
    whole = stack.evaluate(models, chosen, data, slots)
    assert np.array_equal(a.loss, whole.loss) == (size == 99)
    for i in range(len(pairs)):  # alone as together with others
        alone = stack.evaluate(models, chosen[i : i + 1], data, slots[i : i + 1], Subset(size, keys[i : i + 1]))
        assert alone.loss[0] == a.loss[i]
    positions = subset.positions(data, slots, range(9))
    assert torch.equal(positions[0], positions[3])  # the same samples for all models of one comparison


def test_epochs_are_shuffled_anew() -> None:
    data = holders((30,), (1,))
    orders = plan_visits(data, [0], torch.tensor([5]), 3, 30).index[:, 0].tolist()
    assert len({tuple(order) for order in orders}) == 3


def test_dropout_drops_its_share_and_only_in_training() -> None:
    network = StackedNetwork(
        lambda: nn.Sequential(nn.Dropout(0.25), nn.Linear(2000, 10, bias=False)), torch.ones(3, 2000), 10
    )
    seen = []
    network._modules[True][1].register_forward_pre_hook(lambda _m, inputs: seen.append(inputs[0].clone()))  # type: ignore[index]
    tensors = network.tensors(network.new_row(0))
    network.single(tensors, torch.ones(4, 2000), torch.tensor(11), train=True)
    dropped = (seen[0] == 0).float()
    assert dropped.mean().item() == pytest.approx(0.25, abs=0.02)
    assert seen[0].max().item() == pytest.approx(1 / 0.75)
    assert not torch.equal(dropped[0], dropped[1])
    a, b = (network.single(tensors, torch.ones(1, 2000), torch.tensor(k), train=False) for k in (1, 2))
    assert torch.equal(a, b)


@given(st.integers(1, 300), st.integers(1, 300))
def test_recorded_steps_come_in_few_sizes(count: int, everybody: int) -> None:
    size = rounded_up(count, everybody)
    assert count <= size <= max(count * 1.125 + 1, 2)
    assert rounded_up(everybody, everybody) == everybody
    assert len({rounded_up(c, 300) for c in range(1, 301)}) < 55


@pytest.mark.parametrize("stacked", [True, False])
def test_a_step_of_training_and_an_evaluation_by_hand(stacked: bool) -> None:
    """Two classes, no bias, weights of zero, and two samples: (1, 0) of class 0 and (0, 2) of class 1.

    Both classes are equally likely: the loss is ln 2. The gradient is the mean of (p − y) x: (−0.25, 0.5) for class 0
    and its opposite for class 1, so that a step of size 1 gives the weights (0.25, −0.5) and (−0.25, 0.5). The scores
    are then ±0.25 and ±1, the losses ln(1 + e^−0.5) and ln(1 + e^−2), and both samples are right. Adam's first step is
    as long as its rate, whatever the gradient, and none where that is zero.
    """
    own = Samples(np.array([[1, 0], [0, 2]], np.float32), np.array([0, 1]))
    others = Samples(np.array([[5, 5], [6, 6], [7, 7]], np.float32), np.array([0, 0, 0]))
    data = SampleStack([others, own], CPU)
    network = StackedNetwork(lambda: nn.Linear(2, 2, bias=False), data.x[0, :3], 2, stacked)
    engine = StackEngine(network, 1 << 28) if stacked else LoopEngine(network)
    nothing = torch.zeros(1, network.size)
    trained = engine.train(nothing, data, [1], [5], 1, Recipe("sgd", 1.0, 0.0, 0.0, 2))
    weights = torch.tensor([[0.25, -0.5], [-0.25, 0.5]])
    torch.testing.assert_close(network.tensors(trained.rows[0])["weight"], weights)
    assert trained.loss.tolist() == pytest.approx([math.log(2)])
    models = ModelStack(network.size, CPU)
    found = engine.evaluate(models, models.add(trained.rows), data, [1])
    losses = (math.log(1 + math.exp(-0.5)), math.log(1 + math.exp(-2)))
    assert found.loss.tolist() == pytest.approx([sum(losses) / 2])
    assert found.accuracy.tolist() == [1.0]
    (untrained,) = models.add(nothing)
    assert engine.evaluate(models, [untrained], data, [1]).accuracy.tolist() == [0.5]
    adam = engine.train(nothing, data, [1], [5], 1, Recipe("adam", 0.125, 0.0, 0.0, 2))
    torch.testing.assert_close(network.tensors(adam.rows[0])["weight"], weights.sign() * 0.125)
    twice = engine.train(nothing, data, [1], [5], 2, Recipe("sgd", 1.0, 0.0, 0.0, 2))
    by_hand = engine.train(trained.rows, data, [1], [9], 1, Recipe("sgd", 1.0, 0.0, 0.0, 2))
    torch.testing.assert_close(twice.rows, by_hand.rows)
    assert twice.loss.tolist() == pytest.approx([sum(losses) / 2])  # the mean over the last epoch


def test_models_with_many_more_steps_are_computed_apart() -> None:
    """Three models that take 1 step would wait for 9 more: 27 steps of a model, against what a step costs itself."""
    assert _alike([10, 1, 10, 1, 1], overhead=26) == [[0, 2], [1, 3, 4]]
    assert _alike([10, 1, 10, 1, 1], overhead=27) == [[0, 1, 2, 3, 4]]
    assert _alike([7, 7, 7], overhead=0) == [[0, 1, 2]]
    assert _alike([1, 100, 50], overhead=0) == [[1], [2], [0]]


def _planned(
    rounds_up: bool, data: SampleStack, slots: Sequence[int], keys: torch.Tensor, epochs: int, size: int, _: bool
) -> Visits:
    return plan_visits(data, slots, keys, epochs, size, rounds_up)


@pytest.mark.parametrize("subset", [None, 4])
def test_which_models_are_computed_together_changes_no_bit(subset: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One holder has fifty times the samples of another: with shares of a few bytes models are cut by their sizes. On a
    GPU some steps may follow in which nobody has samples left."""
    data = holders((3, 150, 9, 3, 20))
    results = []
    for share, rounds_up in ((1 << 30, False), (1, False), (1, True)):
        monkeypatch.setattr(training, "_SHARE_BYTES", share)
        monkeypatch.setattr(training, "plan_visits", partial(_planned, rounds_up))
        engine, _ = engines(IMAGE_NETWORKS["digits"], data)
        trained = train(engine, data, RECIPES[0])
        models = ModelStack(engine.network.size, CPU)
        rows, slots = models.add(trained.rows), [0, 1, 2, 3, 4]
        found = engine.evaluate(models, rows, data, slots, Subset(subset, slots) if subset else None)
        results.append((trained.rows, trained.loss, found.loss, found.accuracy))
    for one, *others in zip(*results, strict=True):
        assert all(np.array_equal(one, other) for other in others)


def test_recorded_steps_are_kept_as_long_as_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of two models and one of three are kept together in memory for five models, not in memory for four."""
    data = holders((4, 4, 4))
    for models, kept in ((5, [2, 3]), (4, [3])):
        engine = engines(IMAGE_NETWORKS["linear"], data)[0]
        memory = models * engine._bytes_in_work
        engine._records = True
        monkeypatch.setattr(training, "kept_bytes", lambda _, memory=memory: memory)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
        monkeypatch.setattr(StackUpdate, "record", lambda update, pool: None)
        rows = first_rows(engine.network, 3)
        for count in (2, 2, 3):
            engine.train(rows[:count], data, [0, 1, 2][:count], [7, 8, 9][:count], 1, RECIPES[0])
        assert [number for number, *_ in engine._recorded] == kept

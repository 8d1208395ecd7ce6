# SPDX-License-Identifier: Apache-2.0
"""Law 1 on a GPU: the stack on the GPU trains like the loop on the CPU. Skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
import pytest
import torch
from torch import nn

import pens
from pens.data.samples import Samples
from pens.engine.batches import SampleStack
from pens.engine.devices import exact_products, lowering_levels
from pens.engine.distances import Pair, distances
from pens.engine.functional import StackedNetwork
from pens.engine.layout import Layout
from pens.engine.optimizers import Recipe
from pens.engine.stack import ModelStack
from pens.engine.training import LoopEngine, StackEngine, new_engine
from pens.merging.merger import merge_rows
from pens.nets import DigitsCNN, NetFactory, PaperCNN
from pens.settings.schema import Distance, EngineSettings
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.engine.networks import (
    ATTENTION_NETWORKS,
    BATCH_NORM_NETWORKS,
    DROPPING_NETWORKS,
    FROZEN_NETWORKS,
    IMAGE_NETWORKS,
    RECURRENT_NETWORKS,
    TINY_NETWORKS,
    Words,
)
from tests.engine.test_frozen import CUT
from tests.engine.test_phases import assert_only_these_change, part
from tests.engine.test_stack import AVERAGES, BLENDS, GROUPS, MODELS, WEIGHTS
from tests.engine.test_training import RECIPES, assert_same_moments
from tests.merging.test_rules import asked, merging
from tests.tasks.test_engines import CASES, outputs, stack_of, task_in, trained_by

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
NETWORKS: dict[str, tuple[NetFactory, tuple[int, ...]]] = {
    **{name: (factory, (1, 8, 8)) for name, factory in {**IMAGE_NETWORKS, **ATTENTION_NETWORKS}.items()},
    **{f"{name}, normalised": (factory, (1, 8, 8)) for name, factory in BATCH_NORM_NETWORKS.items()},
    **{f"{name}, dropping": (factory, (1, 8, 8)) for name, factory in DROPPING_NETWORKS.items()},
    **{f"{name}, frozen": (factory, (1, 8, 8)) for name, factory in FROZEN_NETWORKS.items()},
    **{f"{name}, recurrent": (factory, (1, 8, 8)) for name, factory in RECURRENT_NETWORKS.items()},
    "cifar-10": (lambda: PaperCNN(3, 32), (3, 32, 32)),
    "fashion-mnist": (lambda: PaperCNN(1, 28), (1, 28, 28)),
}


CUDA, CPU = torch.device("cuda"), torch.device("cpu")


@pytest.fixture(autouse=True)
def _exact() -> Iterator[None]:
    """TF32 would hide small faults behind its rounding."""
    with exact_products():
        yield


def holders(shape: tuple[int, ...], device: torch.device, tokens: int | None = None) -> SampleStack:
    """Ten, three and seven samples of real numbers, or of whole ones below `tokens`."""
    generator = np.random.default_rng(0)

    def some(count: int) -> Samples:
        size = (count, *shape)
        x = generator.integers(0, tokens, size) if tokens else generator.normal(size=size).astype(np.float32)
        return Samples(x, generator.integers(0, 10, count))

    return SampleStack([some(count) for count in (10, 3, 7)], device)


def assert_same_on_both(factory: NetFactory, gpu: SampleStack, cpu: SampleStack, memory: int = 1 << 30) -> StackEngine:
    """The stack on the GPU trains and evaluates like the loop on the CPU. Returns the stack's engine."""
    recipe, keys, slots = Recipe("sgd", 1e-2, 0.9, 1e-3, 4), [7, 8, 9], [0, 1, 2]
    levels = lowering_levels(CUDA, compiled=False)
    stack = StackEngine(StackedNetwork(factory, gpu.x[0, :3], 10, True, levels, "tf32x3"), memory)
    loop = LoopEngine(StackedNetwork(factory, cpu.x[0, :3], 10, stacked=False))
    rows = torch.stack([loop.network.new_row(s) for s in slots])
    for _ in range(2):  # recorded, then replayed
        on_gpu = stack.train(rows.cuda(), gpu, slots, keys, 2, recipe)
    assert stack._records, "the step could not be recorded"
    on_cpu = loop.train(rows, cpu, slots, keys, 2, recipe)
    torch.testing.assert_close(on_gpu.rows.cpu(), on_cpu.rows, rtol=1e-2, atol=2e-3)
    np.testing.assert_allclose(on_gpu.loss, on_cpu.loss, rtol=1e-2, atol=2e-3)
    models = ModelStack(stack.network.size, CUDA)
    a = stack.evaluate(models, models.add(on_gpu.rows), gpu, slots)
    models = ModelStack(stack.network.size, CPU)
    b = loop.evaluate(models, models.add(on_cpu.rows), cpu, slots)
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-2, atol=2e-3)
    return stack


@pytest.mark.parametrize("name", list(NETWORKS))
def test_the_gpu_trains_a_stack_like_the_cpu_its_models_one_by_one(name: str) -> None:
    factory, shape = NETWORKS[name]
    assert_same_on_both(factory, holders(shape, CUDA), holders(shape, CPU))


def test_the_gpu_trains_on_tokens_as_the_cpu_does() -> None:
    assert_same_on_both(Words, holders((5,), CUDA, 20), holders((5,), CPU, 20))


ALONE = {
    "batch norm": BATCH_NORM_NETWORKS["dropout, batch norm"],
    "cumulative average": BATCH_NORM_NETWORKS["cumulative average"],
    "lstm": RECURRENT_NETWORKS["lstm, both ways"],
    "gru": RECURRENT_NETWORKS["gru"],
    "lstm cell": RECURRENT_NETWORKS["lstm cell"],
    "encoder layer": ATTENTION_NETWORKS["encoder layer"],
    "encoder layer, dropping": DROPPING_NETWORKS["encoder layer"],
    "attention function": ATTENTION_NETWORKS["attention function"],
    "backbone and head": FROZEN_NETWORKS["backbone and head"],
    "frozen gru": FROZEN_NETWORKS["adapter"],
    "tensors anywhere in a row": lambda: nn.Sequential(
        nn.Conv2d(1, 5, 3, bias=False),
        nn.BatchNorm2d(5),
        nn.Conv2d(5, 64, 3),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1024, 10),
    ),
}


@pytest.mark.parametrize("name", list(ALONE))
def test_a_loop_on_the_gpu_trains_as_one_on_the_cpu(name: str) -> None:
    """By PyTorch's own layers, without a warning."""
    recipe, found = Recipe("sgd", 1e-2, 0.9, 1e-3, 4), []
    for device in (CUDA, CPU):
        data = holders((1, 8, 8), device)
        loop = LoopEngine(StackedNetwork(ALONE[name], data.x[0, :3], 10, stacked=False))
        rows = torch.stack([loop.network.new_row(s) for s in range(3)]).to(device)
        trained = loop.train(rows, data, [0, 1, 2], [7, 8, 9], 2, recipe)
        models = ModelStack(loop.network.size, device)
        found.append((trained.rows.cpu(), loop.evaluate(models, models.add(trained.rows), data, [0, 1, 2]).loss))
    (gpu, gpu_loss), (cpu, cpu_loss) = found
    torch.testing.assert_close(gpu, cpu, rtol=1e-2, atol=2e-3)
    np.testing.assert_allclose(gpu_loss, cpu_loss, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize(
    "factory",
    [
        BATCH_NORM_NETWORKS["residual blocks"],
        RECURRENT_NETWORKS["lstm, both ways"],
        DROPPING_NETWORKS["encoder layer"],
        FROZEN_NETWORKS["adapter"],
    ],
    ids=["batch norm", "lstm", "encoder layer", "frozen"],
)
def test_each_precision_trains_a_stack_like_a_loop(
    factory: NetFactory, precision: Literal["fp32", "tf32", "bf16"]
) -> None:
    """As users get their engines; rounding is that of the precision."""
    data, slots = holders((1, 8, 8), CUDA), [0, 1, 2]
    stack, loop = (
        new_engine(factory, data.x[0, :3], 10, EngineSettings(backend=backend, precision=precision), 1.0)
        for backend in ("stack", "loop")
    )
    rows = torch.stack([stack.network.new_row(s) for s in slots]).cuda()
    a, b = (engine.train(rows, data, slots, [7, 8, 9], 1, Recipe("sgd", 1e-2, 0, 0, 4)) for engine in (stack, loop))
    moved = (b.rows - rows).norm()
    assert moved > 0
    assert (a.rows - b.rows).norm() < moved * {"fp32": 0.01, "tf32": 0.1, "bf16": 0.2}[precision]
    np.testing.assert_allclose(a.loss, b.loss, rtol={"fp32": 1e-3, "tf32": 0.02, "bf16": 0.05}[precision])


@pytest.mark.parametrize("trains", ["head", "body"])
@pytest.mark.parametrize("recipe", [RECIPES[1], RECIPES[3]], ids=["adam", "sgd"])
@pytest.mark.parametrize("name", ["digits", "cifar-10", "batch norm, normalised", "lstm, recurrent", "dropout"])
def test_a_part_is_trained_on_the_gpu_and_nothing_else_changes(name: str, recipe: Recipe, trains: str) -> None:
    """By the fused kernels, in a recorded step."""
    factory, shape = NETWORKS[name]
    gpu, cpu, keys = holders(shape, CUDA), holders(shape, CPU), [7, 8, 9]
    levels = lowering_levels(CUDA, compiled=False)
    stack = StackEngine(StackedNetwork(factory, gpu.x[0, :3], 10, True, levels, "tf32x3"), 1 << 30)
    loop = LoopEngine(StackedNetwork(factory, cpu.x[0, :3], 10, stacked=False))
    rows, only = torch.stack([loop.network.new_row(s) for s in range(3)]), part(loop, trains)
    for _ in range(2):  # recorded, then replayed
        on_gpu = stack.train(rows.cuda(), gpu, [0, 1, 2], keys, 2, recipe, None, only)
    assert stack._records, "the step could not be recorded"
    assert_only_these_change(stack.network, rows.cuda(), on_gpu, set(only))
    on_cpu = loop.train(rows, cpu, [0, 1, 2], keys, 2, recipe, None, only)
    if recipe.optimizer == "sgd":  # Adam makes steps of one size out of rounding where a gradient is next to nothing
        torch.testing.assert_close(on_gpu.rows.cpu(), on_cpu.rows, rtol=1e-2, atol=2e-3)
    np.testing.assert_allclose(on_gpu.loss, on_cpu.loss, rtol=1e-2, atol=2e-3)


@pytest.mark.parametrize("name", list(CUT))
@pytest.mark.parametrize("exact", [True, False])
def test_frozen_layers_are_computed_once_per_sample_on_the_gpu(name: str, exact: bool) -> None:
    """In a cut that is found in any precision; and with the same results where memory is too small for features."""
    factory, gpu, cpu = FROZEN_NETWORKS[name], holders((1, 8, 8), CUDA), holders((1, 8, 8), CPU)
    stack = assert_same_on_both(factory, gpu, cpu, (1 << 30) if exact else 1)
    assert (stack._features[gpu] is not None) == exact
    engine = new_engine(factory, gpu.x[0, :3], 10, EngineSettings(precision="fp32" if exact else "tf32"), 1.0)
    assert engine.network.cut
    assert engine.network.cut.name == CUT[name]


@pytest.mark.parametrize("name", CASES)
def test_the_gpu_trains_for_each_task_as_the_cpu_does(name: str) -> None:
    case, task = CASES[name], task_in(CASES[name])
    gpu, cpu = (stack_of(case, device) for device in (CUDA, CPU))
    levels = lowering_levels(CUDA, compiled=False)
    network = StackedNetwork(case.factory, gpu.x[0, :3], outputs(case), True, levels, "tf32x3")
    stack = StackEngine(network, 1 << 30, task=task)
    loop = LoopEngine(StackedNetwork(case.factory, cpu.x[0, :3], outputs(case), stacked=False), task)
    on_gpu, on_cpu = trained_by(stack, gpu), trained_by(loop, cpu)
    assert stack._records
    torch.testing.assert_close(on_gpu.rows.cpu(), on_cpu.rows, rtol=1e-2, atol=2e-3)
    np.testing.assert_allclose(on_gpu.loss, on_cpu.loss, rtol=1e-2, atol=2e-3)
    found = []
    for engine, data in ((stack, gpu), (loop, cpu)):
        models = ModelStack(engine.network.size, data.device)
        found.append(engine.evaluate(models, models.add(on_cpu.rows.to(data.device)), data, [0, 1, 2], further=True))
    a, b = found
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(a.score, b.score, rtol=1e-3, atol=1e-4)
    assert list(a.further) == list(b.further)
    for metric, values in a.further.items():
        np.testing.assert_allclose(values, b.further[metric], rtol=1e-3, atol=1e-4)


def test_the_gpu_averages_what_a_reader_can_average() -> None:
    """Groups of different sizes, and more of them than are averaged at once."""
    stack = ModelStack(2, torch.device("cuda"))
    assert stack.add(MODELS.cuda()) == [0, 1, 2, 3]
    mixed = stack.mix(GROUPS * 300)
    assert mixed.shape == (1500, 2)
    torch.testing.assert_close(mixed.cpu(), torch.tensor(AVERAGES * 300))
    blended = stack.blend(GROUPS * 300, WEIGHTS * 300)
    torch.testing.assert_close(blended.cpu(), torch.tensor(BLENDS * 300))


@pytest.mark.parametrize("rule", ["mean", "weighted", "median", "trimmed", "clipped"])
def test_the_gpu_merges_as_the_cpu_does(rule: str) -> None:
    """Merges of different sizes, whole and in chunks; 70 models, which the library sorts, among them."""
    models, how = torch.randn(80, 33, generator=torch.Generator().manual_seed(0)), merging(rule)
    layout = Layout.stored({"w": torch.Size([33])}, {})
    found = []
    for device in ("cpu", "cuda"):
        stack = ModelStack(33, torch.device(device))
        rows = stack.add(models.to(device))
        merges = asked(rows, [1, 4, 9, 9, 9, 70], True, 0)
        found += [merge_rows(stack, layout, how, merges, at_once).cpu() for at_once in (None, 50)]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_optimizers_remember_on_the_gpu_as_one_by_one(optimizer: Literal["adam", "sgd"]) -> None:
    data = holders((1, 8, 8), CUDA)
    levels = lowering_levels(torch.device("cuda"), compiled=False)
    stack = StackEngine(StackedNetwork(DigitsCNN, data.x[0, :3], 10, True, levels, "tf32x3"), 1 << 30)
    loop = LoopEngine(StackedNetwork(DigitsCNN, data.x[0, :3], 10, stacked=False))
    assert_same_moments(stack, loop, data, Recipe(optimizer, 1e-3, 0.9, 1e-3, 4))


def assert_same_runs(settings: dict[str, object], model: NetFactory, methods: str) -> None:
    gpu, cpu = (
        pens.run(
            {**TINY, **settings, "precision": "fp32"}, model=model, data=tiny_dataset(), methods=methods, device=device
        )
        for device in ("cuda", "cpu")
    )
    for a, b in zip(gpu.runs, cpu.runs, strict=True):
        assert a.neighbours == b.neighbours
        for name in ("receiver", "sender", "merged", "selected", "sampled"):
            np.testing.assert_array_equal(getattr(a.pairs, name), getattr(b.pairs, name))


def test_a_run_on_the_gpu_decides_like_one_on_the_cpu() -> None:
    assert_same_runs({}, TinyNet, "pens,random")


@pytest.mark.parametrize("batch_norm", ["local", "merged"])
def test_runs_with_batch_norm_on_the_gpu_decide_like_those_on_the_cpu(batch_norm: str) -> None:
    assert_same_runs({"batch_norm": batch_norm}, TINY_NETWORKS["batch norm"], "random")


@pytest.mark.parametrize("name", ["gru", "backbone and head", "frozen behind an adapter"])
def test_runs_of_other_networks_on_the_gpu_decide_like_those_on_the_cpu(name: str) -> None:
    assert_same_runs({}, TINY_NETWORKS[name], "random")


@pytest.mark.parametrize("by", get_args(Distance))
def test_distances_on_a_gpu_are_those_on_a_cpu(by: Distance, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of a thousand numbers, seven pairs at once."""
    monkeypatch.setattr("pens.engine.distances._BLOCK", {"cpu": 1 << 16, "cuda": 1000})
    monkeypatch.setattr("pens.engine.distances._NUMBERS_AT_ONCE", {"cpu": 1, "cuda": 7000})
    rows = torch.randn((30, 70_001), generator=torch.Generator().manual_seed(0))
    found = []
    for device in (CPU, CUDA):
        models = ModelStack(70_001, device)
        places = models.add(rows.to(device))
        pairs = [Pair(own, other, places[-1]) for own, other in zip(places[:20], places[5:25], strict=True)]
        found.append(distances(models, pairs, [slice(3, 9000), slice(9500, 70_001)], by))
    assert found[1] == pytest.approx(found[0], rel=1e-10)

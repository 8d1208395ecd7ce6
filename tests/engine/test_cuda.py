# SPDX-License-Identifier: Apache-2.0
"""Law 1 on a GPU: the stack on the GPU trains like the loop on the CPU. Skipped where there is none."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

import pens
from pens.data.samples import Samples
from pens.engine.batches import SampleStack
from pens.engine.devices import lowering_levels
from pens.engine.functional import StackedNetwork
from pens.engine.layout import Layout
from pens.engine.optimizers import Recipe
from pens.engine.stack import ModelStack
from pens.engine.training import LoopEngine, StackEngine
from pens.merging.merger import merge_rows
from pens.nets import DigitsCNN, NetFactory, PaperCNN
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.engine.networks import (
    ATTENTION_NETWORKS,
    BATCH_NORM_NETWORKS,
    DROPPING_NETWORKS,
    FROZEN_NETWORKS,
    IMAGE_NETWORKS,
    RECURRENT_NETWORKS,
)
from tests.engine.test_stack import AVERAGES, BLENDS, GROUPS, MODELS, WEIGHTS
from tests.engine.test_training import assert_same_moments
from tests.merging.test_rules import asked, merging

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


def holders(shape: tuple[int, ...], device: str) -> SampleStack:
    generator = np.random.default_rng(0)
    return SampleStack(
        [
            Samples(generator.normal(size=(n, *shape)).astype(np.float32), generator.integers(0, 10, n))
            for n in (10, 3, 7)
        ],
        torch.device(device),
    )


@pytest.mark.parametrize("name", list(NETWORKS))
def test_the_gpu_trains_a_stack_like_the_cpu_its_models_one_by_one(name: str) -> None:
    factory, shape = NETWORKS[name]
    recipe, keys, slots = Recipe("sgd", 1e-2, 0.9, 1e-3, 4), [7, 8, 9], [0, 1, 2]
    gpu, cpu = holders(shape, "cuda"), holders(shape, "cpu")
    levels = lowering_levels(torch.device("cuda"), compiled=False)
    stack = StackEngine(StackedNetwork(factory, gpu.x[0, :3], 10, True, levels, "tf32x3"), 1 << 30)
    loop = LoopEngine(StackedNetwork(factory, cpu.x[0, :3], 10, stacked=False))
    rows = torch.stack([loop.network.new_row(s) for s in slots])
    for _ in range(2):  # recorded, then replayed
        on_gpu = stack.train(rows.cuda(), gpu, slots, keys, 2, recipe)
    on_cpu = loop.train(rows, cpu, slots, keys, 2, recipe)
    torch.testing.assert_close(on_gpu.rows.cpu(), on_cpu.rows, rtol=1e-2, atol=2e-3)
    np.testing.assert_allclose(on_gpu.loss, on_cpu.loss, rtol=1e-2, atol=2e-3)
    models = ModelStack(stack.network.size, torch.device("cuda"))
    a = stack.evaluate(models, models.add(on_gpu.rows), gpu, slots)
    models = ModelStack(stack.network.size, torch.device("cpu"))
    b = loop.evaluate(models, models.add(on_cpu.rows), cpu, slots)
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-2, atol=2e-3)


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
    data = holders((1, 8, 8), "cuda")
    levels = lowering_levels(torch.device("cuda"), compiled=False)
    stack = StackEngine(StackedNetwork(DigitsCNN, data.x[0, :3], 10, True, levels, "tf32x3"), 1 << 30)
    loop = LoopEngine(StackedNetwork(DigitsCNN, data.x[0, :3], 10, stacked=False))
    assert_same_moments(stack, loop, data, Recipe(optimizer, 1e-3, 0.9, 1e-3, 4))


def test_a_run_on_the_gpu_decides_like_one_on_the_cpu() -> None:
    gpu, cpu = (
        pens.run(
            {**TINY, "precision": "fp32"}, model=TinyNet, data=tiny_dataset(), methods="pens,random", device=device
        )
        for device in ("cuda", "cpu")
    )
    for a, b in zip(gpu.runs, cpu.runs, strict=True):
        assert a.neighbours == b.neighbours
        for name in ("receiver", "sender", "merged", "selected", "sampled"):
            np.testing.assert_array_equal(getattr(a.pairs, name), getattr(b.pairs, name))

# SPDX-License-Identifier: Apache-2.0
"""Cores share models, never operations; and no bit depends on how many there are, in the loop either."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pens
from pens.engine import cores, training
from pens.engine.cores import Cores
from pens.engine.functional import StackedNetwork
from pens.engine.stack import ModelStack
from pens.engine.training import LoopEngine, StackEngine
from pens.nets import NetFactory
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.engine.networks import IMAGE_NETWORKS
from tests.engine.test_training import CPU, RECIPES, engines, holders, train


@pytest.fixture(autouse=True)
def restored_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class OwnDropout(nn.Module):
    """Draws from PyTorch's generator: cannot be stacked."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x.flatten(1)).relu()
        if self.training:
            hidden = hidden * (torch.rand_like(hidden) > 0.3)
        logits: Tensor = self.out(hidden)
        return logits


class Keeps(TinyNet):
    """Keeps what it computed, as code that looks into networks does."""

    def forward(self, x: Tensor) -> Tensor:
        self.kept = self.conv(x).relu()
        logits: Tensor = self.out(self.kept.flatten(1))
        return logits


LOOPED: dict[str, NetFactory] = {
    **{name: IMAGE_NETWORKS[name] for name in ("digits", "dropout", "running scale")},
    "own dropout": OwnDropout,
}


@pytest.mark.parametrize("share_bytes", [1, 1 << 40], ids=["shared", "not shared"])
@pytest.mark.parametrize("name", list(LOOPED))
def test_no_bit_of_the_loop_depends_on_cores(name: str, share_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_SHARE_BYTES", share_bytes)
    data, slots = holders((10, 3, 7, 4, 9)), list(range(5))
    network = StackedNetwork(LOOPED[name], data.x[0, :3], 10, stacked=False)
    models, results = ModelStack(network.size, CPU), []
    generator = torch.get_rng_state()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        loop = LoopEngine(network)
        trained = train(loop, data, RECIPES[1])
        evaluated = loop.evaluate(models, models.add(trained.rows), data, slots)
        assert torch.get_num_threads() == count
        results.append((trained.rows.numpy(), trained.loss, evaluated.loss, evaluated.accuracy))
    for some in results[1:]:
        for one, other in zip(results[0], some, strict=True):
            np.testing.assert_array_equal(one, other)
    assert torch.equal(generator, torch.get_rng_state())


def test_networks_know_whether_they_draw_random_numbers() -> None:
    images = holders((3,)).x[0]
    drawing = StackedNetwork(OwnDropout, images, 10, stacked=False)
    assert drawing.draws == {True: True, False: False}
    assert StackedNetwork(IMAGE_NETWORKS["dropout"], images, 10).draws == {True: False, False: False}


def seldom() -> nn.Module:
    """Drops so little that two passes usually agree."""

    class Seldom(OwnDropout):
        def forward(self, x: Tensor) -> Tensor:
            hidden = self.first(x.flatten(1))
            logits: Tensor = self.out(hidden * (torch.rand_like(hidden) > 1e-6) if self.training else hidden)
            return logits

    return Seldom()


def test_random_numbers_count_even_where_they_change_nothing() -> None:
    assert StackedNetwork(seldom, holders((3,)).x[0], 10, stacked=False).draws[True]


@pytest.mark.parametrize("backend", ["stack", "loop"])
@pytest.mark.parametrize("share_bytes", [1, 1 << 40], ids=["shared", "not shared"])
def test_operations_are_computed_by_one_thread(backend: str, share_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's threads wait for each other after each operation: where others keep the cores busy, for very long."""
    seen: set[int] = set()

    class Counting(TinyNet):
        def forward(self, x: Tensor) -> Tensor:
            seen.add(torch.get_num_threads())
            return super().forward(x)

    merged = ModelStack.mix

    def mix(models: ModelStack, groups: Sequence[Sequence[int]]) -> Tensor:
        seen.add(torch.get_num_threads())
        return merged(models, groups)

    monkeypatch.setattr(ModelStack, "mix", mix)
    monkeypatch.setattr(training, "_SHARE_BYTES", share_bytes)
    torch.set_num_threads(3)
    pens.run(TINY, model=Counting, data=tiny_dataset(), methods="pens", overrides={"backend": backend}, device="cpu")
    assert seen == {1}
    assert torch.get_num_threads() == 3


def test_a_network_may_keep_what_it_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_SHARE_BYTES", 1)
    results = []
    for count in (1, 3):
        torch.set_num_threads(count)
        for backend in ("stack", "loop"):
            data = tiny_dataset()
            run = pens.run(TINY, model=Keeps, data=data, methods="random", overrides={"backend": backend}, device="cpu")
            results.append(run.runs[0].accuracy.tolist())
    assert results[:2] == results[2:]


@pytest.mark.parametrize(("quota", "count"), [(None, 6), (1.5, 2), (0.3, 1), (48.0, 6)])
def test_a_quota_bounds_the_threads(quota: float | None, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    torch.set_num_threads(6)
    data = holders((4,))
    assert Cores(StackedNetwork(IMAGE_NETWORKS["linear"], data.x[0, :3], 10)).count == count


def test_a_stack_on_a_quota_of_one_core_computes_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "cpu_quota", lambda: 1.0)
    monkeypatch.setattr(training, "_SHARE_BYTES", 1)
    torch.set_num_threads(4)
    data = holders((4, 4, 4))
    stack: StackEngine = engines(IMAGE_NETWORKS["digits"], data)[0]
    train(stack, data, RECIPES[0])
    assert stack._cores._threads is None

# SPDX-License-Identifier: Apache-2.0
"""Law 1 for the fused kernels; where there is no GPU, in Triton's interpreter, which runs them on the CPU."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import nn
from torch.nn import functional as F

pytest.importorskip("triton")

from pens.engine import optimizers, update
from pens.engine.batches import Batch, plan_visits
from pens.engine.functional import StackedNetwork
from pens.engine.fused import FusedConv2d, _Stacked, fuse
from pens.engine.fused_adam import adam_step
from pens.engine.fused_linear import _Stacked as linear_stack
from pens.engine.fused_step import fetch, measure
from pens.engine.gradient_buffers import Wanted
from pens.engine.optimizers import Recipe, corrections
from pens.engine.training import LoopEngine, StackEngine
from pens.nets import NetFactory
from tests.engine.networks import IMAGE_NETWORKS
from tests.engine.test_training import assert_same_moments, first_rows, holders

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize(
    ("batch", "channels", "side", "out", "kernel", "pad"),
    [
        (2, 3, 8, 32, 3, 0),
        (3, 16, 7, 16, 3, 1),
        (1, 5, 9, 32, 3, 2),
        (2, 4, 6, 16, 1, 0),
        (2, 2, 9, 64, 5, 1),
        (1, 16, 12, 16, 4, 2),
    ],
)
def test_the_kernels_are_convolution_relu_and_pooling(
    batch: int, channels: int, side: int, out: int, kernel: int, pad: int
) -> None:
    generator = torch.Generator().manual_seed(0)

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(DEVICE).requires_grad_()

    x, w, b = leaf(2, batch, channels, side, side), leaf(2, out, channels, kernel, kernel), leaf(2, out)
    rows = w.permute(0, 3, 4, 2, 1).reshape(2, -1, out)
    fused = _Stacked.apply(x, rows, b, kernel, pad, "tf32x3", torch.float32, Wanted()).permute(0, 1, 4, 2, 3)  # type: ignore[no-untyped-call]
    exact = [F.conv2d(x[k].double(), w[k].double(), b[k].double(), padding=pad) for k in range(2)]
    plain = torch.stack([F.max_pool2d(out_.relu(), 2).float() for out_ in exact])
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-4)
    upstream = torch.randn(plain.shape, generator=generator).to(DEVICE)
    for mine, theirs in zip(
        torch.autograd.grad(fused, (x, w, b), upstream), torch.autograd.grad(plain, (x, w, b), upstream), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


def test_activations_between_fused_blocks_are_bf16_if_that_is_the_precision() -> None:
    sequence = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    fuse(sequence, "bf16")
    assert [m.dtype for m in sequence if isinstance(m, FusedConv2d)] == [torch.bfloat16, torch.float32]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton's interpreter multiplies no bf16")
def test_a_step_in_bf16_is_off_by_the_rounding_of_its_products() -> None:
    data = holders((6, 6), (1, 8, 8), device=DEVICE)
    example = data.x[0, :3]
    network = StackedNetwork(small_cnn, example, 10, levels=("fused",), precision="bf16")
    stack, loop = StackEngine(network, 1 << 30), LoopEngine(StackedNetwork(small_cnn, example, 10, stacked=False))
    rows, recipe = first_rows(network, 2).to(DEVICE), Recipe("sgd", 0.1, 0.0, 0.0, 6)
    half, full = (engine.train(rows, data, [0, 1], [7, 8], 1, recipe).rows - rows for engine in (stack, loop))
    assert 0 < (half - full).norm() < 0.03 * full.norm()


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3, bias=False), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def not_quite() -> nn.Module:
    """Blocks that the kernels do not do: other pooling, other activation, odd channels."""
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 16, 3, padding=1), nn.Tanh(),
        nn.MaxPool2d(2, stride=1), nn.Flatten(), nn.Linear(144, 10),
    )  # fmt: skip


class Twice(nn.Module):
    """A linear layer that runs twice, and one whose matrix is another's, too."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.tied = nn.Linear(64, 64, bias=False)
        self.tied.weight = self.inner[0].weight  # type: ignore[assignment]
        self.last = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.tied(self.inner(self.inner(x.flatten(1)))))
        return out


@pytest.mark.parametrize(("factory", "blocks"), [(small_cnn, 2), (not_quite, 0), (Twice, 0)])
def test_a_stack_with_fused_blocks_trains_like_its_models_one_by_one(factory: NetFactory, blocks: int) -> None:
    data = holders((6, 3), (1, 8, 8), device=DEVICE)
    example = data.x[0, :3]
    network = StackedNetwork(factory, example, 10, levels=("fused",), precision="tf32x3")
    assert sum(isinstance(m, FusedConv2d) for m in network._modules[True].modules()) == blocks
    stack, loop = StackEngine(network, 1 << 30), LoopEngine(StackedNetwork(factory, example, 10, stacked=False))
    rows, recipe = first_rows(network, 2).to(DEVICE), Recipe("sgd", 0.05, 0.9, 0.0, 4)
    together = stack.train(rows, data, [0, 1], [7, 8], 2, recipe)
    one_by_one = loop.train(rows, data, [0, 1], [7, 8], 2, recipe)
    torch.testing.assert_close(together.rows, one_by_one.rows, rtol=1e-3, atol=2e-4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU runs them anyway: tests/engine/test_cuda.py")
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("name", list(IMAGE_NETWORKS))
def test_with_all_kernels_a_stack_trains_like_its_models_one_by_one(
    name: str, optimizer: Literal["adam", "sgd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (update, optimizers):
        monkeypatch.setattr(module, "has_kernels", lambda _: True)
    data, factory = holders((5, 3), (1, 8, 8)), IMAGE_NETWORKS[name]
    network = StackedNetwork(factory, data.x[0, :3], 10, levels=("fused",), precision="tf32x3")
    loop = LoopEngine(StackedNetwork(factory, data.x[0, :3], 10, stacked=False))
    rows, recipe = first_rows(network, 2), Recipe(optimizer, 1e-3, 0.9, 1e-3, 4)
    together = StackEngine(network, 1 << 30).train(rows, data, [0, 1], [7, 8], 1, recipe)
    one_by_one = loop.train(rows, data, [0, 1], [7, 8], 1, recipe)
    torch.testing.assert_close(together.rows, one_by_one.rows, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(together.loss, one_by_one.loss, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_with_all_kernels_optimizers_remember_as_one_by_one(
    optimizer: Literal["adam", "sgd"], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (update, optimizers):
        monkeypatch.setattr(module, "has_kernels", lambda _: True)
    data = holders((5, 3), (1, 8, 8), device=DEVICE)
    network = StackedNetwork(small_cnn, data.x[0, :3], 10, levels=("fused",), precision="tf32x3")
    loop = LoopEngine(StackedNetwork(small_cnn, data.x[0, :3], 10, stacked=False))
    recipe = Recipe(optimizer, 1e-3, 0.9, 1e-3, 4)
    assert_same_moments(StackEngine(network, 1 << 30), loop, data, recipe)


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_the_fused_step_is_adams(decay: float) -> None:
    """Three steps of two rows that lie apart, the second of which sits one step out."""
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(2, 1500, generator=generator).to(DEVICE)
    rows, expected = wide[:, :1300], [wide[k, :1300].clone().requires_grad_() for k in range(2)]
    plain = [torch.optim.Adam([row], lr=0.01, weight_decay=decay) for row in expected]
    mean, square = torch.zeros(2, 1300, device=DEVICE), torch.zeros(2, 1300, device=DEVICE)
    table, taken = corrections(0.01, DEVICE), [0, 0]
    for step in range(3):
        gradients = torch.randn(2, 1300, generator=generator).to(DEVICE)
        active = torch.tensor([True, step != 1], device=DEVICE)
        for k in range(2):
            if active[k]:
                taken[k] += 1
                expected[k].grad = gradients[k]
                plain[k].step()
        count = torch.tensor(taken, device=DEVICE)
        adam_step(rows, gradients, mean, square, count, table, active, decay, (0.9, 0.999), 1e-8)
    torch.testing.assert_close(rows, torch.stack(expected).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "relu"),
    [(8, 256, 64, True), (3, 7, 10, False), (20, 70, 130, True), (1, 1, 1, False)],
)
def test_the_kernels_are_a_linear_layer_and_relu(rows: int, inputs: int, outputs: int, relu: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, rows, inputs), (2, outputs, inputs), (2, outputs), (2, rows, outputs))
    x, w, b, upstream = (torch.randn(*shape, generator=generator).to(DEVICE) for shape in shapes)
    leaves = [t.requires_grad_() for t in (x, w, b)]
    fused = linear_stack.apply(x, w, b, relu, "tf32x3", Wanted())  # type: ignore[no-untyped-call]
    plain = torch.baddbmm(b.double()[:, None], x.double(), w.double().mT)
    plain = plain.relu() if relu else plain
    torch.testing.assert_close(fused.double(), plain, rtol=1e-4, atol=1e-4)
    mine, theirs = (torch.autograd.grad(y, leaves, upstream.to(y.dtype)) for y in (fused, plain))
    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


def test_gradients_are_written_where_they_are_wanted() -> None:
    buffer = torch.zeros(2, 100, device=DEVICE)
    x, w, b = (torch.ones(*shape, device=DEVICE).requires_grad_() for shape in ((2, 3, 4), (2, 5, 4), (2, 5)))
    wanted = Wanted(buffer[:, 32:52], buffer[:, 64:69])
    out = linear_stack.apply(x, w, b, False, "tf32x3", wanted)  # type: ignore[no-untyped-call]
    gradients = torch.autograd.grad(out, (w, b), torch.ones_like(out))
    assert gradients[0].data_ptr() == buffer[:, 32:].data_ptr()
    assert gradients[1].data_ptr() == buffer[:, 64:].data_ptr()
    assert buffer.sum().item() == 2 * (5 * 4 * 3 + 5 * 3)


@pytest.mark.parametrize(("rows", "classes"), [(8, 10), (1, 2), (5, 40)])
def test_the_loss_and_its_slopes_are_cross_entropys(rows: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = (10 * torch.randn(3, rows, classes, generator=generator)).to(DEVICE).requires_grad_()
    y = torch.randint(0, classes, (3, rows), generator=generator).to(DEVICE)
    weight, share = torch.rand(3, rows, generator=generator).to(DEVICE), torch.tensor([0.0, 0.5, 1.0], device=DEVICE)
    expected = (F.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="none").view(3, rows) * weight).sum(1)
    batch = Batch(x=scores, y=y, weight=weight, keys=y, active=y, taken=y, share=share)
    health, loss, at = torch.ones(3, device=DEVICE), torch.ones(3, device=DEVICE), torch.tensor([4], device=DEVICE)
    slopes = measure(scores.detach(), batch, health, loss, at)
    torch.testing.assert_close(slopes, torch.autograd.grad(expected.sum(), scores)[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(health, 1 + expected.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss, 1 + expected.detach() * share, rtol=1e-4, atol=1e-5)
    assert at.item() == 5


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 30, 30), (5,)])
def test_a_batch_is_fetched_as_the_tables_say(shape: tuple[int, ...]) -> None:
    data = holders((7, 4, 6), shape, device=DEVICE)
    slots = torch.tensor([[2], [0]], device=DEVICE)
    visits = plan_visits(data, [2, 0], torch.tensor([5, 6], device=DEVICE), 2, 3)
    for step in (0, len(visits) - 1):
        at = torch.tensor([step], device=DEVICE)
        fetched, expected = fetch(at, slots, visits, data), visits.at(at)
        assert torch.equal(fetched.x, data.x[slots, expected.index])
        assert torch.equal(fetched.y, data.y[slots, expected.index])
        for name in ("weight", "keys", "active", "taken", "share"):
            assert torch.equal(getattr(fetched, name), getattr(expected, name))

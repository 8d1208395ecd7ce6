# SPDX-License-Identifier: Apache-2.0
"""Networks with attention train as a stack like alone, and never by a fused kernel that vmap cannot serve."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.backends import cuda
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from pens.engine.attention import _SWITCHES, plain_attention
from pens.engine.calls import Call
from pens.engine.functional import StackedNetwork
from pens.engine.keyed import KeyedDropoutMode
from pens.engine.stack import ModelStack
from pens.engine.training import StackEngine
from tests.engine.networks import ATTENTION_NETWORKS, DROPPING_NETWORKS
from tests.engine.test_training import CPU, RECIPES, assert_same_training, engines, first_rows, holders, train

FUSED = (
    "flash_attention",
    "efficient_attention",
    "cudnn_attention",
    "_native_multi_head",
    "_transformer_encoder_layer",
)


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operators that reach a device's kernels."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Iterable[Any], args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))

    @property
    def fused(self) -> list[str]:
        return sorted(name for name in self.names if any(word in name for word in FUSED))


@pytest.mark.parametrize("name", list(ATTENTION_NETWORKS))
def test_attention_trains_as_a_stack_without_a_warning(name: str) -> None:
    assert_same_training(ATTENTION_NETWORKS[name], holders((10, 3, 7)), RECIPES[3])  # warnings are errors here


@pytest.mark.parametrize("name", list(ATTENTION_NETWORKS))
def test_no_fused_kernel_runs_in_a_stack(name: str) -> None:
    data = holders((5, 5))
    stack, loop = engines(ATTENTION_NETWORKS[name], data)
    models = ModelStack(stack.network.size, CPU)
    for engine, fuses in ((loop, True), (stack, False)):
        with Operators() as trained:
            rows = models.add(train(engine, data, RECIPES[0], epochs=1).rows)
        with Operators() as evaluated:
            engine.evaluate(models, rows, data, [0, 1])
        assert [bool(trained.fused), bool(evaluated.fused)] == [fuses, fuses]
        assert any("softmax" in operator for operator in trained.names) or fuses


def switches() -> tuple[bool, ...]:
    """Plain, three fused kernels, fused layers."""
    return tuple(read() for read, _, _ in _SWITCHES)


def test_pytorchs_settings_are_put_back_when_the_last_thread_leaves() -> None:
    cuda.enable_mem_efficient_sdp(False)  # the user's own choice
    before, inside, go_on = switches(), threading.Event(), threading.Event()

    def other() -> None:
        with plain_attention():
            inside.set()
            go_on.wait(10)

    thread = threading.Thread(target=other)
    try:
        with plain_attention():
            thread.start()
            assert inside.wait(10)
        assert switches() == (True, False, False, False, False)  # the other thread still computes
        go_on.set()
        thread.join()
        assert switches() == before
        with pytest.raises(RuntimeError), plain_attention():
            raise RuntimeError
        assert switches() == before
    finally:
        go_on.set()
        cuda.enable_mem_efficient_sdp(True)


class Long(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(4, 4), nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        words = self.into(x)
        logits: Tensor = self.out(F.scaled_dot_product_attention(words, words, words).mean((1, 2)))
        return logits


def test_attention_weights_count_in_the_memory_of_a_stack() -> None:
    network = StackedNetwork(Long, torch.zeros(3, 1, 256, 4), 10)
    assert network.bytes_per_sample > 256 * 256 * 4  # a weight for each pair of tokens


@pytest.mark.parametrize("name", list(DROPPING_NETWORKS))
def test_dropout_by_functions_trains_as_a_stack_like_alone(name: str) -> None:
    assert_same_training(DROPPING_NETWORKS[name], holders((10, 3, 7)), RECIPES[3])  # warnings are errors here
    assert not StackedNetwork(DROPPING_NETWORKS[name], holders((3,)).x[0], 10).draws[True]


@pytest.mark.parametrize("name", ["encoder layer", "attention layer with weights", "dropout function"])
def test_masks_do_not_depend_on_the_cut_or_on_company(name: str) -> None:
    data = holders((10, 3, 7, 4))
    whole = engines(DROPPING_NETWORKS[name], data)[0]
    reference = train(whole, data, RECIPES[0])
    assert torch.equal(train(StackEngine(whole.network, 1), data, RECIPES[0]).rows, reference.rows)
    first = first_rows(whole.network, 4)
    some = whole.train(first[[3, 1]], data, [3, 1], [103, 101], 2, RECIPES[0])
    assert torch.equal(some.rows, reference.rows[[3, 1]])
    other = whole.train(first, data, [0, 1, 2, 3], [5, 6, 7, 8], 2, RECIPES[0])
    assert not torch.equal(other.rows, reference.rows)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, "bool", "float"])
def test_attention_that_drops_next_to_nothing_is_pytorchs(mask: str | None, causal: bool) -> None:
    if mask and causal:
        return
    q, k, v = (torch.randn(2, heads, 5, 4) for heads in (4, 2, 2))
    seen = torch.rand(5, 5) < 0.7
    seen.fill_diagonal_(True)
    given = {None: None, "bool": seen, "float": torch.randn(5, 5)}[mask]
    how: Any = {"attn_mask": given, "is_causal": causal, "scale": 0.7, "enable_gqa": True}
    expected = F.scaled_dot_product_attention(q, k, v, **how)
    with KeyedDropoutMode(Call(key=torch.tensor(5))):
        found = F.scaled_dot_product_attention(q, k, v, dropout_p=1e-12, **how)
    torch.testing.assert_close(found, expected)


def test_attention_drops_its_share() -> None:
    q, k, v = torch.zeros(1, 1, 100, 2), torch.zeros(1, 1, 100, 2), torch.ones(1, 1, 100, 2)
    with KeyedDropoutMode(Call(key=torch.tensor(5))):
        found = F.scaled_dot_product_attention(q, k, v, dropout_p=0.25)
    assert found.mean().item() == pytest.approx(1, abs=0.02)
    assert found.std().item() > 0.02

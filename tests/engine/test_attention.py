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
from pens.engine.functional import StackedNetwork
from pens.engine.stack import ModelStack
from tests.engine.networks import ATTENTION_NETWORKS
from tests.engine.test_training import CPU, RECIPES, assert_same_training, engines, holders, train

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

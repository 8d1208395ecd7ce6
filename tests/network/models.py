# SPDX-License-Identifier: Apache-2.0
"""Models that travel, for tests."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from pens.nets import PaperCNN


def paper_model(seed: int = 0) -> dict[str, Tensor]:
    """The paper's network for CIFAR-10, untrained."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return {name: p.detach().clone() for name, p in PaperCNN(3, 32).named_parameters()}


def small_model() -> dict[str, Tensor]:
    """Few numbers, but one tensor of each sort: weights, biases, whole numbers, truths, a scalar, an empty one."""
    return {
        "conv.weight": torch.linspace(-1, 1, 36).reshape(3, 2, 2, 3),
        "conv.bias": torch.tensor([0.25, -3.0, 1e-3]),
        "norm.num_batches_tracked": torch.tensor(7),
        "mask": torch.tensor([True, False, True]),
        "temperature": torch.tensor(0.7),
        "nothing": torch.zeros(0, 4),
    }


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def any_model(draw: st.DrawFn) -> dict[str, Tensor]:
    """A few fp32 tensors of any shape and any finite values."""
    names = draw(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4, unique=True))
    model = {}
    for name in names:
        shape = draw(st.lists(st.integers(1, 3), max_size=4))
        count = int(torch.Size(shape).numel())
        values = draw(st.lists(FINITE, min_size=count, max_size=count))
        model[name] = torch.tensor(values, dtype=torch.float32).reshape(shape)
    return model

# SPDX-License-Identifier: Apache-2.0
"""The seam between vmap and functions of whole stacks.

A network's forward code is written for one model. A twin's kernel computes all models at once. `one_or_many` makes of
such a function one that is called in the forward code, for one model as vmap has it, and runs for the whole stack.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pens.errors import ModelError


def one_or_many(stacked: Any) -> Any:
    """`stacked`: an autograd function of x, weight and bias [peer, ...], and of anything else that is no tensor."""

    class OneOrMany(torch.autograd.Function):
        @staticmethod
        def forward(x: Tensor, w: Tensor, b: Tensor, *how: Any) -> Tensor:
            out: Tensor = stacked.apply(x[None], w[None], b[None], *how)
            return out[0]

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> None:
            raise ModelError("a layer's twin was trained outside a stack: this is a fault of pens")

        @staticmethod
        def vmap(
            info: Any, dims: tuple[int | None, ...], x: Tensor, w: Tensor, b: Tensor, *how: Any
        ) -> tuple[Tensor, int]:
            stacks = [
                t.expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0)
                for t, d in zip((x, w, b), dims[:3], strict=True)
            ]
            return stacked.apply(*stacks, *how), 0

    return OneOrMany


def whole(tensor: Tensor) -> Tensor:
    """Peers may lie apart, as rows do; what belongs to one lies together.  [peer, ...]"""
    return tensor if tensor[0].is_contiguous() else tensor.contiguous()

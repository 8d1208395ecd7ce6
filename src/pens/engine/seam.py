# SPDX-License-Identifier: Apache-2.0
"""The seam between vmap and kernels: lets a layer's forward code call a function of the whole stack.

A network's forward code is written for one model, but the kernel of a replacement layer computes all models at once.
`one_or_many` turns such a kernel into a function that forward code calls for one model and that vmap runs once for the
whole stack.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pens.errors import ModelError


def one_or_many(stacked: Any) -> Any:
    """A function for the forward code of one model, computed for the whole stack under vmap.

    `stacked`: an autograd function of x, weight and bias [peer, ...], and of further arguments that are no tensors.
    """

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
            raise ModelError(
                "a replacement layer was trained outside a stack: this is a fault of pens, please report it"
            )

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
    """The tensor, copied if the numbers of one peer do not lie side by side. Peers may lie apart.  [peer, ...]"""
    return tensor if tensor[0].is_contiguous() else tensor.contiguous()

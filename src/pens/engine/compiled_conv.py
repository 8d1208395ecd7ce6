# SPDX-License-Identifier: Apache-2.0
"""Convolutions by the C kernels, each together with the ReLU and the 2 × 2 max pooling that follow it, if any do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pens.engine.compiled import Shape, kernels
from pens.engine.patterns import is_halving, is_plain_convolution
from pens.engine.seam import one_or_many, whole


class _Stacked(torch.autograd.Function):
    """x [peer, batch, channel, height, width] (any strides), w [peer, out, channel, kernel height, kernel width],
    b [peer, out] → [peer, batch, pooled height, pooled width, out]"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor, shape: Shape) -> Tensor:
        w, b = whole(w), whole(b)
        y, source = kernels().forward(shape, x, w, b)
        ctx.save_for_backward(x, w, source)
        ctx.shape = shape
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w, source = ctx.saved_tensors
        dx, dw, db = kernels().backward(ctx.shape, x, w, g.contiguous(), source, ctx.needs_input_grad[0])
        return None if dx is None else dx.permute(0, 1, 4, 2, 3), dw, db, None


_OneOrMany = one_or_many(_Stacked)


class CompiledConv2d(nn.Conv2d):
    """A convolution that also computes the ReLU and the max pooling that followed it, if any did."""

    relu = False
    pool = 1

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, channel, height, width] → [batch, out channel, height, width], halved by pooling"""
        if x.dim() != 4 or x.dtype is not torch.float32:
            raise TypeError(
                f"a compiled convolution got {str(x.dtype).removeprefix('torch.')} in {x.dim()} dimensions: it takes "
                "float32 in 4, [batch, channel, height, width]"
            )
        bias = self.bias if self.bias is not None else self.weight.new_zeros(self.out_channels)
        out: Tensor = _OneOrMany.apply(x, self.weight, bias, self._shape(x))
        return out.permute(0, 3, 1, 2)

    def _shape(self, x: Tensor) -> Shape:
        batch, channels, height, width = x.shape
        return Shape(
            batch, channels, height, width, self.out_channels,
            kernel_h=self.kernel_size[0], kernel_w=self.kernel_size[1],
            stride_h=self.stride[0], stride_w=self.stride[1],
            pad_h=self._pads[0], pad_w=self._pads[1], dilation_h=self.dilation[0], dilation_w=self.dilation[1],
            pool=self.pool, relu=int(self.relu), pooled_h=self._after(height, 0), pooled_w=self._after(width, 1),
        )  # fmt: skip

    @property
    def _pads(self) -> tuple[int, int]:
        return int(self.padding[0]), int(self.padding[1])

    def _after(self, size: int, axis: int) -> int:
        """The height (axis 0) or width (axis 1) of the output, for that of the input."""
        reach = self.dilation[axis] * (self.kernel_size[axis] - 1) + 1
        return ((size + 2 * self._pads[axis] - reach) // self.stride[axis] + 1) // self.pool


def exchange(module: nn.Module) -> None:
    """Exchange a convolution in place; in a sequence, each convolution together with the layers that it can take in."""
    if is_plain_convolution(module):
        module.__class__ = CompiledConv2d
    if not isinstance(module, nn.Sequential):
        return
    layers = [*module, nn.Identity(), nn.Identity()]
    for i, (conv, activation, pool) in enumerate(zip(layers, layers[1:], layers[2:], strict=False)):
        if is_plain_convolution(conv) and type(activation) is nn.ReLU:
            conv.__class__ = CompiledConv2d
            conv.relu, conv.pool = True, 2 if is_halving(pool) else 1  # type: ignore[assignment]
            for taken in range(i + 1, i + (3 if is_halving(pool) else 2)):
                module[taken] = nn.Identity()

# SPDX-License-Identifier: Apache-2.0
"""Computes a linear layer, its bias and the ReLU behind it as one Triton kernel for all peers, forward and backward.

Theory of operation. A peer's batch is small: eight rows, say, against a matrix of 64 × 256. Reading the matrix from
memory and launching kernels limit such a product. So there are three kernels, each of which reads its inputs once: for
the output, for the gradient of the input, and for the gradients of matrix and bias. ReLU costs nothing: its output
tells where the gradient passes.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from pens.engine.fused import product, stages
from pens.engine.gradient_buffers import GradientBuffers, Wanted
from pens.engine.seam import one_or_many, whole

# ruff: noqa: N803  (Triton's constants are written in capitals)

_BLOCK = 64
_LARGEST = 1 << 18  # numbers in the matrix; libraries are good at larger ones


@triton.jit
def _forward(
    x_ptr, w_ptr, b_ptr, y_ptr, x_peer, w_peer, b_peer,
    COUNT: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    peer = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    out = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, INPUTS, DEPTH):
        k = start + tl.arange(0, DEPTH)
        x = tl.load(
            x_ptr + peer * x_peer + row[:, None] * INPUTS + k[None, :],
            mask=(row < COUNT)[:, None] & (k < INPUTS)[None, :],
            other=0.0,
        )
        w = tl.load(
            w_ptr + peer * w_peer + out[None, :] * INPUTS + k[:, None],
            mask=(out < OUTPUTS)[None, :] & (k < INPUTS)[:, None],
            other=0.0,
        )
        acc += product(x, w, PRECISION)
    acc += tl.load(b_ptr + peer * b_peer + out, mask=out < OUTPUTS, other=0.0)[None, :]
    if RELU:
        acc = tl.where(acc > 0, acc, acc * 0)
    target = (peer * COUNT + row[:, None]) * OUTPUTS + out[None, :]
    tl.store(y_ptr + target, acc, mask=(row < COUNT)[:, None] & (out < OUTPUTS)[None, :])


@triton.jit
def _input_gradient(
    g_ptr, y_ptr, w_ptr, dx_ptr, w_peer,
    COUNT: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    peer = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, OUTPUTS, DEPTH):
        out = start + tl.arange(0, DEPTH)
        inside = (row < COUNT)[:, None] & (out < OUTPUTS)[None, :]
        place = (peer * COUNT + row[:, None]) * OUTPUTS + out[None, :]
        g = tl.load(g_ptr + place, mask=inside, other=0.0)
        if RELU:
            g = tl.where(tl.load(y_ptr + place, mask=inside, other=0.0) > 0, g, 0.0)
        w = tl.load(
            w_ptr + peer * w_peer + out[:, None] * INPUTS + k[None, :],
            mask=(out < OUTPUTS)[:, None] & (k < INPUTS)[None, :],
            other=0.0,
        )
        acc += product(g, w, PRECISION)
    target = (peer * COUNT + row[:, None]) * INPUTS + k[None, :]
    tl.store(dx_ptr + target, acc, mask=(row < COUNT)[:, None] & (k < INPUTS)[None, :])


@triton.jit
def _weight_gradient(
    x_ptr, g_ptr, y_ptr, dw_ptr, db_ptr, x_peer, dw_peer, db_peer,
    COUNT: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    peer = tl.program_id(0).to(tl.int64)
    out = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    k = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    bias = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, COUNT, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < COUNT)[None, :] & (out < OUTPUTS)[:, None]
        place = (peer * COUNT + row[None, :]) * OUTPUTS + out[:, None]
        g = tl.load(g_ptr + place, mask=inside, other=0.0)
        if RELU:
            g = tl.where(tl.load(y_ptr + place, mask=inside, other=0.0) > 0, g, 0.0)
        x = tl.load(
            x_ptr + peer * x_peer + row[:, None] * INPUTS + k[None, :],
            mask=(row < COUNT)[:, None] & (k < INPUTS)[None, :],
            other=0.0,
        )
        acc += product(g, x, PRECISION)
        bias += tl.sum(g, 1)
    target = dw_ptr + peer * dw_peer + out[:, None] * INPUTS + k[None, :]
    tl.store(target, acc, mask=(out < OUTPUTS)[:, None] & (k < INPUTS)[None, :])
    if tl.program_id(2) == 0:
        tl.store(db_ptr + peer * db_peer + out, bias, mask=out < OUTPUTS)


class _Stacked(torch.autograd.Function):
    """The linear layers of a whole stack, as an autograd function.

    x [peer, row, input], w [peer, output, input], b [peer, output] → [peer, row, output]"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor, relu: bool, precision: str, wanted: Wanted) -> Tensor:
        peers, count, inputs = x.shape
        outputs = w.shape[1]
        x, w, b = whole(x), whole(w), whole(b)
        y = x.new_empty((peers, count, outputs))
        ctx.sizes = (count, inputs, outputs, relu, precision)
        _forward[(peers, triton.cdiv(count, 16), triton.cdiv(outputs, _block(outputs)))](
            x, w, b, y, x.stride(0), w.stride(0), b.stride(0), *ctx.sizes,
            ROWS=16, BLOCK=_block(outputs), DEPTH=_block(inputs),
            num_warps=2, num_stages=stages(inputs, _block(inputs)),
        )  # fmt: skip
        ctx.save_for_backward(x, w, y)
        ctx.wanted = wanted
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w, y = ctx.saved_tensors
        peers, (count, inputs, outputs, *_) = len(x), ctx.sizes
        g = g.contiguous()
        dx = None
        if ctx.needs_input_grad[0]:
            dx = x.new_empty((peers, count, inputs))
            _input_gradient[(peers, triton.cdiv(count, 16), triton.cdiv(inputs, _block(inputs)))](
                g, y, w, dx, w.stride(0), *ctx.sizes,
                ROWS=16, BLOCK=_block(inputs), DEPTH=_block(outputs),
                num_warps=2, num_stages=stages(outputs, _block(outputs)),
            )  # fmt: skip
        dw, db = ctx.wanted.memory((peers, outputs, inputs), (peers, outputs), x.device)
        block = max(_block(inputs), _block(outputs))
        _weight_gradient[(peers, triton.cdiv(outputs, block), triton.cdiv(inputs, block))](
            x, g, y, dw, db, x.stride(0), dw.stride(0), db.stride(0), *ctx.sizes,
            ROWS=16, BLOCK=block, num_warps=4, num_stages=stages(count, 16),
        )  # fmt: skip
        return dx, dw, db, None, None, None


_OneOrMany = one_or_many(_Stacked)


class FusedLinear(nn.Linear):
    """A linear layer that may also compute the ReLU that followed it."""

    precision = "tf32"
    relu = False
    name: str
    gradient_buffers: GradientBuffers

    def forward(self, x: Tensor) -> Tensor:
        """x [..., input] → [..., output]"""
        bias = self.bias if self.bias is not None else self.weight.new_zeros(self.out_features)
        rows, buffers = x.reshape(-1, self.in_features), self.gradient_buffers.take(self.name)
        out: Tensor = _OneOrMany.apply(rows, self.weight, bias, self.relu, self.precision, buffers)
        return out.reshape(*x.shape[:-1], self.out_features)


def fuse_linear(layer: nn.Module, precision: str, relu: bool = False) -> bool:
    """Make a linear layer a fused one, in place, if the kernels are fast for its size. Returns whether it was done."""
    if type(layer) is not nn.Linear or layer.weight.numel() > _LARGEST:
        return False
    if not all(p.requires_grad for p in layer.parameters()):
        return False
    layer.__class__ = FusedLinear
    assert isinstance(layer, FusedLinear)
    layer.precision, layer.relu = precision, relu
    return True


def _block(size: int) -> int:
    return int(min(_BLOCK, max(16, triton.next_power_of_2(size))))

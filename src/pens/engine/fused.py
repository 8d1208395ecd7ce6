"""Convolution, bias, ReLU and 2 × 2 max pooling as one Triton kernel per peer, forward and backward.

Theory of operation. A convolution as a matrix product needs patches: every input value nine times. Written to memory,
they are most of what a training step moves. Here they exist only in registers: a program owns one peer and a tile of
pooled positions, gathers the patches of the four convolution outputs under each pooled one straight from the input,
multiplies them by the peer's kernel, adds the bias, and keeps the largest of the four if it is positive. What goes to
memory is the pooled output, and one byte per value that says which of the four it came from (4: none was positive).

That byte is all the backward pass needs besides the input. The gradient of the convolution's output is zero but where
the byte points, so it is never written either: both backward kernels make it from the pooled gradient as they go.

    input gradient:   a program owns a tile of input positions and adds up, tap by tap, gradient × kernel
    kernel gradient:  a program owns a tile of (tap, channel) rows and a slice of positions; adds up patch × gradient

Sums run in a fixed order (slices are added up afterwards, no atomics), so a result does not depend on timing.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from pens.engine.patterns import is_halving, is_plain_convolution
from pens.errors import NetworkError

# ruff: noqa: N803  (Triton's constants are written in capitals)


@triton.jit
def _forward(
    x_ptr, w_ptr, b_ptr, y_ptr, from_ptr,
    sk, sb, sc, sh, sw,
    BATCH, CHANNELS: tl.constexpr, HEIGHT, WIDTH, OUT: tl.constexpr, POOLED_H, POOLED_W,
    KERNEL: tl.constexpr, PAD: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    peer = tl.program_id(0).to(tl.int64)
    pooled = tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = pooled < BATCH * POOLED_H * POOLED_W
    px = pooled % POOLED_W
    py = pooled // POOLED_W % POOLED_H
    sample = pooled // (POOLED_W * POOLED_H)
    out = tl.arange(0, OUT)
    base = x_ptr + peer * sk + sample * sb
    acc0 = tl.zeros((TILE, OUT), tl.float32)
    acc1 = tl.zeros((TILE, OUT), tl.float32)
    acc2 = tl.zeros((TILE, OUT), tl.float32)
    acc3 = tl.zeros((TILE, OUT), tl.float32)
    for start in range(0, ROWS, DEPTH):
        row = start + tl.arange(0, DEPTH)
        tap = row // CHANNELS
        channel = row % CHANNELS
        dy = tap // KERNEL - PAD
        dx = tap % KERNEL - PAD
        w = tl.load(w_ptr + (peer * ROWS + row[:, None]) * OUT + out[None, :], mask=(row < ROWS)[:, None], other=0.0)
        for quarter in tl.static_range(4):
            y = (2 * py + quarter // 2)[:, None] + dy[None, :]
            x = (2 * px + quarter % 2)[:, None] + dx[None, :]
            inside = here[:, None] & (row < ROWS)[None, :] & (y >= 0) & (y < HEIGHT) & (x >= 0) & (x < WIDTH)
            patch = tl.load(base[:, None] + channel[None, :] * sc + y * sh + x * sw, mask=inside, other=0.0)
            if PRECISION == "bf16":
                product = tl.dot(patch.to(tl.bfloat16), w.to(tl.bfloat16))
            else:
                product = tl.dot(patch, w, input_precision=PRECISION)
            if quarter == 0:
                acc0 += product
            elif quarter == 1:
                acc1 += product
            elif quarter == 2:
                acc2 += product
            else:
                acc3 += product
    best = acc0
    source = tl.zeros((TILE, OUT), tl.int32)
    source = tl.where(acc1 > best, 1, source)
    best = tl.maximum(best, acc1)
    source = tl.where(acc2 > best, 2, source)
    best = tl.maximum(best, acc2)
    source = tl.where(acc3 > best, 3, source)
    best = tl.maximum(best, acc3)
    best += tl.load(b_ptr + peer * OUT + out)[None, :]
    source = tl.where(best > 0, source, 4)
    best = tl.where(best > 0, best, best * 0)
    place = ((peer * BATCH * POOLED_H * POOLED_W + pooled[:, None]) * OUT) + out[None, :]
    tl.store(y_ptr + place, best, mask=here[:, None])
    tl.store(from_ptr + place, source.to(tl.int8), mask=here[:, None])


@triton.jit
def _input_gradient(
    g_ptr, from_ptr, w_ptr, dx_ptr,
    BATCH, CHANNELS: tl.constexpr, WIDE: tl.constexpr, HEIGHT, WIDTH, OUT: tl.constexpr, POOLED_H, POOLED_W,
    KERNEL: tl.constexpr, PAD: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    peer = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = place < BATCH * HEIGHT * WIDTH
    x = place % WIDTH
    y = place // WIDTH % HEIGHT
    sample = place // (WIDTH * HEIGHT)
    out = tl.arange(0, OUT)
    channel = tl.arange(0, WIDE)
    acc = tl.zeros((TILE, WIDE), tl.float32)
    for tap in range(KERNEL * KERNEL):
        oy = y + PAD - tap // KERNEL
        ox = x + PAD - tap % KERNEL
        inside = here & (oy >= 0) & (oy < 2 * POOLED_H) & (ox >= 0) & (ox < 2 * POOLED_W)
        pooled = (peer * BATCH + sample) * POOLED_H * POOLED_W + oy // 2 * POOLED_W + ox // 2
        where = pooled[:, None] * OUT + out[None, :]
        g = tl.load(g_ptr + where, mask=inside[:, None], other=0.0)
        source = tl.load(from_ptr + where, mask=inside[:, None], other=4).to(tl.int32)
        g = tl.where(source == (oy % 2 * 2 + ox % 2)[:, None], g, 0.0)
        w = tl.load(
            w_ptr + (peer * KERNEL * KERNEL * CHANNELS + tap * CHANNELS + channel[None, :]) * OUT + out[:, None],
            mask=(channel < CHANNELS)[None, :],
            other=0.0,
        )
        if PRECISION == "bf16":
            acc += tl.dot(g.to(tl.bfloat16), w.to(tl.bfloat16))
        else:
            acc += tl.dot(g, w, input_precision=PRECISION)
    target = (peer * BATCH * HEIGHT * WIDTH + place[:, None]) * CHANNELS + channel[None, :]
    tl.store(dx_ptr + target, acc, mask=here[:, None] & (channel < CHANNELS)[None, :])


@triton.jit
def _kernel_gradient(
    x_ptr, g_ptr, from_ptr, dw_ptr, db_ptr,
    sk, sb, sc, sh, sw,
    BATCH, CHANNELS: tl.constexpr, HEIGHT, WIDTH, OUT: tl.constexpr, POOLED_H, POOLED_W,
    KERNEL: tl.constexpr, PAD: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr, TILE: tl.constexpr,
    SLICES, TURNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    peer = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * DEPTH + tl.arange(0, DEPTH)
    part = tl.program_id(2)
    tap = row // CHANNELS
    channel = row % CHANNELS
    dy = tap // KERNEL - PAD
    dx = tap % KERNEL - PAD
    out = tl.arange(0, OUT)
    acc = tl.zeros((DEPTH, OUT), tl.float32)
    bias = tl.zeros((OUT,), tl.float32)
    positions = BATCH * POOLED_H * POOLED_W * 4
    for turn in range(TURNS):
        place = (turn * SLICES + part) * TILE + tl.arange(0, TILE)
        here = place < positions
        ox = place % (2 * POOLED_W)
        oy = place // (2 * POOLED_W) % (2 * POOLED_H)
        sample = place // (4 * POOLED_W * POOLED_H)
        pooled = (peer * BATCH + sample) * POOLED_H * POOLED_W + oy // 2 * POOLED_W + ox // 2
        where = pooled[:, None] * OUT + out[None, :]
        g = tl.load(g_ptr + where, mask=here[:, None], other=0.0)
        source = tl.load(from_ptr + where, mask=here[:, None], other=4).to(tl.int32)
        g = tl.where(source == (oy % 2 * 2 + ox % 2)[:, None], g, 0.0)
        y = dy[:, None] + oy[None, :]
        x = dx[:, None] + ox[None, :]
        inside = (row < ROWS)[:, None] & here[None, :] & (y >= 0) & (y < HEIGHT) & (x >= 0) & (x < WIDTH)
        patch = tl.load(
            x_ptr + peer * sk + sample[None, :] * sb + channel[:, None] * sc + y * sh + x * sw, mask=inside, other=0.0
        )
        if PRECISION == "bf16":
            acc += tl.dot(patch.to(tl.bfloat16), g.to(tl.bfloat16))
        else:
            acc += tl.dot(patch, g, input_precision=PRECISION)
        bias += tl.sum(g, 0)
    target = ((peer * SLICES + part) * ROWS + row[:, None]) * OUT + out[None, :]
    tl.store(dw_ptr + target, acc, mask=(row < ROWS)[:, None])
    if tl.program_id(1) == 0:
        tl.store(db_ptr + (peer * SLICES + part) * OUT + out, bias)


def _stages(precision: str) -> int:
    """How far loads run ahead of products. Without tensor cores not at all: Triton 3.6 then miscompiled a loop of two
    turns (found on an H200: a kernel gradient of 64 × 64 was off by its whole size)."""
    return 1 if precision == "ieee" else 3


class _Stacked(torch.autograd.Function):
    """x [peer, batch, channel, height, width] (any strides), w [peer, tap × channel, out], b [peer, out]
    → [peer, batch, pooled height, pooled width, out]"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor, kernel: int, pad: int, precision: str) -> Tensor:
        peers, batch, channels, height, width = x.shape
        rows, out = w.shape[1:]
        ph, pw = (height + 2 * pad - kernel + 1) // 2, (width + 2 * pad - kernel + 1) // 2
        w, b = w.contiguous(), b.contiguous()
        y = x.new_empty((peers, batch, ph, pw, out))
        source = torch.empty(y.shape, dtype=torch.int8, device=x.device)
        tile = 64 if batch * ph * pw > 512 else 32
        grid = (peers, triton.cdiv(batch * ph * pw, tile))
        _forward[grid](
            x, w, b, y, source, *x.stride(),
            batch, channels, height, width, out, ph, pw,
            KERNEL=kernel, PAD=pad, ROWS=rows, TILE=tile, DEPTH=32, PRECISION=precision, num_stages=_stages(precision),
        )  # fmt: skip
        ctx.save_for_backward(x, w, source)
        ctx.kernel, ctx.pad, ctx.precision = kernel, pad, precision
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w, source = ctx.saved_tensors
        peers, batch, channels, height, width = x.shape
        rows, out = w.shape[1:]
        ph, pw = g.shape[2:4]
        g = g.contiguous()
        dx = None
        if ctx.needs_input_grad[0]:
            dx = x.new_empty((peers, batch, height, width, channels))
            tile = 64
            wide = max(16, triton.next_power_of_2(channels))
            _input_gradient[(peers, triton.cdiv(batch * height * width, tile))](
                g, source, w, dx, batch, channels, wide, height, width, out, ph, pw,
                KERNEL=ctx.kernel, PAD=ctx.pad, TILE=tile, PRECISION=ctx.precision, num_stages=_stages(ctx.precision),
            )  # fmt: skip
            dx = dx.permute(0, 1, 4, 2, 3)
        depth = tile = 32 if rows <= 32 else 64
        positions = batch * ph * pw * 4
        slices = max(min(2, positions // tile), min(16, positions // 448), 1)
        dw = x.new_empty((peers, slices, rows, out))
        db = x.new_empty((peers, slices, out))
        _kernel_gradient[(peers, triton.cdiv(rows, depth), slices)](
            x, g, source, dw, db, *x.stride(),
            batch, channels, height, width, out, ph, pw,
            KERNEL=ctx.kernel, PAD=ctx.pad, ROWS=rows, DEPTH=depth, TILE=tile, SLICES=slices,
            TURNS=triton.cdiv(positions, slices * tile), PRECISION=ctx.precision, num_stages=_stages(ctx.precision),
        )  # fmt: skip
        return dx, dw.sum(1), db.sum(1), None, None, None


class _OneOrMany(torch.autograd.Function):
    """The seam to vmap: called for one model in the network's forward code, run for the whole stack at once."""

    @staticmethod
    def forward(x: Tensor, w: Tensor, b: Tensor, kernel: int, pad: int, precision: str) -> Tensor:
        out: Tensor = _Stacked.apply(x[None], w[None], b[None], kernel, pad, precision)
        return out[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> None:
        raise NetworkError("a fused block was trained outside a stack: this is a fault of pens")

    @staticmethod
    def vmap(
        info: Any, dims: tuple[int | None, ...], x: Tensor, w: Tensor, b: Tensor, kernel: int, pad: int, precision: str
    ) -> tuple[Tensor, int]:
        stacked = [
            t.expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0)
            for t, d in zip((x, w, b), dims[:3], strict=True)
        ]
        return _Stacked.apply(*stacked, kernel, pad, precision), 0


class FusedConv2d(nn.Conv2d):
    """A convolution that has taken in the ReLU and the max pooling behind it."""

    precision = "tf32"

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, channel, height, width] → [batch, out channel, height / 2, width / 2]"""
        kernel = self.weight.permute(2, 3, 1, 0).reshape(-1, self.out_channels)  # [tap × channel, out channel]
        bias = self.bias if self.bias is not None else kernel.new_zeros(self.out_channels)
        padding = self.padding[0]
        out: Tensor = _OneOrMany.apply(x, kernel, bias, self.kernel_size[0], padding, self.precision)
        return out.permute(0, 3, 1, 2)


def can_fuse(conv: nn.Module, activation: nn.Module, pool: nn.Module) -> bool:
    """Whether three layers in a row are what the kernels do."""
    if not (is_plain_convolution(conv) and type(activation) is nn.ReLU and is_halving(pool)):
        return False
    if any(pair[0] != pair[1] for pair in (conv.kernel_size, conv.padding, conv.stride, conv.dilation)):
        return False
    return conv.stride[0] == conv.dilation[0] == 1 and conv.out_channels in (16, 32, 64, 128)


def fuse(sequence: nn.Sequential, precision: str) -> None:
    """Exchange every convolution, ReLU and pooling in a row for one fused block, in place."""
    layers = list(sequence)
    for i in range(len(layers) - 2):
        conv, activation, pool = layers[i : i + 3]
        if can_fuse(conv, activation, pool):
            conv.__class__ = FusedConv2d
            conv.precision = precision  # type: ignore[assignment]
            sequence[i + 1], sequence[i + 2] = nn.Identity(), nn.Identity()
            layers[i + 1 : i + 3] = [nn.Identity(), nn.Identity()]

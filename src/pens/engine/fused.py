# SPDX-License-Identifier: Apache-2.0
"""Computes convolution, bias, ReLU and 2 × 2 max pooling as one Triton kernel per peer, forward and backward.

Theory of operation. A convolution as a matrix product needs patches: every input value nine times. Written to memory,
patches are most of what a training step moves. Here they exist only in registers: a program owns one peer and a tile of
pooled positions. It gathers the patches of the four convolution outputs (quarters) under each pooled position directly
from the input, multiplies them by the peer's kernel, adds the bias, and keeps the largest of the four if it is
positive. It writes to memory the pooled output, and one byte per value that says which quarter the value came from
(4: none was positive).

The backward pass needs only that byte and the input. The gradient of the convolution's output is zero except where the
byte points, so it is never written either: both backward kernels make a quarter of it from the pooled gradient by
comparing the byte with the quarter's number. Each kernel reads a pooled gradient once and uses it four times:

    kernel gradient:  a program owns a tile of (tap, channel) rows and a slice of the pooled positions, and adds up
                      patch × gradient, quarter by quarter
    input gradient:   a program owns a tile of cells of 2 × 2 input positions. Which quarter of which neighbouring
                      pooled position reaches which corner of a cell by which tap is a matter of parity alone, and so
                      known when the kernel is compiled

Sums run in a fixed order (slices are added up afterwards, no atomics), so a result does not depend on timing. Sizes of
tiles and numbers of warps are those that were fastest on an H200 for the paper's networks; small tiles win, since a
product of 64 × 64 waits for its patches, and many small programs wait side by side.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from pens.engine.gradient_buffers import GradientBuffers, Wanted
from pens.engine.patterns import is_halving, is_plain_convolution
from pens.engine.seam import one_or_many, whole

# ruff: noqa: N803, N806  (Triton's constants are written in capitals)

_ENOUGH_PROGRAMS = 512  # programs that keep a GPU busy


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """A matrix product of numbers in a precision, summed in fp32."""
    if PRECISION == "bf16":
        result = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))
    else:
        result = tl.dot(a, b, input_precision=PRECISION)
    return result


@triton.jit
def _forward(
    x_ptr, w_ptr, b_ptr, y_ptr, from_ptr,
    x_peer, x_sample, x_channel: tl.constexpr, x_line: tl.constexpr, x_column: tl.constexpr, w_peer, b_peer,
    BATCH: tl.constexpr, CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr,
    POOLED_H: tl.constexpr, POOLED_W: tl.constexpr, KERNEL: tl.constexpr, PAD: tl.constexpr,
    PRECISION: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    ROWS: tl.constexpr = KERNEL * KERNEL * CHANNELS
    peer = tl.program_id(0).to(tl.int64)
    pooled = tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = pooled < BATCH * POOLED_H * POOLED_W
    px = pooled % POOLED_W
    py = pooled // POOLED_W % POOLED_H
    sample = pooled // (POOLED_W * POOLED_H)
    out = tl.arange(0, OUT)
    x_ptr += peer * x_peer
    acc0 = tl.zeros((TILE, OUT), tl.float32)
    acc1 = tl.zeros((TILE, OUT), tl.float32)
    acc2 = tl.zeros((TILE, OUT), tl.float32)
    acc3 = tl.zeros((TILE, OUT), tl.float32)
    for start in range(0, ROWS, DEPTH):
        row = start + tl.arange(0, DEPTH)
        tap = row // CHANNELS
        channel = row % CHANNELS
        w = tl.load(w_ptr + peer * w_peer + row[:, None] * OUT + out[None, :], mask=(row < ROWS)[:, None], other=0.0)
        for quarter in tl.static_range(4):
            y = (2 * py + quarter // 2)[:, None] + (tap // KERNEL - PAD)[None, :]
            x = (2 * px + quarter % 2)[:, None] + (tap % KERNEL - PAD)[None, :]
            inside = here[:, None] & (row < ROWS)[None, :]
            if PAD > 0:
                inside = inside & (y >= 0) & (y < HEIGHT) & (x >= 0) & (x < WIDTH)
            place = (sample * x_sample)[:, None] + (channel * x_channel)[None, :] + y * x_line + x * x_column
            products = product(tl.load(x_ptr + place, mask=inside, other=0.0), w, PRECISION)
            if quarter == 0:
                acc0 += products
            elif quarter == 1:
                acc1 += products
            elif quarter == 2:
                acc2 += products
            else:
                acc3 += products
    best = acc0
    source = tl.zeros((TILE, OUT), tl.int32)
    source = tl.where(acc1 > best, 1, source)
    best = tl.maximum(best, acc1)
    source = tl.where(acc2 > best, 2, source)
    best = tl.maximum(best, acc2)
    source = tl.where(acc3 > best, 3, source)
    best = tl.maximum(best, acc3)
    best += tl.load(b_ptr + peer * b_peer + out)[None, :]
    source = tl.where(best > 0, source, 4)
    best = tl.where(best > 0, best, best * 0)
    target = ((peer * BATCH * POOLED_H * POOLED_W + pooled[:, None]) * OUT) + out[None, :]
    tl.store(y_ptr + target, best.to(y_ptr.dtype.element_ty), mask=here[:, None])
    tl.store(from_ptr + target, source.to(tl.int8), mask=here[:, None])


@triton.jit
def _input_gradient(
    g_ptr, from_ptr, w_ptr, dx_ptr, w_peer,
    BATCH: tl.constexpr, CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr,
    POOLED_H: tl.constexpr, POOLED_W: tl.constexpr, KERNEL: tl.constexpr, PAD: tl.constexpr,
    PRECISION: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    CELLS_H: tl.constexpr = (HEIGHT + 1) // 2
    CELLS_W: tl.constexpr = (WIDTH + 1) // 2
    peer = tl.program_id(0).to(tl.int64)
    cell = tl.program_id(1) * TILE + tl.arange(0, TILE)
    here = cell < BATCH * CELLS_H * CELLS_W
    cx = cell % CELLS_W
    cy = cell // CELLS_W % CELLS_H
    sample = cell // (CELLS_W * CELLS_H)
    out = tl.arange(0, OUT)
    channel = tl.arange(0, WIDE)
    g_ptr += peer * BATCH * POOLED_H * POOLED_W * OUT
    from_ptr += peer * BATCH * POOLED_H * POOLED_W * OUT
    w_ptr += peer * w_peer
    acc0 = tl.zeros((TILE, WIDE), tl.float32)
    acc1 = tl.zeros((TILE, WIDE), tl.float32)
    acc2 = tl.zeros((TILE, WIDE), tl.float32)
    acc3 = tl.zeros((TILE, WIDE), tl.float32)
    for ny in tl.static_range(FIRST, LAST + 1):
        for nx in tl.static_range(FIRST, LAST + 1):
            py = cy + ny
            px = cx + nx
            inside = here & (py >= 0) & (py < POOLED_H) & (px >= 0) & (px < POOLED_W)
            place = ((sample * POOLED_H + py) * POOLED_W + px)[:, None] * OUT + out[None, :]
            g = tl.load(g_ptr + place, mask=inside[:, None], other=0.0)
            source = tl.load(from_ptr + place, mask=inside[:, None], other=4).to(tl.int32)
            for quarter in tl.static_range(4):
                part = tl.where(source == quarter, g, g * 0)
                for corner in tl.static_range(4):
                    ky = corner // 2 + PAD - 2 * ny - quarter // 2
                    kx = corner % 2 + PAD - 2 * nx - quarter % 2
                    if (ky >= 0) and (ky < KERNEL) and (kx >= 0) and (kx < KERNEL):
                        row = (ky * KERNEL + kx) * CHANNELS + channel
                        w = tl.load(
                            w_ptr + row[None, :] * OUT + out[:, None], mask=(channel < CHANNELS)[None, :], other=0.0
                        )
                        products = product(part, w, PRECISION)
                        if corner == 0:
                            acc0 += products
                        elif corner == 1:
                            acc1 += products
                        elif corner == 2:
                            acc2 += products
                        else:
                            acc3 += products
    for corner in tl.static_range(4):
        if corner == 0:
            acc = acc0
        elif corner == 1:
            acc = acc1
        elif corner == 2:
            acc = acc2
        else:
            acc = acc3
        y = 2 * cy + corner // 2
        x = 2 * cx + corner % 2
        inside = here & (y < HEIGHT) & (x < WIDTH)
        target = (((peer * BATCH + sample) * HEIGHT + y) * WIDTH + x)[:, None] * CHANNELS + channel[None, :]
        tl.store(dx_ptr + target, acc.to(dx_ptr.dtype.element_ty), mask=inside[:, None] & (channel < CHANNELS)[None, :])


@triton.jit
def _kernel_gradient(
    x_ptr, g_ptr, from_ptr, dw_ptr, db_ptr, dw_peer, db_peer,
    x_peer, x_sample, x_channel: tl.constexpr, x_line: tl.constexpr, x_column: tl.constexpr,
    BATCH: tl.constexpr, CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr,
    POOLED_H: tl.constexpr, POOLED_W: tl.constexpr, KERNEL: tl.constexpr, PAD: tl.constexpr,
    PRECISION: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr, SLICES: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    ROWS: tl.constexpr = KERNEL * KERNEL * CHANNELS
    peer = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * DEPTH + tl.arange(0, DEPTH)
    part = tl.program_id(2)
    tap = row // CHANNELS
    channel = row % CHANNELS
    out = tl.arange(0, OUT)
    x_ptr += peer * x_peer
    g_ptr += peer * BATCH * POOLED_H * POOLED_W * OUT
    from_ptr += peer * BATCH * POOLED_H * POOLED_W * OUT
    acc = tl.zeros((DEPTH, OUT), tl.float32)
    bias = tl.zeros((OUT,), tl.float32)
    for turn in range(TURNS):
        pooled = (turn * SLICES + part) * TILE + tl.arange(0, TILE)
        here = pooled < BATCH * POOLED_H * POOLED_W
        px = pooled % POOLED_W
        py = pooled // POOLED_W % POOLED_H
        sample = pooled // (POOLED_W * POOLED_H)
        place = pooled[:, None] * OUT + out[None, :]
        g = tl.load(g_ptr + place, mask=here[:, None], other=0.0)
        source = tl.load(from_ptr + place, mask=here[:, None], other=4).to(tl.int32)
        bias += tl.sum(tl.where(source < 4, g, g * 0).to(tl.float32), 0)
        for quarter in tl.static_range(4):
            y = (2 * py + quarter // 2)[None, :] + (tap // KERNEL - PAD)[:, None]
            x = (2 * px + quarter % 2)[None, :] + (tap % KERNEL - PAD)[:, None]
            inside = (row < ROWS)[:, None] & here[None, :]
            if PAD > 0:
                inside = inside & (y >= 0) & (y < HEIGHT) & (x >= 0) & (x < WIDTH)
            where = (sample * x_sample)[None, :] + (channel * x_channel)[:, None] + y * x_line + x * x_column
            patch = tl.load(x_ptr + where, mask=inside, other=0.0)
            acc += product(patch, tl.where(source == quarter, g, g * 0), PRECISION)
    target = peer * dw_peer + (part * ROWS + row[:, None]) * OUT + out[None, :]
    tl.store(dw_ptr + target, acc, mask=(row < ROWS)[:, None])
    if tl.program_id(1) == 0:
        tl.store(db_ptr + peer * db_peer + part * OUT + out, bias)


@triton.jit
def _add_slices(
    dw_parts, db_parts, dw_ptr, db_ptr, dw_peer, db_peer,
    SIZE: tl.constexpr, OUT: tl.constexpr, SLICES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    peer = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    out = tl.arange(0, OUT)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((OUT,), tl.float32)
    for part in range(SLICES):
        dw += tl.load(dw_parts + (peer * SLICES + part) * SIZE + place, mask=place < SIZE, other=0.0)
        db += tl.load(db_parts + (peer * SLICES + part) * OUT + out)
    tl.store(dw_ptr + peer * dw_peer + place, dw, mask=place < SIZE)
    if tl.program_id(1) == 0:
        tl.store(db_ptr + peer * db_peer + out, db)


class _Stacked(torch.autograd.Function):
    """The fused layers of a whole stack, as an autograd function.

    x [peer, batch, channel, height, width] (any strides), w [peer, tap × channel, out], b [peer, out]
    → [peer, batch, pooled height, pooled width, out] of type `dtype`"""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor,
        b: Tensor,
        kernel: int,
        pad: int,
        precision: str,
        dtype: torch.dtype,
        wanted: Wanted,
    ) -> Tensor:
        peers, batch, channels, height, width = x.shape
        rows, out = w.shape[1:]
        ph, pw = (height + 2 * pad - kernel + 1) // 2, (width + 2 * pad - kernel + 1) // 2
        w, b = whole(w), whole(b)
        y = x.new_empty((peers, batch, ph, pw, out), dtype=dtype)
        source = torch.empty(y.shape, dtype=torch.int8, device=x.device)
        tile = 64 if precision == "bf16" else 32
        sizes = (batch, channels, height, width, out, ph, pw, kernel, pad, precision)
        _forward[(peers, triton.cdiv(batch * ph * pw, tile))](
            x, w, b, y, source, *x.stride(), w.stride(0), b.stride(0), *sizes,
            TILE=tile, DEPTH=32, num_warps=max(2, tile * out // 1024), num_stages=stages(rows, 32),
        )  # fmt: skip
        ctx.save_for_backward(x, w, source)
        ctx.sizes, ctx.wanted = sizes, wanted
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w, source = ctx.saved_tensors
        g = g.contiguous()
        dx = _run_input_gradient(x, g, source, w, ctx.sizes) if ctx.needs_input_grad[0] else None
        dw, db = _run_kernel_gradient(x, g, source, ctx.sizes, ctx.wanted)
        return dx, dw, db, None, None, None, None, None


def _run_input_gradient(x: Tensor, g: Tensor, source: Tensor, w: Tensor, sizes: tuple[Any, ...]) -> Tensor:
    """The gradient of the input: x's shape, channels last in memory."""
    batch, channels, height, width, _, _, _, kernel, pad, _ = sizes
    dx = x.new_empty((len(x), batch, height, width, channels))
    cells = batch * -(-height // 2) * -(-width // 2)
    tile = 64
    _input_gradient[(len(x), triton.cdiv(cells, tile))](
        g, source, w, dx, w.stride(0), *sizes, TILE=tile, WIDE=max(16, triton.next_power_of_2(channels)),
        FIRST=-((kernel - pad) // 2), LAST=(1 + pad) // 2, num_warps=4, num_stages=1,
    )  # fmt: skip
    return dx.permute(0, 1, 4, 2, 3)


def _run_kernel_gradient(
    x: Tensor, g: Tensor, source: Tensor, sizes: tuple[Any, ...], wanted: Wanted
) -> tuple[Tensor, Tensor]:
    """The gradients of the kernel [peer, tap × channel, out] and of the bias [peer, out]."""
    batch, channels, _, _, out, ph, pw, kernel, _, precision = sizes
    peers, rows, positions = len(x), kernel * kernel * channels, batch * ph * pw
    depth = 32 if rows <= 32 else 64
    tile, warps = (64, 4) if precision == "bf16" and depth == 64 else (16, depth // 32)
    tile = min(tile, max(16, triton.next_power_of_2(positions)))
    blocks = triton.cdiv(rows, depth)
    slices = _power_of_2(max(positions // 224, min(positions // 32, _ENOUGH_PROGRAMS // (peers * blocks))))
    dw, db = wanted.memory((peers, rows, out), (peers, out), x.device)
    parts = Wanted() if slices > 1 else Wanted(dw, db)
    dw_parts, db_parts = parts.memory((peers, slices * rows, out), (peers, slices * out), x.device)
    _kernel_gradient[(peers, blocks, slices)](
        x, g, source, dw_parts, db_parts, dw_parts.stride(0), db_parts.stride(0), *x.stride(), *sizes,
        TILE=tile, DEPTH=depth, SLICES=slices, TURNS=triton.cdiv(positions, slices * tile),
        num_warps=warps, num_stages=1 if tile == 64 else stages(positions, slices * tile),
    )  # fmt: skip
    if slices > 1:
        _add_slices[(peers, triton.cdiv(rows * out, 1024))](
            dw_parts, db_parts, dw, db, dw.stride(0), db.stride(0), rows * out, out, slices, BLOCK=1024
        )
    return dw, db


def stages(length: int, stride: int) -> int:
    """How many turns of a loop load ahead. Short loops do not load ahead, because Triton 3.6 miscompiled some loops of
    two turns (on an H200, kernel gradients were off by their whole size)."""
    return 3 if triton.cdiv(length, stride) > 3 else 1


def _power_of_2(count: int) -> int:
    """The largest power of 2 up to a count, at least 1. A kernel is compiled for each number of slices."""
    return 1 << max(0, count.bit_length() - 1)


_OneOrMany = one_or_many(_Stacked)


class FusedConv2d(nn.Conv2d):
    """A convolution that also computes the ReLU and the max pooling that followed it."""

    precision = "tf32"
    dtype = torch.float32
    """The type of the output: bf16 on the way to another fused block, if that is the precision."""
    name: str
    gradient_buffers: GradientBuffers

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, channel, height, width] → [batch, out channel, height / 2, width / 2]"""
        kernel = self.weight.permute(2, 3, 1, 0).reshape(-1, self.out_channels)  # [tap × channel, out channel]
        bias = self.bias if self.bias is not None else kernel.new_zeros(self.out_channels)
        how = (self.kernel_size[0], self.padding[0], self.precision, self.dtype)
        out: Tensor = _OneOrMany.apply(x, kernel, bias, *how, self.gradient_buffers.take(self.name))
        return out.permute(0, 3, 1, 2)


def can_fuse(conv: nn.Module, activation: nn.Module, pool: nn.Module) -> bool:
    """Whether the kernels can compute three layers that follow each other."""
    if not (is_plain_convolution(conv) and type(activation) is nn.ReLU and is_halving(pool)):
        return False
    if any(pair[0] != pair[1] for pair in (conv.kernel_size, conv.padding, conv.stride, conv.dilation)):
        return False
    return (
        conv.stride[0] == conv.dilation[0] == 1
        and conv.kernel_size[0] <= 5  # the input gradient is written out tap by tap
        and conv.out_channels in (16, 32, 64, 128)
    )


def fuse(sequence: nn.Sequential, precision: str) -> None:
    """Exchange every convolution that is followed by ReLU and pooling for one fused block, in place."""
    layers, i = list(sequence), 0
    before: FusedConv2d | None = None
    while i < len(layers):
        block = layers[i : i + 3]
        if len(block) < 3 or not can_fuse(*block):
            before, i = None, i + 1
            continue
        conv = block[0]
        conv.__class__ = FusedConv2d
        assert isinstance(conv, FusedConv2d)
        conv.precision = precision
        if before is not None and precision == "bf16":
            before.dtype = torch.bfloat16
        sequence[i + 1], sequence[i + 2] = nn.Identity(), nn.Identity()
        before, i = conv, i + 3

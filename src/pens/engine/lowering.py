# SPDX-License-Identifier: Apache-2.0
"""Layers exchanged for twins that suit a stack of models.

A network runs over all models of a stack through `torch.func.vmap`: the user's own forward code, written for one model
and a batch [batch, ...], with every tensor secretly carrying a peer axis. That is always right, but some layers
deserve a twin:

`Conv2d`. Under vmap a convolution becomes one with as many groups as there are peers, which libraries do badly. The
twin gathers the kernel's taps as shifted slices (channels last) and multiplies once: vmap then makes it a single
batched matrix product. Its output is a channels-first view of channels-last memory, so that layers in a row copy
nothing. Grouped convolutions and padding other than zeros keep their own code.

`Conv2d`, `ReLU`, `MaxPool2d(2)` in a row. On a GPU the three are one kernel, in which patches are never written
(`pens.engine.fused`). `Linear`, with a `ReLU` behind it, likewise (`pens.engine.fused_linear`).

The same on a CPU, with or without ReLU and pooling: a compiled kernel (`pens.engine.compiled_conv`), where compiling is
worth it.

`GroupNorm`. Copies its input to channels-first memory before its own code.

`Dropout`. Its random numbers must belong to the peer, not to the batch that the peer happens to be computed in. The
twin draws them from a key that is handed in with each call, by a hash of the position.
"""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pens.engine.bits import random_bits
from pens.engine.gradient_buffers import GradientBuffers
from pens.engine.patterns import is_plain_convolution
from pens.errors import ModelError


class SlicedConv2d(nn.Conv2d):
    """A convolution as shifted slices and one matrix product."""

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, channel, height, width] → [batch, out channel, height, width]"""
        top, left = (p if isinstance(p, int) else 0 for p in self.padding)
        if top or left:
            x = F.pad(x, (left, left, top, top))
        rows, cols = self.kernel_size
        height = _positions(x.shape[-2], rows, self.stride[0], self.dilation[0])
        width = _positions(x.shape[-1], cols, self.stride[1], self.dilation[1])
        last = x.permute(0, 2, 3, 1)  # [batch, height, width, channel]
        taps = [
            last[
                :,
                _tap(i, self.dilation[0], self.stride[0], height),
                _tap(j, self.dilation[1], self.stride[1], width),
            ]
            for i in range(rows)
            for j in range(cols)
        ]
        patches = torch.cat(taps, -1).reshape(x.shape[0] * height * width, -1)
        kernel = self.weight.permute(2, 3, 1, 0).reshape(-1, self.out_channels)  # [tap × channel, out channel]
        out = patches @ kernel
        if self.bias is not None:
            out = out + self.bias
        return out.view(x.shape[0], height, width, self.out_channels).permute(0, 3, 1, 2)


class ChannelsFirstGroupNorm(nn.GroupNorm):
    """Group normalisation of what a convolution's twin gives: vmap does not know it in channels-last memory."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.contiguous())


@dataclass
class Noise:
    """The key of the current call's random numbers, shared by all dropout layers of one network."""

    key: Tensor | None = None
    calls: int = 0

    def bits(self, count: int) -> Tensor:
        """Fresh uniform integers in [0, 2³²), different for each call within a forward pass."""
        if self.key is None:
            raise ModelError("dropout in training needs a key: this is a fault of pens")
        self.calls += 1
        return random_bits(self.key ^ (self.calls * 0x1E3779B97F4A7C15 % 2**63), count)


class KeyedDropout(nn.Module):
    """Dropout whose mask is a function of the peer's key. `channels` drops whole feature maps (Dropout1d to 3d)."""

    def __init__(self, p: float, channels: bool, noise: Noise) -> None:
        super().__init__()
        self.p, self.channels, self.noise = p, channels, noise

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:])) if self.channels else x.shape
        keep = self.noise.bits(math.prod(shape))
        mask = (keep >= int(self.p * 2**32)).to(x.dtype).reshape(shape)
        return x * mask if self.p >= 1 else x * mask / (1 - self.p)


PATHS = {
    "FusedConv2d": "one kernel with the ReLU and pooling behind it",
    "FusedLinear": "one kernel for all peers, with a ReLU behind it",
    "NativeConv2d": "one kernel with the ReLU and pooling behind it",
    "Identity": "part of the kernel before it",
    "SlicedConv2d": "slices and one matrix product",
    "ChannelsFirstGroupNorm": "its own code, under vmap, after a copy",
    "KeyedDropout": "masks from the peer's key",
}
"""What a twin does, by its class."""

Level = Literal["fused", "native", "sliced", "plain"]
"""How far layers are exchanged: a GPU's fused kernels where they fit and slices elsewhere; a CPU's compiled kernels;
slices; dropout alone."""


def lower(module: nn.Module, noise: Noise, homes: GradientBuffers, level: Level, precision: str) -> nn.Module:
    """A copy of a module with its layers exchanged for their twins. Parameter names and values stay."""
    lowered = _lowered(copy.deepcopy(module), noise, level, precision)
    for name, twin in lowered.named_modules():
        if type(twin).__name__ in ("FusedConv2d", "FusedLinear"):
            twin.name, twin.homes = name, homes
    return lowered


def _lowered(module: nn.Module, noise: Noise, level: Level, precision: str) -> nn.Module:
    if type(module) is nn.Dropout:
        return KeyedDropout(module.p, False, noise)
    if type(module) in (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d):
        return KeyedDropout(module.p, True, noise)  # type: ignore[arg-type]
    if level == "fused":
        _fuse(module, precision)
    if level != "plain" and type(module) is nn.GroupNorm:
        module.__class__ = ChannelsFirstGroupNorm
    if level == "native":
        from pens.engine.compiled_conv import exchange  # compiles

        exchange(module)
    elif level != "plain" and is_plain_convolution(module):
        module.__class__ = SlicedConv2d
    for name, child in module._modules.items():  # unlike named_children, with a layer that is used twice
        if child is not None:
            setattr(module, name, _lowered(child, noise, level, precision))
    return module


def _fuse(module: nn.Module, precision: str) -> None:
    """Exchange what there are kernels for. They need Triton, which comes with PyTorch's CUDA builds."""
    from pens.engine.fused import fuse
    from pens.engine.fused_linear import fuse_linear

    if isinstance(module, nn.Sequential):
        fuse(module, precision)
        layers = list(module)
        for i, (layer, behind) in enumerate(itertools.pairwise(layers)):
            if type(behind) is nn.ReLU and fuse_linear(layer, precision, relu=True):
                module[i + 1] = nn.Identity()
    fuse_linear(module, precision)


def kernel_orders(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """{name: order of dimensions} of the kernels that twins multiply by, each as [tap × channel, out channel]."""
    twins = ("FusedConv2d", "SlicedConv2d")
    return {f"{n}.weight".lstrip("."): (2, 3, 1, 0) for n, m in module.named_modules() if type(m).__name__ in twins}


def _positions(size: int, kernel: int, stride: int, dilation: int) -> int:
    return (size - dilation * (kernel - 1) - 1) // stride + 1


def _tap(offset: int, dilation: int, stride: int, positions: int) -> slice:
    start = offset * dilation
    return slice(start, start + (positions - 1) * stride + 1, stride)

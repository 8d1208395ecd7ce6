# SPDX-License-Identifier: Apache-2.0
"""Lowering: exchanges layers for replacement layers that suit a stack of models.

A network runs over all models of a stack through `torch.func.vmap`: the user's own forward code is written for one
model and a batch [batch, ...], and vmap adds a peer axis to every tensor. The result is always right, but for some
layers another way of computing it is much faster, or is needed for reproducible results:

`Conv2d`. Under vmap a convolution becomes one with as many groups as there are peers, which libraries compute slowly.
The replacement layer gathers the kernel's taps as shifted slices (channels last) and multiplies once, so that vmap
makes it a single batched matrix product. Its output is a channels-first view of channels-last memory, so that layers
that follow each other copy nothing. Grouped convolutions and padding other than zeros keep their own code.

`Conv2d`, `ReLU` and `MaxPool2d(2)` in a row. On a GPU the three layers are one kernel, which never writes patches to
memory (`pens.engine.fused`). `Linear`, together with a `ReLU` behind it, is one kernel, too
(`pens.engine.fused_linear`). On a CPU a convolution, with or without the ReLU and the pooling, is a compiled kernel
(`pens.engine.compiled_conv`) in runs for which compiling is worth its time.

Frozen modules keep their own code (`pens.engine.frozen`).

`GroupNorm`. The replacement layer copies its input to channels-first memory before it runs the layer's own code.

`Dropout`. Its random numbers must depend on the peer, not on the batch that the peer happens to be computed in. The
replacement layer derives them from a key that is passed in with each call, by a hash of the position.

`Embedding`. Under vmap PyTorch trains the vector of padding, too; the replacement layer does not.

`BatchNorm1d` to `3d`. Their statistics must be those of real samples, and not of padding (`pens.engine.batch_norm`).

`RNN`, `LSTM`, `GRU` and their cells. vmap cannot run PyTorch's own (`pens.engine.recurrent`).
"""

from __future__ import annotations

import itertools
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pens.engine.batch_norm import replace_batch_norm
from pens.engine.calls import Call
from pens.engine.frozen import copied, is_frozen
from pens.engine.gradient_buffers import GradientBuffers
from pens.engine.keyed import dropped
from pens.engine.patterns import is_plain_convolution
from pens.engine.recurrent import NAMES, replace_recurrent


class SlicedConv2d(nn.Conv2d):
    """Computes a convolution as shifted slices and one matrix product."""

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
    """Group normalisation of channels-last memory, which convolutions of this module give and vmap does not support."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.contiguous())


class MeanPool2d(nn.AdaptiveAvgPool2d):
    """Average pooling to one pixel. PyTorch's own code changes strides in place, which vmap does not support."""

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, channel, height, width] → [batch, channel, 1, 1]"""
        return x.mean((-2, -1), keepdim=True)


class KeyedDropout(nn.Module):
    """Dropout whose mask is a function of the peer's key. `channels` drops whole feature maps (Dropout1d to 3d)."""

    def __init__(self, p: float, channels: bool, call: Call) -> None:
        super().__init__()
        self.p, self.channels, self.call = p, channels, call

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        shape = (*x.shape[:2], *(1 for _ in x.shape[2:])) if self.channels else x.shape
        return dropped(self.call, x, self.p, shape)


class PaddedEmbedding(nn.Embedding):
    """An embedding one of whose vectors is not trained. PyTorch trains it, too, under vmap."""

    def forward(self, input: Tensor) -> Tensor:
        """input [...] → [..., number]"""
        assert self.padding_idx is not None
        found = super().forward(input)
        return torch.where(torch.eq(input, self.padding_idx).unsqueeze(-1), found.detach(), found)


PATHS = {
    "FusedConv2d": "one kernel with the ReLU and pooling behind it",
    "FusedLinear": "one kernel for all peers, with a ReLU behind it",
    "CompiledConv2d": "one kernel with the ReLU and pooling behind it",
    "Identity": "part of the kernel before it",
    "SlicedConv2d": "slices and one matrix product",
    "ChannelsFirstGroupNorm": "its own code, under vmap, after a copy",
    "MeanPool2d": "a mean",
    "PaddedEmbedding": "its own code, under vmap, with the padding's gradient set to zero",
    "KeyedDropout": "masks from the peer's key",
    **dict.fromkeys(NAMES, "matrix products, step by step"),
    **{f"MaskedBatchNorm{n}d": "statistics of the real samples of each batch" for n in (1, 2, 3)},
}
"""How a replacement layer computes, in words for users, by its class."""

Level = Literal["fused", "compiled", "sliced", "plain"]
"""Which layers are exchanged. fused: for a GPU's kernels where they fit, and slices elsewhere; compiled: for a CPU's
kernels; sliced: for slices; plain: only what a stack cannot do without."""


def lower(module: nn.Module, call: Call, buffers: GradientBuffers, level: Level, precision: str) -> nn.Module:
    """A copy of a module in which layers are exchanged for replacement layers. Parameter names and values stay."""
    lowered = _lowered(copied(module), call, level, precision)
    for name, layer in lowered.named_modules():
        if type(layer).__name__ in ("FusedConv2d", "FusedLinear"):
            layer.name, layer.gradient_buffers = name, buffers
    return lowered


def _lowered(module: nn.Module, call: Call, level: Level, precision: str) -> nn.Module:
    if is_frozen(module):
        return module
    if type(module) is nn.Dropout:
        return KeyedDropout(module.p, False, call)
    if type(module) in (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d):
        return KeyedDropout(module.p, True, call)  # type: ignore[arg-type]
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        module.sparse = False  # an optimizer steps over rows, which hold every number's gradient
    if type(module) is nn.Embedding and module.padding_idx is not None:
        module.__class__ = PaddedEmbedding
    replace_batch_norm(module, call)
    replace_recurrent(module, call)
    if level == "fused":
        _fuse(module, precision)
    if level != "plain" and type(module) is nn.GroupNorm:
        module.__class__ = ChannelsFirstGroupNorm
    if level != "plain" and type(module) is nn.AdaptiveAvgPool2d and module.output_size in (1, (1, 1)):
        module.__class__ = MeanPool2d
    if level == "compiled":
        from pens.engine.compiled_conv import exchange  # only here: the import compiles the kernels

        exchange(module)
    elif level != "plain" and is_plain_convolution(module):
        module.__class__ = SlicedConv2d
    for name, child in module._modules.items():  # unlike named_children, with a layer that is used twice
        if child is not None:
            setattr(module, name, _lowered(child, call, level, precision))
    return module


def _fuse(module: nn.Module, precision: str) -> None:
    """Exchange the layers for which there are GPU kernels. They need Triton, which comes with PyTorch's CUDA builds."""
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
    """The kernels that replacement layers use as [tap × channel, out channel].  → {name: order of dimensions}"""
    reordered = ("FusedConv2d", "SlicedConv2d")
    return {f"{n}.weight".lstrip("."): (2, 3, 1, 0) for n, m in module.named_modules() if type(m).__name__ in reordered}


def _positions(size: int, kernel: int, stride: int, dilation: int) -> int:
    return (size - dilation * (kernel - 1) - 1) // stride + 1


def _tap(offset: int, dilation: int, stride: int, positions: int) -> slice:
    start = offset * dilation
    return slice(start, start + (positions - 1) * stride + 1, stride)

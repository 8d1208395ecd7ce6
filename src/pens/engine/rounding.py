# SPDX-License-Identifier: Apache-2.0
"""What becomes of a model's numbers on their way to another peer: fp32 as they are, fp16 or int8 rounded.

The codec of the network and the simulator round by the functions here, so that what a simulation says about a form
holds for the network bit by bit.

fp16: each number is rounded to the nearest half-precision one.

int8: a number is a whole multiple, −127 … 127, of its output channel's scale (the tensor's first axis), which is the
channel's largest magnitude / 127. One scale per channel costs four bytes in some hundreds (why it is
worth them: docs/decisions/0020-wire-forms.md). Tensors with fewer than two axes, biases and running averages, stay
fp32: they are few, and a single large variance would wipe out the small ones beside it.

A tensor that a form cannot hold (fp16 ends at 65,504) travels as fp32. So rounding is total: what is finite stays
finite, no number is clipped, and a peer with one odd tensor neither falls silent nor sends something else.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pens.engine.layout import Layout
from pens.settings.schema import WireForm

_LARGEST = 127


def to_int8(tensors: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest multiples of each channel's scale.  [model, channel, ...] → (int8 alike, scales [model, channel])"""
    channels = tensors.flatten(2)
    scales = channels.abs().amax(2) / _LARGEST
    scales = torch.where(scales > 0, scales, 1.0)
    multiples = (channels / scales[..., None]).round_().clamp_(-_LARGEST, _LARGEST)
    return multiples.to(torch.int8).reshape(tensors.shape), scales


def from_int8(multiples: Tensor, scales: Tensor) -> Tensor:
    """The numbers that stand for them.  (int8 [model, channel, ...], scales [model, channel]) → fp32"""
    return (multiples.flatten(2).float() * scales[..., None]).reshape(multiples.shape)


def is_rounded(tensor: Tensor, form: WireForm) -> bool:
    """Whether a form would round a tensor at all.  [model, ...]"""
    if tensor.dtype != torch.float32 or not tensor.numel():
        return False
    return form == "fp16" or (form == "int8" and tensor.dim() > 2)


def round_tensors(tensors: Tensor, form: WireForm) -> Tensor:
    """One tensor of several models, as receivers get it.  [model, ...] → fp32, alike"""
    if not is_rounded(tensors, form):
        return tensors
    rounded = tensors.half().float() if form == "fp16" else from_int8(*to_int8(tensors))
    held = torch.isfinite(rounded).reshape(len(rounded), -1).all(1)
    return torch.where(held.view(-1, *[1] * (tensors.dim() - 1)), rounded, tensors)


def round_rows(rows: Tensor, layout: Layout, form: WireForm) -> Tensor:
    """Whole models, as receivers get them.  [model, size] → alike"""
    rounded = rows.clone()
    for place in (*layout.trained, *layout.kept):
        place.view(rounded).copy_(round_tensors(place.view(rows), form))
    return rounded


def model_bytes(layout: Layout, form: WireForm) -> int:
    """What a model's numbers weigh in a form, with their scales and without any header."""
    return sum(_tensor_bytes(place.shape, form) for place in (*layout.trained, *layout.kept))


def _tensor_bytes(shape: torch.Size, form: WireForm) -> int:
    if form == "int8" and len(shape) > 1:
        return shape.numel() + 4 * shape[0]
    return shape.numel() * (2 if form == "fp16" else 4)

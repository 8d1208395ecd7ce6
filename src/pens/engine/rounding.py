# SPDX-License-Identifier: Apache-2.0
"""Rounds a model's numbers as they are rounded on their way to another peer: not at all (fp32), to fp16, or to int8.

The codec of the network and the simulator both round by the functions here, so that what a simulation says about a wire
form holds for the network bit by bit.

fp16: each number is rounded to the nearest half-precision number.

int8: each number is rounded to a whole multiple, −127 … 127, of the scale of its output channel (the tensor's first
axis). The scale is the channel's largest magnitude / 127. One scale per channel costs four bytes in some hundreds
(docs/decisions/0020-wire-forms.md says why it is worth them). Tensors with fewer than two axes (biases and running
averages) stay fp32: they are few, and a single large variance would round the small ones beside it to zero.

A tensor that a form cannot hold (fp16 ends at 65,504) travels as fp32. So every finite model can be rounded: finite
numbers stay finite, no number is clipped, and a peer with one unusual tensor can still send its model.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from pens.engine.layout import Layout
from pens.settings.schema import WireForm

_LARGEST = 127


def to_int8(tensors: Tensor) -> tuple[Tensor, Tensor]:
    """Round to the nearest multiples of each channel's scale.
    [model, channel, ...] → (int8 of the same shape, scales [model, channel])"""
    channels = tensors.flatten(2)
    scales = channels.abs().amax(2) / _LARGEST
    scales = torch.where(scales > 0, scales, 1.0)
    multiples = (channels / scales[..., None]).round_().clamp_(-_LARGEST, _LARGEST)
    return multiples.to(torch.int8).reshape(tensors.shape), scales


def from_int8(multiples: Tensor, scales: Tensor) -> Tensor:
    """Turn multiples back into numbers.  (int8 [model, channel, ...], scales [model, channel]) → fp32"""
    return (multiples.flatten(2).float() * scales[..., None]).reshape(multiples.shape)


def is_rounded(tensor: Tensor, form: WireForm) -> bool:
    """Whether a wire form would round a tensor at all.  [model, ...]"""
    if tensor.dtype != torch.float32 or not tensor.numel():
        return False
    return form == "fp16" or (form == "int8" and tensor.dim() > 2)


def round_tensors(tensors: Tensor, form: WireForm) -> Tensor:
    """One tensor of several models, as receivers get it.  [model, ...] → fp32 of the same shape"""
    if not is_rounded(tensors, form):
        return tensors
    rounded = tensors.half().float() if form == "fp16" else from_int8(*to_int8(tensors))
    held = torch.isfinite(rounded).reshape(len(rounded), -1).all(1)
    return torch.where(held.view(-1, *[1] * (tensors.dim() - 1)), rounded, tensors)


def round_rows(rows: Tensor, layout: Layout, form: WireForm) -> Tensor:
    """Whole models, as receivers get them.  [model, size] → [model, size]"""
    rounded = rows.clone()
    for place in (*layout.trained, *layout.kept):
        place.view(rounded).copy_(round_tensors(place.view(rows), form))
    return rounded


def model_bytes(layout: Layout, form: WireForm, names: Collection[str] | None = None) -> int:
    """The bytes of a model's numbers in a wire form, with scales and without any header. `names`: of these tensors;
    None: of all."""
    places = (place for place in (*layout.trained, *layout.kept) if names is None or place.name in names)
    return sum(_tensor_bytes(place.shape, form) for place in places)


def _tensor_bytes(shape: torch.Size, form: WireForm) -> int:
    if form == "int8" and len(shape) > 1:
        return shape.numel() + 4 * shape[0]
    return shape.numel() * (2 if form == "fp16" else 4)

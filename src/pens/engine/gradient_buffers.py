# SPDX-License-Identifier: Apache-2.0
"""Gradient buffers: the memory in which a step wants each parameter's gradient to lie.

An optimizer steps over rows in which all gradients of a peer lie side by side. A kernel that computes a gradient can
write it there directly; all other gradients are copied. Before each step the buffers are offered by parameter name. A
replacement layer takes the buffers of its own parameters when it runs forward, and its backward pass writes into them.
A buffer is taken once: when a layer runs twice in a step, the second gradient gets memory of its own, and PyTorch adds
the two up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pens.engine.layout import Layout, Place


@dataclass(frozen=True)
class Wanted:
    """The buffers for a layer's two gradients; None: the gradient may lie anywhere."""

    weight: Tensor | None = None
    bias: Tensor | None = None

    def memory(self, weight: tuple[int, ...], bias: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
        """Memory for gradients of these shapes: the buffers where there are any, else new memory."""
        return _memory(self.weight, weight, device), _memory(self.bias, bias, device)


class GradientBuffers:
    """Offers buffers to the layers of one network, and collects the gradients that were written elsewhere."""

    def __init__(self) -> None:
        self._offered: dict[str, Tensor] = {}

    def offer(self, layout: Layout, rows: Tensor) -> None:
        """Offer the parts of `rows` for the next forward pass, in place of those of the last.  [peer, num_trained]"""
        self._offered = layout.parts(rows)

    def take(self, layer: str) -> Wanted:
        """The buffers of a layer's parameters, by the layer's name. They are not offered again in this step."""
        weight, bias = (self._offered.pop(f"{layer}.{part}".lstrip("."), None) for part in ("weight", "bias"))
        return Wanted(weight, bias)

    @staticmethod
    def collect(places: Sequence[Place], rows: Tensor, gradients: Sequence[Tensor]) -> None:
        """Copy the gradients of some trained parameters into `rows`, except those that lie there already.

        rows [peer, num_trained], gradients [peer, *shape] each, in the order of their places
        """
        for place, gradient in zip(places, gradients, strict=True):
            buffer = place.view(rows)
            if gradient.data_ptr() != buffer.data_ptr():
                buffer.copy_(gradient)


def _memory(buffer: Tensor | None, shape: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.empty(shape, device=device) if buffer is None else buffer.view(shape)

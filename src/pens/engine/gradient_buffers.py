# SPDX-License-Identifier: Apache-2.0
"""GradientBuffers of gradients: the memory where a step wants each parameter's gradient to lie.

An optimizer steps over rows in which all of a peer's gradients lie side by side. A kernel that makes a gradient can
write it there at once, where everything else is copied. Before each step the homes are offered by parameter name; the
twin of a layer takes its own when it runs forward, and its backward pass writes there. A home is taken once: when a
layer runs twice, the second gradient gets memory of its own, and the library adds them up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Wanted:
    """Where a layer's two gradients shall lie; None: anywhere."""

    weight: Tensor | None = None
    bias: Tensor | None = None

    def memory(self, weight: tuple[int, ...], bias: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
        """Memory for gradients of these shapes."""
        return _memory(self.weight, weight, device), _memory(self.bias, bias, device)


class GradientBuffers:
    """GradientBuffers by parameter name, flat.  [peer, numbers]"""

    def __init__(self) -> None:
        self._open: dict[str, Tensor] = {}

    def offer(self, homes: Mapping[str, Tensor]) -> None:
        """For the next forward pass, in place of those of the last."""
        self._open = dict(homes)

    def take(self, layer: str) -> Wanted:
        """A layer's own, by its name."""
        weight, bias = (self._open.pop(f"{layer}.{part}".lstrip("."), None) for part in ("weight", "bias"))
        return Wanted(weight, bias)


def _memory(home: Tensor | None, shape: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.empty(shape, device=device) if home is None else home.view(shape)

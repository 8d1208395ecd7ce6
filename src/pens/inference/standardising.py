# SPDX-License-Identifier: Apache-2.0
"""A peer's network behind its standardisation, so that it takes inputs as the peer has them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pens.data.preparation import Standard


class Standardising(nn.Module):
    """Standardises inputs, as the peer's training data were, and then calls the network."""

    shift: Tensor
    scale: Tensor

    def __init__(self, network: nn.Module, standard: Standard) -> None:
        super().__init__()
        self.network = network
        # in double precision, as before the training: large numbers that differ little, such as dates, keep apart
        self.register_buffer("shift", torch.tensor(standard.shift, dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(standard.scale, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """x [sample, ...], real numbers → what the network returns"""
        scores: Tensor = self.network(((x.to(self.shift.dtype) - self.shift) / self.scale).to(x.dtype))
        return scores


def name_of(module: nn.Module) -> str:
    """The class of a network, as error messages name it."""
    return type(module.network if isinstance(module, Standardising) else module).__name__

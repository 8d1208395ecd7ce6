# SPDX-License-Identifier: Apache-2.0
"""Which layers, and which layers in a row, the kernels know."""

from __future__ import annotations

from typing import TypeGuard

from torch import nn


def is_plain_convolution(layer: nn.Module) -> TypeGuard[nn.Conv2d]:
    """A convolution of all channels, padded with zeros by a number."""
    return (
        type(layer) is nn.Conv2d
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    )


def is_halving(layer: nn.Module) -> bool:
    """Max pooling of 2 × 2."""
    return (
        type(layer) is nn.MaxPool2d
        and layer.kernel_size in (2, (2, 2))
        and layer.stride in (2, (2, 2))
        and layer.padding in (0, (0, 0))
        and layer.dilation in (1, (1, 1))
        and not layer.ceil_mode
        and not layer.return_indices
    )

# SPDX-License-Identifier: Apache-2.0
"""Recognises the layers that the kernels can compute."""

from __future__ import annotations

from typing import TypeGuard

from torch import nn


def is_plain_convolution(layer: nn.Module) -> TypeGuard[nn.Conv2d]:
    """Whether a layer is a convolution without groups, padded with zeros by a given number of pixels."""
    return (
        type(layer) is nn.Conv2d
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and all(p.requires_grad for p in layer.parameters())
    )


def is_halving(layer: nn.Module) -> bool:
    """Whether a layer is 2 × 2 max pooling."""
    return (
        type(layer) is nn.MaxPool2d
        and layer.kernel_size in (2, (2, 2))
        and layer.stride in (2, (2, 2))
        and layer.padding in (0, (0, 0))
        and layer.dilation in (1, (1, 1))
        and not layer.ceil_mode
        and not layer.return_indices
    )

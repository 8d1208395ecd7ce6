# SPDX-License-Identifier: Apache-2.0
"""Random numbers in bulk, computed on the device: a stateless hash of (key, position), with one row per key.

A row depends on its own key only. It depends neither on the other rows nor on the device, and a longer row begins with
the numbers of a shorter one. So the shuffles and dropout masks of a peer do not depend on which peers are computed
together.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MASK32 = 0xFFFFFFFF


def random_bits(keys: Tensor, count: int) -> Tensor:
    """Uniform integers in [0, 2³²).  keys [...] int64 → [..., count] int64"""
    low = (keys & _MASK32).unsqueeze(-1)
    high = (keys >> 32).unsqueeze(-1)
    position = torch.arange(count, device=keys.device, dtype=torch.int64)
    return _scramble(_scramble(_scramble(position) ^ low) ^ high)


def _scramble(x: Tensor) -> Tensor:
    """A bijection of 32-bit integers in which every input bit affects every output bit (xor-shift and multiply)."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD & _MASK32
    x = (x ^ (x >> 15)) * 0x735A2D97 & _MASK32
    return x ^ (x >> 15)

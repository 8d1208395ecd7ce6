# SPDX-License-Identifier: Apache-2.0
"""Random numbers in bulk, computed where the tensors are: a stateless hash of (key, position), one row per key.

A row depends on its own key only, neither on the other rows nor on the device, and a longer row begins like a shorter
one. So a peer's shuffles and dropout masks are the same whoever it is computed with.
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
    """A bijection of 32-bit integers in which every input bit moves every output bit (xor-shift and multiply)."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD & _MASK32
    x = (x ^ (x >> 15)) * 0x735A2D97 & _MASK32
    return x ^ (x >> 15)

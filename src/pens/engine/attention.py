# SPDX-License-Identifier: Apache-2.0
"""Attention within a stack of models: by matrix products and a softmax, never by PyTorch's fused kernels.

`scaled_dot_product_attention` picks a fused kernel by the shapes of its inputs, and vmap does not serve those kernels
well. The CUDA kernel that saves memory refuses the gradients of a stack ("LSE is not correctly aligned (strideH)"), and
the one for a CPU runs model by model, with a warning. The fused forward passes of
`nn.TransformerEncoderLayer` and `nn.MultiheadAttention`, which PyTorch takes in evaluation, run model by model, too.
The plain form is a few batched matrix products, which is what a stack is good at. It keeps the attention weights for
the backward pass, where a fused kernel would not: the chunks of a stack are sized accordingly.

The choice of a kernel is made in the forward pass; a backward pass follows it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.backends import cuda, mha

_SWITCHES: tuple[tuple[Callable[[], bool], Callable[[bool], Any], bool], ...] = (
    (cuda.math_sdp_enabled, cuda.enable_math_sdp, True),
    (cuda.flash_sdp_enabled, cuda.enable_flash_sdp, False),
    (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp, False),
    (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp, False),
    (mha.get_fastpath_enabled, mha.set_fastpath_enabled, False),
)
"""How each is read and set, and what it is set to. PyTorch keeps all of them, those of a CPU too, under these names."""
_lock = threading.Lock()
_users = 0
_before: list[bool] = []


@contextmanager
def plain_attention() -> Iterator[None]:
    """No fused attention within. PyTorch keeps these settings for the whole process, and several cores run networks at
    the same time: the first to enter changes them, and the last to leave puts back what was there. (PyTorch's own
    `sdpa_kernel` would put them back when the first leaves, and takes a tenth of a millisecond, in every step.)"""
    global _users
    with _lock:
        if not _users:
            _before[:] = [read() for read, _, _ in _SWITCHES]
            for _, put, wanted in _SWITCHES:
                put(wanted)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                for (_, put, _), value in zip(_SWITCHES, _before, strict=True):
                    put(value)

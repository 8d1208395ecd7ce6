# SPDX-License-Identifier: Apache-2.0
"""Makes attention in a stack of models run as matrix products and a softmax, without PyTorch's fused kernels.

`scaled_dot_product_attention` picks a fused kernel by the shapes of its inputs, and vmap does not serve those kernels
well. The CUDA kernel that saves memory refuses the gradients of a stack ("LSE is not correctly aligned (strideH)"), and
the one for a CPU runs model by model, with a warning. The fused forward passes of
`nn.TransformerEncoderLayer` and `nn.MultiheadAttention`, which PyTorch takes in evaluation, run model by model, too.
The plain form is a few batched matrix products, which a stack computes well. It keeps the attention weights for the
backward pass, which a fused kernel does not, and the chunks of a stack are sized for that.

PyTorch chooses a kernel in the forward pass; the backward pass uses the same one.
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
"""(how a switch is read, how it is set, the wanted value). PyTorch's names, for a CPU's switches, too."""
_lock = threading.Lock()
_users = 0
_before: list[bool] = []


@contextmanager
def plain_attention() -> Iterator[None]:
    """Within this context PyTorch uses no fused attention. PyTorch keeps these settings for the whole process, and
    several threads run networks at the same time: the first thread to enter changes the settings, and the last to leave
    restores them. (PyTorch's own `sdpa_kernel` would restore them when the first thread leaves, and takes a tenth of a
    millisecond in every step.)"""
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

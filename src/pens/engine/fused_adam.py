# SPDX-License-Identifier: Apache-2.0
"""Takes one Adam step over all rows as one Triton kernel, which reads and writes each number once.

As separate operations the step makes some ten passes over [peer, parameter]. Only memory limits it, so a single pass is
several times faster. The bias corrections depend on how many steps a peer has taken, and are looked up in a table.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

# ruff: noqa: N803  (Triton's constants are written in capitals)
_BLOCK = 1024


@triton.jit
def _step(
    row_ptr, gradient_ptr, mean_ptr, square_ptr, taken_ptr, table_ptr, active_ptr, stride, size, decay,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr, SOME: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    peer = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = place < size
    if SOME:
        here = here & (tl.load(active_ptr + peer) != 0)
    taken = tl.load(taken_ptr + peer)
    rate = tl.load(table_ptr + 2 * taken)
    root = tl.load(table_ptr + 2 * taken + 1)
    row = tl.load(row_ptr + peer * stride + place, mask=here)
    gradient = tl.load(gradient_ptr + peer * size + place, mask=here) + decay * row
    mean = tl.load(mean_ptr + peer * size + place, mask=here)
    square = tl.load(square_ptr + peer * size + place, mask=here)
    mean += (gradient - mean) * (1 - BETA1)
    square = square * BETA2 + gradient * gradient * (1 - BETA2)
    row -= mean / (tl.sqrt(square) / root + EPSILON) * rate
    tl.store(mean_ptr + peer * size + place, mean, mask=here)
    tl.store(square_ptr + peer * size + place, square, mask=here)
    tl.store(row_ptr + peer * stride + place, row, mask=here)


def adam_step(
    rows: Tensor,
    gradients: Tensor,
    mean: Tensor,
    square: Tensor,
    taken: Tensor,
    corrections: Tensor,
    active: Tensor | None,
    decay: float,
    betas: tuple[float, float],
    epsilon: float,
) -> None:
    """Change rows, mean and square in place.  rows [peer, parameter] (rows may lie apart), taken [peer]

    `corrections` [step, 2]: lr / (1 − β₁ᵗ) and √(1 − β₂ᵗ), t being the steps `taken`, this one included.
    """
    peers, size = gradients.shape
    _step[(peers, triton.cdiv(size, _BLOCK))](
        rows, gradients, mean, square, taken, corrections, taken if active is None else active,
        rows.stride(0), size, decay,
        BETA1=betas[0], BETA2=betas[1], EPSILON=epsilon, SOME=active is not None, BLOCK=_BLOCK,
    )  # fmt: skip

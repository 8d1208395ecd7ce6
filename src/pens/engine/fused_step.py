"""The two ends of a training step as one Triton kernel each: fetching a batch, and the loss with its slope.

Both are small work spread over many operations: tables looked up by the number of the step, samples gathered, a
logarithm of a sum of exponentials and its derivative. Launched one by one they take as long as a convolution.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pens.engine.batches import SampleStack, Visits

# ruff: noqa: N803  (Triton's constants are written in capitals)

_BLOCK = 1024
_MOST_SCORES = 1 << 14  # batch × classes of one peer, held in registers


@triton.jit
def _fetch(
    at_ptr, slot_ptr, index_ptr, weight_ptr, keys_ptr, active_ptr, share_ptr, x_ptr, y_ptr,
    to_x, to_y, to_weight, to_keys, to_active, to_share,
    PEERS, BATCH, LONGEST, SIZE, BLOCK: tl.constexpr,
):  # fmt: skip
    peer = tl.program_id(0).to(tl.int64)
    sample = tl.program_id(1)
    row = tl.load(at_ptr) * PEERS + peer
    target = peer * BATCH + sample
    source = tl.load(slot_ptr + peer) * LONGEST + tl.load(index_ptr + row * BATCH + sample)
    number = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x_ptr + source * SIZE + number, mask=number < SIZE)
    tl.store(to_x + target * SIZE + number, values, mask=number < SIZE)
    if tl.program_id(2) == 0:
        tl.store(to_y + target, tl.load(y_ptr + source))
        tl.store(to_weight + target, tl.load(weight_ptr + row * BATCH + sample))
        if sample == 0:
            tl.store(to_keys + peer, tl.load(keys_ptr + row))
            tl.store(to_active + peer, tl.load(active_ptr + row))
            tl.store(to_share + peer, tl.load(share_ptr + row))


@triton.jit
def _loss(
    scores_ptr, y_ptr, weight_ptr, losses_ptr, slopes_ptr,
    BATCH: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    peer = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)
    kind = tl.arange(0, WIDE)
    inside = (row < BATCH)[:, None] & (kind < CLASSES)[None, :]
    place = (peer * BATCH + row[:, None]) * CLASSES + kind[None, :]
    scores = tl.load(scores_ptr + place, mask=inside, other=float("-inf"))
    scores = tl.where((row < BATCH)[:, None], scores, 0.0)
    y = tl.load(y_ptr + peer * BATCH + row, mask=row < BATCH, other=0)
    weight = tl.load(weight_ptr + peer * BATCH + row, mask=row < BATCH, other=0.0)
    right = kind[None, :] == y[:, None]
    above = scores - tl.max(scores, 1)[:, None]
    exponentials = tl.exp(above)
    total = tl.sum(exponentials, 1)
    losses = tl.log(total) - tl.sum(tl.where(right, above, 0.0), 1)
    tl.store(losses_ptr + peer, tl.sum(losses * weight, 0))
    slopes = (exponentials / total[:, None] - tl.where(right, 1.0, 0.0)) * weight[:, None]
    tl.store(slopes_ptr + place, slopes, mask=inside)


def fetch(at: Tensor, slots: Tensor, visits: Visits, data: SampleStack) -> tuple[Tensor, ...]:
    """The batch of step `at`: x [peer, batch, ...], y and weight [peer, batch], keys, active and share [peer]"""
    _, peers, batch = visits.index.shape
    shape = data.x.shape[2:]
    size = shape.numel()
    taken = (
        data.x.new_empty((peers, batch, *shape)),
        data.y.new_empty((peers, batch)),
        visits.weight.new_empty((peers, batch)),
        visits.keys.new_empty(peers),
        visits.active.new_empty(peers),
        visits.share.new_empty(peers),
    )
    _fetch[(peers, batch, triton.cdiv(size, _BLOCK))](
        at, slots, visits.index, visits.weight, visits.keys, visits.active.view(torch.int8), visits.share,
        data.x, data.y, *taken[:4], taken[4].view(torch.int8), taken[5],
        peers, batch, data.longest, size, BLOCK=min(_BLOCK, triton.next_power_of_2(size)),
    )  # fmt: skip
    return taken


def can_measure(batch: int, classes: int) -> bool:
    """Whether the loss of one peer fits a program."""
    return bool(triton.next_power_of_2(batch) * triton.next_power_of_2(classes) <= _MOST_SCORES)


def losses_and_slopes(scores: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted cross-entropy of each peer's batch, and its derivative by the scores.
    [peer, batch, class], [peer, batch] twice → [peer], [peer, batch, class]"""
    peers, batch, classes = scores.shape
    scores = scores.contiguous()
    losses, slopes = scores.new_empty(peers), torch.empty_like(scores)
    _loss[(peers,)](
        scores, y, weight, losses, slopes,
        batch, classes, ROWS=triton.next_power_of_2(batch), WIDE=triton.next_power_of_2(classes),
        num_warps=1 if classes <= 32 else 4,
    )  # fmt: skip
    return losses, slopes

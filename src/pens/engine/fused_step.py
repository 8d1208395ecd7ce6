# SPDX-License-Identifier: Apache-2.0
"""Computes the two ends of a training step as one Triton kernel each: fetching a batch, and the loss with its gradient.

Both are little work in many operations: tables are looked up by the number of the step, samples are gathered, and a
logarithm of a sum of exponentials and its derivative are computed. Launched one by one, these operations would take as
long as a convolution.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pens.engine.batches import Batch, SampleStack, Visits

# ruff: noqa: N803  (Triton's constants are written in capitals)

_BLOCK = 1024
_MOST_SCORES = 1 << 14  # batch × classes of one peer, held in registers


@triton.jit
def _fetch(
    at_ptr, slot_ptr, index_ptr, weight_ptr, keys_ptr, active_ptr, taken_ptr, share_ptr, x_ptr, y_ptr,
    to_x, to_y, to_weight, to_keys, to_active, to_taken, to_share,
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
            tl.store(to_taken + peer, tl.load(taken_ptr + row))
            tl.store(to_share + peer, tl.load(share_ptr + row))


@triton.jit
def _measure(
    scores_ptr, y_ptr, weight_ptr, share_ptr, slopes_ptr, health_ptr, loss_ptr, at_ptr,
    BATCH: tl.constexpr, CLASSES: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    peer = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)
    label = tl.arange(0, WIDE)
    inside = (row < BATCH)[:, None] & (label < CLASSES)[None, :]
    place = (peer * BATCH + row[:, None]) * CLASSES + label[None, :]
    scores = tl.load(scores_ptr + place, mask=inside, other=float("-inf"))
    scores = tl.where((row < BATCH)[:, None], scores, 0.0)
    y = tl.load(y_ptr + peer * BATCH + row, mask=row < BATCH, other=0)
    weight = tl.load(weight_ptr + peer * BATCH + row, mask=row < BATCH, other=0.0)
    right = label[None, :] == y[:, None]
    above = scores - tl.max(scores, 1)[:, None]
    exponentials = tl.exp(above)
    total = tl.sum(exponentials, 1)
    slopes = (exponentials / total[:, None] - tl.where(right, 1.0, 0.0)) * weight[:, None]
    tl.store(slopes_ptr + place, slopes, mask=inside)
    loss = tl.sum((tl.log(total) - tl.sum(tl.where(right, above, 0.0), 1)) * weight, 0)
    tl.store(health_ptr + peer, tl.load(health_ptr + peer) + loss)
    tl.store(loss_ptr + peer, tl.load(loss_ptr + peer) + loss * tl.load(share_ptr + peer))
    if peer == 0:
        tl.store(at_ptr, tl.load(at_ptr) + 1)


def fetch(at: Tensor, slots: Tensor, visits: Visits, data: SampleStack) -> Batch:
    """The batch of each peer in step `at`.  at [1]"""
    _, peers, batch = visits.index.shape
    shape = data.x.shape[2:]
    size = shape.numel()
    taken = Batch(
        data.x.new_empty((peers, batch, *shape)),
        data.y.new_empty((peers, batch)),
        *(table.new_empty(table.shape[1:]) for name, table in vars(visits).items() if name != "index"),
    )
    _fetch[(peers, batch, triton.cdiv(size, _BLOCK))](
        at, slots, *(_plain(table) for table in vars(visits).values()), data.x, data.y,
        *(_plain(tensor) for tensor in vars(taken).values()),
        peers, batch, data.longest, size, BLOCK=min(_BLOCK, triton.next_power_of_2(size)),
    )  # fmt: skip
    return taken


def _plain(tensor: Tensor) -> Tensor:
    return tensor.view(torch.int8) if tensor.dtype is torch.bool else tensor


def can_measure(batch: int, classes: int) -> bool:
    """Whether the scores of one peer fit into the registers of one program."""
    return bool(triton.next_power_of_2(batch) * triton.next_power_of_2(classes) <= _MOST_SCORES)


def measure(scores: Tensor, batch: Batch, health: Tensor, loss: Tensor, at: Tensor) -> Tensor:
    """The gradient of each peer's loss with respect to its scores. Also adds the loss to `health` and the batch's share
    of it to `loss`, and increases the number of the step.

    scores [peer, batch, class], health and loss [peer], at [1] → [peer, batch, class]"""
    peers, rows, classes = scores.shape
    scores = scores.contiguous()
    slopes = torch.empty_like(scores)
    _measure[(peers,)](
        scores, batch.y, batch.weight, batch.share, slopes, health, loss, at,
        rows, classes, ROWS=triton.next_power_of_2(rows), WIDE=triton.next_power_of_2(classes),
        num_warps=1 if classes <= 32 else 4,
    )  # fmt: skip
    return slopes

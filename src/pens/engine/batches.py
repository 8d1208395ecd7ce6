"""Each peer's samples side by side on the device, and the order in which an update visits them.

Peers may hold different numbers of samples. Shorter ones are padded, and a mask says what is real: a padded sample has
weight zero in its batch, and a peer whose epoch is over sits out the remaining steps.

The order of visits depends on the peer's key alone (`pens.engine.bits`): not on who else is in the stack, how long
their data are, or which back end runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pens.data.samples import Samples
from pens.engine.bits import random_bits

_PAD = 1 << 32  # sorts behind every random number
_DROPOUT = 0x5DEECE66D


class SampleStack:
    """The samples of several holders (peers, or test sets), one slot each. A slot's rows are reached by its number
    and a position below its count, so that no index leads from one holder's samples to another's (law 8)."""

    def __init__(self, holders: Sequence[Samples], device: torch.device) -> None:
        self.counts = [len(h) for h in holders]
        longest = max(self.counts)
        first = _tensor(holders[0])
        self.x = torch.zeros((len(holders), longest, *first.shape[1:]), dtype=first.dtype, device=device)
        self.y = torch.zeros((len(holders), longest), dtype=torch.int64, device=device)
        for slot, holder in enumerate(holders):
            self.x[slot, : len(holder)] = _tensor(holder)
            self.y[slot, : len(holder)] = torch.from_numpy(np.ascontiguousarray(holder.y, dtype=np.int64))

    @property
    def longest(self) -> int:
        return int(self.x.shape[1])

    @property
    def device(self) -> torch.device:
        return self.x.device

    def counts_of(self, slots: Sequence[int]) -> Tensor:
        return torch.tensor([self.counts[s] for s in slots], device=self.device)


@dataclass(frozen=True)
class Step:
    """One step of local training for K peers."""

    index: Tensor
    """Positions in each peer's own samples.  [peer, batch]"""
    weight: Tensor
    """1 / (real samples in the batch), 0 for padding.  [peer, batch]"""
    keys: Tensor
    """For dropout.  [peer]"""
    active: Tensor | None
    """Who has samples left in this epoch.  [peer] bool; None: every holder of the data has."""
    last_epoch: bool


def steps(data: SampleStack, slots: Sequence[int], keys: Tensor, epochs: int, batch_size: int) -> Iterator[Step]:
    """All steps of an update: `epochs` passes over each peer's samples, reshuffled each time.  keys [peer]"""
    counts = data.counts_of(slots)
    num_steps = -(-data.longest // batch_size)
    epoch_keys = keys[:, None] ^ random_bits(keys, epochs)  # [peer, epoch]
    for epoch in range(epochs):
        key = epoch_keys[:, epoch]
        order = _order(key, counts, data.longest, num_steps * batch_size)
        real = torch.arange(order.shape[1], device=order.device) < counts[:, None]
        step_keys = key[:, None] ^ random_bits(key ^ _DROPOUT, num_steps)
        for step in range(num_steps):
            window = slice(step * batch_size, (step + 1) * batch_size)
            weight = real[:, window].float()
            size = weight.sum(1, keepdim=True)
            yield Step(
                index=order[:, window],
                weight=weight / size.clamp(min=1),
                keys=step_keys[:, step],
                active=None if step * batch_size < min(data.counts) else size[:, 0] > 0,
                last_epoch=epoch == epochs - 1,
            )


def _order(keys: Tensor, counts: Tensor, longest: int, length: int) -> Tensor:
    """A random order of each peer's own positions, padded with position 0.  → [peer, length]"""
    bits = random_bits(keys, longest)
    bits = torch.where(torch.arange(longest, device=keys.device) < counts[:, None], bits, _PAD)
    order = torch.argsort(bits, dim=1, stable=True)
    order = torch.where(order < counts[:, None], order, 0)
    return torch.nn.functional.pad(order, (0, length - longest))


def _tensor(samples: Samples) -> Tensor:
    """Real numbers as float32, whole numbers (tokens) as int64."""
    kind = np.int64 if np.issubdtype(samples.x.dtype, np.integer) else np.float32
    return torch.from_numpy(np.ascontiguousarray(samples.x, dtype=kind))

# SPDX-License-Identifier: Apache-2.0
"""Each peer's samples side by side on the device, and the order in which an update visits them.

Peers may hold different numbers of samples. Peers with fewer samples are padded, and a mask marks the real samples: a
padded sample has weight zero in its batch, and a peer whose epoch is over skips the remaining steps.

The order of visits depends on the peer's key alone (`pens.engine.bits`). It does not depend on the other peers of the
stack, on how many samples they hold, or on the back end.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pens.data.samples import Array, Samples
from pens.engine.bits import random_bits

_PAD = 1 << 32  # larger than every random number, so that padding is sorted last
_DROPOUT = 0x5DEECE66D
_SLOTS_AT_ONCE = 256  # slots that are copied to the device together


class SampleStack:
    """The samples of several holders (peers, or test sets), one slot each. A slot's rows are reached by its number
    and a position below its count, so that no index leads from one holder's samples to another's (law 8)."""

    has_features = False
    """Whether the inputs are what the frozen part of a network computed from them."""

    def __init__(
        self, holders: Sequence[Samples], device: torch.device, weights: Sequence[Array] | None = None
    ) -> None:
        """`weights` [sample] of each holder: how much its samples count in training; None: all the same."""
        self.counts = [len(h) for h in holders]
        longest = max(self.counts)
        first, target = _tensor(holders[0].x), _targets(holders)
        self.x = torch.zeros((len(holders), longest, *first.shape[1:]), dtype=first.dtype, device=device)
        self.y = torch.zeros((len(holders), longest, *target.shape[1:]), dtype=target.dtype, device=device)
        self.weights: Tensor | None = None
        """How much each sample counts in training, 1 on average; None: all the same.  [slot, sample]"""
        if weights is not None:
            padded = [np.pad(of, (0, longest - len(of))) for of in weights]
            self.weights = torch.from_numpy(np.stack(padded).astype(np.float32)).to(device)
        for start in range(0, len(holders), _SLOTS_AT_ONCE):
            some = holders[start : start + _SLOTS_AT_ONCE]
            x, y = (table[start : start + len(some)] for table in (self.x, self.y))
            if device.type != "cpu":  # they go to the device together
                x, y = (torch.zeros_like(table, device="cpu") for table in (x, y))
            for slot, holder in enumerate(some):
                x[slot, : len(holder)] = _tensor(holder.x)
                y[slot, : len(holder)] = _tensor(holder.y)
            if device.type != "cpu":
                self.x[start : start + len(some)], self.y[start : start + len(some)] = x, y

    def with_inputs(self, x: Tensor) -> SampleStack:
        """The same samples, with other inputs.  [slot, sample, ...]"""
        other = copy.copy(self)
        other.x, other.has_features = x, True
        return other

    @property
    def longest(self) -> int:
        return int(self.x.shape[1])

    @property
    def device(self) -> torch.device:
        return self.x.device

    def fitting(self, batch_size: int) -> int:
        """A batch size that asks for no more samples than the longest holder has."""
        return min(batch_size, self.longest)

    def steps_per_epoch(self, batch_size: int) -> int:
        return -(-self.longest // batch_size)

    def is_ragged(self, batch_size: int) -> bool:
        """Whether an epoch of some holder takes fewer steps than that of another."""
        return min(self.counts) <= (self.steps_per_epoch(batch_size) - 1) * batch_size

    def counts_of(self, slots: Sequence[int]) -> Tensor:
        return torch.tensor([self.counts[s] for s in slots], device=self.device)


@dataclass(frozen=True)
class Visits:
    """Which samples an update visits at each of its steps, for K peers: tables with a leading step axis."""

    index: Tensor
    """Positions in each peer's own samples.  [step, peer, batch]"""
    weight: Tensor
    """1 / (real samples in the batch), 0 for padding.  [step, peer, batch]"""
    keys: Tensor
    """Keys for random numbers within the network (dropout).  [step, peer]"""
    active: Tensor
    """Whether the peer has samples left in this epoch.  [step, peer] bool"""
    taken: Tensor
    """How many steps the peer has taken, this one included.  [step, peer]"""
    share: Tensor
    """The batch's share of the peer's samples in the last epoch, 0 before.  [step, peer]"""

    def __len__(self) -> int:
        return len(self.index)

    def at(self, step: Tensor) -> Visits:
        """One step's row of every table, without the step axis.  step [1]"""
        return Visits(**{name: table.index_select(0, step)[0] for name, table in vars(self).items()})


@dataclass(frozen=True)
class Batch:
    """The samples and numbers that one training step of K peers computes with."""

    x: Tensor
    """[peer, batch, ...]"""
    y: Tensor
    """[peer, batch, ...]"""
    weight: Tensor
    keys: Tensor
    active: Tensor
    taken: Tensor
    share: Tensor
    """From `weight` on: the row of `Visits` that belongs to this step."""


def plan_visits(
    data: SampleStack, slots: Sequence[int], keys: Tensor, epochs: int, batch_size: int, rounds_up: bool = False
) -> Visits:
    """All steps of an update: `epochs` passes over each peer's samples, reshuffled each time.  keys [peer]

    An epoch has the steps that the peer with the most samples needs; `rounds_up`: or some more, so that few numbers of
    steps occur."""
    counts = data.counts_of(slots)
    longest = max(data.counts[slot] for slot in slots)
    per_epoch = -(-longest // batch_size)
    if rounds_up:
        per_epoch = min(1 << (per_epoch - 1).bit_length(), data.steps_per_epoch(batch_size))
    epoch_keys = keys[:, None] ^ random_bits(keys, epochs)  # [peer, epoch]
    step_keys = epoch_keys[..., None] ^ random_bits(epoch_keys ^ _DROPOUT, per_epoch)  # [peer, epoch, step]
    order = _order(epoch_keys, counts, longest, per_epoch * batch_size)  # [peer, epoch, step × batch]
    real = torch.arange(per_epoch * batch_size, device=keys.device) < counts[:, None]
    real = real.view(len(slots), per_epoch, batch_size).expand(epochs, -1, -1, -1).transpose(1, 2).flatten(0, 1)
    size = real.sum(2)  # [step, peer]
    share = size / counts
    share[: (epochs - 1) * per_epoch] = 0
    return Visits(
        index=order.view(len(slots), epochs * per_epoch, batch_size).transpose(0, 1).contiguous(),
        weight=real / size.clamp(min=1)[..., None],
        keys=step_keys.flatten(1).t().contiguous(),
        active=size > 0,
        taken=(size > 0).cumsum(0),
        share=share,
    )


def _order(keys: Tensor, counts: Tensor, longest: int, length: int) -> Tensor:
    """A random order of each peer's own positions, padded with 0.  keys [peer, epoch] → [peer, epoch, length]"""
    counts = counts[:, None, None]
    bits = random_bits(keys, longest)
    bits = torch.where(torch.arange(longest, device=keys.device) < counts, bits, _PAD)
    order = torch.argsort(bits, dim=-1, stable=True)
    return torch.nn.functional.pad(torch.where(order < counts, order, 0), (0, length - longest))


@dataclass(frozen=True)
class Subset:
    """A random part of each slot's samples, for pairs of a model and a slot. Pairs of the same slot and key see the
    same samples."""

    size: int
    """Samples for each pair, or fewer where the slot has fewer."""
    keys: Sequence[int]
    """One key for each pair."""

    def count(self, available: int) -> int:
        return min(self.size, available)

    def positions(self, data: SampleStack, slots: Sequence[int], pick: Sequence[int]) -> Tensor:
        """The drawn positions for the picked pairs, in ascending order, padded with 0.  → [pair, at most size]"""
        keys = torch.tensor([self.keys[i] for i in pick], device=data.device)
        counts = data.counts_of([slots[i] for i in pick])
        size = self.count(data.longest)
        order = _order(keys[:, None], counts, data.longest, data.longest)[:, 0, :size]
        drawn = torch.arange(size, device=data.device) < counts[:, None]
        ascending = torch.where(drawn, order, data.longest).sort(-1).values
        return torch.where(drawn, ascending, 0)


def _tensor(values: Array) -> Tensor:
    """Inputs or targets as a tensor: real numbers as float32, whole numbers (tokens, classes) as int64."""
    dtype = np.int64 if np.issubdtype(values.dtype, np.integer) else np.float32
    return torch.from_numpy(np.ascontiguousarray(values, dtype=dtype))


def _targets(holders: Sequence[Samples]) -> Tensor:
    """Some targets of the type that all have: real numbers where those of any holder are."""
    some = [holder.y for holder in holders if len(holder)]
    return _tensor(next((y for y in some if not np.issubdtype(y.dtype, np.integer)), some[0]))

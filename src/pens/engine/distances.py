# SPDX-License-Identifier: Apache-2.0
"""How far models lie from each other, without any data: one number for each pair of rows.

Sums are in double precision, block by block. On a CPU each pair is computed by itself, so that no bit of a result
depends on the pairs beside it (law 3); on a GPU many pairs are computed at once, and results agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pens.engine.stack import ModelStack
from pens.settings.schema import Distance

_BLOCK = {"cpu": 1 << 16, "cuda": 1 << 20}
"""Numbers of a model that are added up at once; on a CPU they stay in its caches."""
_NUMBERS_AT_ONCE = {"cpu": 1, "cuda": 1 << 26}
"""Numbers of all pairs of a block: on a CPU one pair, on a GPU several copies of half a gigabyte."""


class Pair(NamedTuple):
    """Two models, by their rows."""

    own: int
    other: int
    origin: int | None = None
    """The model that both were trained from, which `cosine-update` needs."""


def distances(models: ModelStack, pairs: Sequence[Pair], ranges: Sequence[slice], by: Distance) -> list[float]:
    """How far the two models of each pair lie from each other, of the numbers in `ranges`.

        l2              the length of their difference
        cosine-weights  1 − the cosine of the angle between them
        cosine-update   1 − the cosine of the angle between what training changed: their differences from the origin

    So nearer models have lower numbers. A model without length has no direction: its cosine with any other counts as 0.
    The number is not finite where a model's numbers are not.
    """
    on = models.device.type
    size = _BLOCK.get(on, _BLOCK["cuda"])
    blocks = list(_blocks(ranges, size))
    at_once = max(1, _NUMBERS_AT_ONCE.get(on, _NUMBERS_AT_ONCE["cuda"]) // size)
    found: list[float] = []
    for start in range(0, len(pairs), at_once):
        some = pairs[start : start + at_once]
        sums = torch.zeros((3, len(some)), dtype=torch.float64, device=models.device)
        for block in blocks:
            sums += _sums(*_vectors(models, some, block, by), by)
        found += _distance(sums, by).tolist()
    return found


def _blocks(ranges: Sequence[slice], size: int) -> Iterator[slice]:
    """The ranges, cut such that no piece is longer. The cuts depend on the network alone."""
    return (slice(i, min(i + size, r.stop)) for r in ranges for i in range(r.start, r.stop, size))


def _vectors(models: ModelStack, pairs: Sequence[Pair], block: slice, by: Distance) -> tuple[Tensor, Tensor]:
    """What is compared of each pair's models.  → [pair, number] each"""
    own, other = (models.read(rows, block).double() for rows in ([p.own for p in pairs], [p.other for p in pairs]))
    if by != "cosine-update":
        return own, other
    origins = [pair.origin for pair in pairs if pair.origin is not None]
    assert len(origins) == len(pairs), "an update is the difference from an origin"
    origin = models.read(origins, block).double()
    return own - origin, other - origin


def _sums(own: Tensor, other: Tensor, by: Distance) -> Tensor:
    """What a block adds: to the squared length of the difference, or to the product and both squared lengths.
    [pair, number] each → [3, pair]"""
    if by == "l2":
        squares = (own - other).square().sum(1)
        return torch.stack([squares, torch.zeros_like(squares), torch.zeros_like(squares)])
    return torch.stack([(own * other).sum(1), own.square().sum(1), other.square().sum(1)])


def _distance(sums: Tensor, by: Distance) -> Tensor:
    """[3, pair] → [pair]"""
    if by == "l2":
        return sums[0].sqrt()
    lengths = sums[1].sqrt() * sums[2].sqrt()
    return 1 - torch.where(lengths == 0, 0.0, sums[0] / lengths)

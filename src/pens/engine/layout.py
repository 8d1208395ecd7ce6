# SPDX-License-Identifier: Apache-2.0
"""Layouts: where each tensor of a network lies in a row of numbers.

There are two layouts of the same tensors. Rows that are stored, sent, merged and written to disk hold the tensors one
after the other, in the order and shape that the module has. Rows in work hold them as a training step reads them: the
kernel of a convolution as the matrix that it is multiplied by, and every tensor on a boundary of 128 bytes, so that no
step copies a tensor or reads it in pieces. Rows are converted once at either end of an update. Optimizers treat every
number alike, so they work with either layout.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

_BOUNDARY = 32  # numbers of four bytes
LAST_LAYER = "auto"
"""In the place of a prefix: the last layer that has trained parameters."""


@dataclass(frozen=True)
class Place:
    """Where one tensor lies in a row."""

    name: str
    shape: torch.Size
    start: int
    stop: int
    order: tuple[int, ...]
    """The tensor's dimensions in the order in which the row stores them, outermost first."""

    def view(self, rows: Tensor) -> Tensor:
        """This tensor as a view of each row.  [..., size] → [..., *shape]"""
        lead = rows.dim() - 1
        stored = rows[..., self.start : self.stop].view((*rows.shape[:-1], *(self.shape[d] for d in self.order)))
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return stored.permute([*range(lead), *(lead + d for d in back)])

    def flat(self, tensor: Tensor) -> Tensor:
        """Each peer's tensor in the order in which a row stores it.  [peer, *shape] → [peer, stop − start]"""
        return tensor.permute([0, *(1 + d for d in self.order)]).reshape(len(tensor), -1)


@dataclass(frozen=True)
class Layout:
    """The places of all tensors in a row: [ trained parameters | frozen parameters and float buffers ]"""

    trained: tuple[Place, ...]
    kept: tuple[Place, ...]
    num_trained: int
    """Numbers in the first part, gaps included."""
    size: int
    """Numbers in a whole row, gaps included."""
    batch_norm: frozenset[str] = frozenset()
    """The tensors of batch normalisation: scales, shifts and running statistics."""

    @staticmethod
    def stored(
        trained: Mapping[str, torch.Size], kept: Mapping[str, torch.Size], batch_norm: Iterable[str] = ()
    ) -> Layout:
        """The layout of stored rows: tensors one after the other, without gaps."""
        return replace(_laid_out(trained, kept, {}, 1), batch_norm=frozenset(batch_norm))

    def in_work(self, orders: Mapping[str, tuple[int, ...]]) -> Layout:
        """The layout of rows in work: the same tensors, some with another order of dimensions, each on a boundary."""
        trained, kept = ({p.name: p.shape for p in places} for places in (self.trained, self.kept))
        return _laid_out(trained, kept, orders, _BOUNDARY)

    def tensors(self, rows: Tensor) -> dict[str, Tensor]:
        """Views of the rows' tensors by name.  [peer, size] → {name: [peer, *shape]}, or without the peer axis"""
        return {p.name: p.view(rows) for p in (*self.trained, *self.kept)}

    def places_of(self, prefixes: Iterable[str]) -> dict[str, str]:
        """Tensors (trained, frozen and buffers) whose names begin with one of the prefixes, each with the longest
        prefix that fits. Names are divided at dots: "layers.1" fits layers.1.weight, and not layers.10.weight. The
        empty prefix fits all, and `LAST_LAYER` the tensors of the last layer.  → {name: prefix}"""
        known = sorted(prefixes, key=len, reverse=True)
        fits = {p.name: [k for k in known if self._fits(p.name, k)] for p in (*self.trained, *self.kept)}
        return {name: fitting[0] for name, fitting in fits.items() if fitting}

    def _fits(self, name: str, prefix: str) -> bool:
        if prefix == LAST_LAYER:
            return bool(self.trained) and _layer(name) == _layer(self.trained[-1].name)
        return _begins_with(name, prefix)

    def part(self, only: Collection[str] = (), without: Collection[str] = ()) -> tuple[str, ...]:
        """The tensors whose names begin with one of the prefixes `only` (none: all), and with none of `without`."""
        chosen, left_out = self.places_of(only or ("",)), self.places_of(without)
        return tuple(name for name in chosen if name not in left_out)

    def ranges(self, names: Collection[str]) -> tuple[slice, ...]:
        """The ranges of a row in which the named tensors lie; tensors that lie side by side share one range."""
        ranges: list[slice] = []
        for place in (p for p in (*self.trained, *self.kept) if p.name in names and p.start < p.stop):
            start = ranges.pop().start if ranges and ranges[-1].stop == place.start else place.start
            ranges.append(slice(start, place.stop))
        return tuple(ranges)

    def parts(self, rows: Tensor) -> dict[str, Tensor]:
        """The part of the rows that each trained tensor fills, as the row stores it.  [peer, num_trained]
        → {name: [peer, numbers]}"""
        return {p.name: rows[:, p.start : p.stop] for p in self.trained}

    def columns_of(self, other: Layout) -> Tensor:
        """For each column of this layout, the column of the other layout that holds the same number; 0 in gaps.
        → [size]"""
        columns = torch.zeros(self.size, dtype=torch.int64)
        theirs = other.tensors(torch.arange(other.size))
        for place in (*self.trained, *self.kept):
            columns[place.start : place.stop] = place.flat(theirs[place.name][None])[0]
        return columns


def _layer(name: str) -> str:
    """The layer whose tensor this is."""
    return name.rpartition(".")[0]


def _begins_with(name: str, prefix: str) -> bool:
    return not prefix or f"{name}.".startswith(f"{prefix.removesuffix('.')}.")


def _laid_out(
    trained: Mapping[str, torch.Size],
    kept: Mapping[str, torch.Size],
    orders: Mapping[str, tuple[int, ...]],
    boundary: int,
) -> Layout:
    def places(shapes: Mapping[str, torch.Size], start: int) -> tuple[tuple[Place, ...], int]:
        placed = []
        for name, shape in shapes.items():
            stop = start + shape.numel()
            placed.append(Place(name, shape, start, stop, orders.get(name, tuple(range(len(shape))))))
            start = -(-stop // boundary) * boundary
        return tuple(placed), start

    first, num_trained = places(trained, 0)
    second, size = places(kept, num_trained)
    return Layout(first, second, num_trained, size)

# SPDX-License-Identifier: Apache-2.0
"""Where each tensor of a network lies in a row of numbers.

There are two layouts of the same tensors. Rows that are stored, sent, merged and written to disk hold them one after
the other, as the module names and shapes them. Rows in work hold them as a step reads them: the kernel of a
convolution as the matrix it is multiplied by, and every tensor on a boundary of 128 bytes, so that no step copies or
reads in pieces. Rows are exchanged once at either end of an update; optimizers work on single numbers and do not care.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_BOUNDARY = 32  # numbers of four bytes


@dataclass(frozen=True)
class Place:
    """Where one tensor lies in a row."""

    name: str
    shape: torch.Size
    start: int
    stop: int
    order: tuple[int, ...]
    """The tensor's dimensions as they follow each other in the row."""

    def view(self, rows: Tensor) -> Tensor:
        """The tensor of each row, in the row's memory.  [..., size] → [..., *shape]"""
        lead = rows.dim() - 1
        stored = rows[..., self.start : self.stop].view((*rows.shape[:-1], *(self.shape[d] for d in self.order)))
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return stored.permute([*range(lead), *(lead + d for d in back)])

    def flat(self, tensor: Tensor) -> Tensor:
        """Each peer's tensor as it lies in a row.  [peer, *shape] → [peer, stop − start]"""
        return tensor.permute([0, *(1 + d for d in self.order)]).reshape(len(tensor), -1)


@dataclass(frozen=True)
class Layout:
    """[ trained parameters | frozen parameters and float buffers ]"""

    trained: tuple[Place, ...]
    kept: tuple[Place, ...]
    num_trained: int
    """Length of the first part."""
    size: int

    @staticmethod
    def stored(trained: Mapping[str, torch.Size], kept: Mapping[str, torch.Size]) -> Layout:
        """Tensors as they are, without gaps."""
        return _laid_out(trained, kept, {}, 1)

    def in_work(self, orders: Mapping[str, tuple[int, ...]]) -> Layout:
        """The same tensors, some in another order of dimensions, each on a boundary."""
        trained, kept = ({p.name: p.shape for p in places} for places in (self.trained, self.kept))
        return _laid_out(trained, kept, orders, _BOUNDARY)

    def tensors(self, rows: Tensor) -> dict[str, Tensor]:
        """Views of the rows' tensors by name.  [peer, size] → {name: [peer, *shape]}, or without the peer axis"""
        return {p.name: p.view(rows) for p in (*self.trained, *self.kept)}

    def places_of(self, prefixes: Iterable[str]) -> dict[str, str]:
        """The tensors whose names begin with one of these, each with the longest beginning that fits: trained ones,
        frozen ones and buffers.  → {name: prefix}"""
        known = sorted(prefixes, key=len, reverse=True)
        fits = {p.name: [k for k in known if p.name.startswith(k)] for p in (*self.trained, *self.kept)}
        return {name: found[0] for name, found in fits.items() if found}

    def ranges(self, names: Collection[str]) -> tuple[slice, ...]:
        """Where the tensors of these names lie in a row; what lies side by side is one range."""
        found: list[slice] = []
        for place in (p for p in (*self.trained, *self.kept) if p.name in names and p.start < p.stop):
            start = found.pop().start if found and found[-1].stop == place.start else place.start
            found.append(slice(start, place.stop))
        return tuple(found)

    def homes(self, gradients: Tensor) -> dict[str, Tensor]:
        """The part of the rows of gradients that belongs to each trained tensor.  [peer, num_trained]"""
        return {p.name: gradients[:, p.start : p.stop] for p in self.trained}

    def bring_home(self, gradients: Tensor, found: Sequence[Tensor]) -> None:
        """Copy the gradients of the trained tensors into their rows, but for those that lie there already.

        gradients [peer, num_trained], found [peer, *shape] each
        """
        for place, gradient in zip(self.trained, found, strict=True):
            home = place.view(gradients)
            if gradient.data_ptr() != home.data_ptr():
                home.copy_(gradient)

    def columns_of(self, other: Layout) -> Tensor:
        """For each column of this layout, the column of the other with the same number; 0 in gaps.  → [size]"""
        columns = torch.zeros(self.size, dtype=torch.int64)
        theirs = other.tensors(torch.arange(other.size))
        for place in (*self.trained, *self.kept):
            columns[place.start : place.stop] = place.flat(theirs[place.name][None])[0]
        return columns


def _laid_out(
    trained: Mapping[str, torch.Size],
    kept: Mapping[str, torch.Size],
    orders: Mapping[str, tuple[int, ...]],
    boundary: int,
) -> Layout:
    def places(shapes: Mapping[str, torch.Size], start: int) -> tuple[tuple[Place, ...], int]:
        found = []
        for name, shape in shapes.items():
            stop = start + shape.numel()
            found.append(Place(name, shape, start, stop, orders.get(name, tuple(range(len(shape))))))
            start = -(-stop // boundary) * boundary
        return tuple(found), start

    first, num_trained = places(trained, 0)
    second, size = places(kept, num_trained)
    return Layout(first, second, num_trained, size)

# SPDX-License-Identifier: Apache-2.0
"""Sketches: a few numbers in place of a model, by which one can tell whether two models are nearly the same.

Each number of a model is added to one of `WIDTH` sums, with a random sign (the count sketch of Charikar, Chen and
Farach-Colton 2002). The sketch of a difference is the difference of the sketches, and its length is on average that of
the difference itself, give or take about a tenth. So a peer can compare a model with all that it sent lately, without
keeping these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pens.data.samples import Array

WIDTH = 128


class Sketcher:
    """Makes sketches of models of one network."""

    def __init__(self, size: int, ranges: Sequence[slice], key: int, device: torch.device) -> None:
        """`size`: of a model. `ranges`: of the numbers that count. `key`: of the random choices."""
        generator = torch.Generator().manual_seed(key)
        places = torch.randint(WIDTH, (size,), generator=generator)
        signs = torch.randint(2, (size,), generator=generator).mul(2).sub(1).float()
        counts = torch.zeros(size, dtype=torch.bool)
        for columns in ranges:
            counts[columns] = True
        self._columns = counts.nonzero()[:, 0].to(device)
        self._places, self._signs = places[counts].to(device), signs[counts].to(device)

    def sketches(self, rows: Tensor) -> Array:
        """[model, size] → [model, WIDTH]"""
        made: Array = np.empty((len(rows), WIDTH))
        for place, row in enumerate(rows):
            made[place] = self._sketch(row)
        return made

    def _sketch(self, row: Tensor) -> list[float]:
        sums = torch.zeros(WIDTH, dtype=torch.float64, device=row.device)
        sums.index_add_(0, self._places, (row[self._columns] * self._signs).double())
        return list(map(float, sums.cpu()))

    def lengths(self, rows: Tensor) -> Array:
        """The length of each model, not sketched; infinite where a number is not finite.  [model, size] → [model]"""
        found = [torch.linalg.vector_norm(row[self._columns], dtype=torch.float64) for row in rows]
        lengths: Array = np.array([float(of) for of in found])
        return np.where(np.isfinite(lengths), lengths, np.inf)


def off_the_line(model: Array, other: Array) -> float:
    """How far a model lies from all multiples of another one, negative ones included, by their sketches."""
    of = float(other @ other)
    factor = float(model @ other) / of if of else 0.0
    return float(np.linalg.norm(model - factor * other))

# SPDX-License-Identifier: Apache-2.0
"""A ledger: rows of whole numbers that are only appended, for what a run records per event.

A number takes four bytes, or eight where the numbers of peers are those of a network.
"""

from __future__ import annotations

from array import array

import numpy as np
import torch
from torch import Tensor

from pens.data.samples import Array


class Ledger:
    """Named columns of equal length."""

    def __init__(self, *names: str, wide: bool = False) -> None:
        self._type = "q" if wide else "i"
        self._columns = {name: array(self._type) for name in names}

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def add(self, *row: int) -> None:
        """One row, in the order of the names."""
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)

    def column(self, name: str) -> Array:
        """A copy of one column.  [row]"""
        return np.array(self._columns[name], np.int64)

    def state(self) -> Tensor:
        """All rows, for a checkpoint.  [column, row]"""
        return torch.from_numpy(np.array([np.frombuffer(c, self._type) for c in self._columns.values()]))

    def restore(self, state: Tensor) -> None:
        """Become what `state` described."""
        for name, values in zip(self._columns, state.numpy(), strict=True):
            self._columns[name] = array(self._type, values.astype(self._type).tobytes())

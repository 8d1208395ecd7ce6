# SPDX-License-Identifier: Apache-2.0
"""The learning curves of a run while they grow: one row of numbers per update, not one object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pens.data.samples import Array
from pens.protocol.messages import PeerId


class UpdateRecord(NamedTuple):
    """One update that was computed."""

    time: float
    peer: PeerId
    version: int
    searching: bool
    merged: int
    train_loss: float
    val_loss: float
    val_accuracy: float
    epochs: int
    """0: the peer took over what it merged, without training."""


class Curves:
    """All updates of a run in the order in which they were computed."""

    def __init__(self, table: Array | None = None) -> None:
        """`table` [update, column]: the updates of a resumed run."""
        self._table = np.empty((0, len(UpdateRecord._fields))) if table is None else np.array(table, np.float64)
        self._length = len(self._table)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[UpdateRecord]:
        for time, peer, version, searching, merged, *numbers, epochs in self.table().tolist():
            whole = int(version), bool(searching), int(merged)
            train_loss, val_loss, val_accuracy = numbers
            yield UpdateRecord(time, PeerId(int(peer)), *whole, train_loss, val_loss, val_accuracy, int(epochs))

    def add(self, records: Sequence[UpdateRecord]) -> None:
        needed = self._length + len(records)
        if needed > len(self._table):
            grown = np.empty((max(needed, 2 * self._length), self._table.shape[1]))
            grown[: self._length] = self.table()
            self._table = grown
        self._table[self._length : needed] = records
        self._length = needed

    def table(self) -> Array:
        """[update, column]"""
        return self._table[: self._length]

    def sorted(self) -> Curves:
        """The same updates in the order of virtual time."""
        time, peer, version = self.table()[:, :3].T
        return Curves(self.table()[np.lexsort((version, peer, time))])

    def column(self, name: str) -> Array:
        return self.table()[:, UpdateRecord._fields.index(name)]

# SPDX-License-Identifier: Apache-2.0
"""ModelStack: the models that are alive, as rows of one matrix, with reference counts.

A row never changes once written: an update reads rows and writes a new one. "Sending a model" is therefore counting
one more reference to a row, a snapshot costs nothing, and a row is free for reuse when nobody refers to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_GROUPS_AT_ONCE = 1024  # averaged, so that only so many models are in use beside the result


class ModelStack:
    """Rows of models on one device."""

    def __init__(self, size: int, device: torch.device, reserve: int = 0) -> None:
        """`reserve`: rows to begin with. When they run out, all are copied to a larger place."""
        self._rows = torch.empty((0, size), device=device)
        self._references: list[int] = []
        self._free: list[int] = []
        self._grow(reserve)

    @property
    def device(self) -> torch.device:
        return self._rows.device

    @property
    def size(self) -> int:
        """Numbers in a row."""
        return int(self._rows.shape[1])

    @property
    def num_alive(self) -> int:
        return len(self._references) - len(self._free)

    def add(self, models: Tensor) -> list[int]:
        """Store models as new rows, with one reference each.  [model, size]"""
        if len(models) > len(self._free):
            self._grow(len(models) - len(self._free))
        rows = [self._free.pop() for _ in range(len(models))]
        self._rows[rows] = models
        for row in rows:
            self._references[row] = 1
        return rows

    def retain(self, row: int) -> int:
        """Count one more reference."""
        self._references[row] += 1
        return row

    def release(self, row: int) -> None:
        """Count one reference less; without any the row is free."""
        self._references[row] -= 1
        if self._references[row] == 0:
            self._free.append(row)

    def read(self, rows: Sequence[int]) -> Tensor:
        """A copy of some models.  → [len(rows), size]"""
        return self._rows[torch.tensor(rows, device=self.device, dtype=torch.int64)]

    def mix(self, groups: Sequence[Sequence[int]]) -> Tensor:
        """The plain average of each group of models.  → [len(groups), size]

        Summed as differences from the group's first model, in the group's order: equal models stay exactly equal
        (law 7), and a group's average does not depend on which groups are computed with it (law 3).
        """
        return self._mix_one_by_one(groups) if self.device.type == "cpu" else self._mix(groups)

    def _mix_one_by_one(self, groups: Sequence[Sequence[int]]) -> Tensor:
        mixed = torch.empty((len(groups), self.size), device=self.device)
        for group, target in zip(groups, mixed, strict=True):
            self._mix_one(group, target)
        return mixed

    def _mix_one(self, group: Sequence[int], target: Tensor) -> None:
        """One group, in a processor's cache.  target [size]"""
        first, change = self._rows[group[0]], torch.empty_like(target)
        target.zero_()
        for row in group[1:]:
            target += torch.sub(self._rows[row], first, out=change)
        torch.add(first, target.div_(len(group)), out=target)

    def _mix(self, groups: Sequence[Sequence[int]]) -> Tensor:
        """Many groups together, as a GPU wants it."""
        mixed = torch.empty((len(groups), self.size), device=self.device)
        for start in range(0, len(groups), _GROUPS_AT_ONCE):
            some = groups[start : start + _GROUPS_AT_ONCE]
            mixed[start : start + len(some)] = self._mix_some(some)
        return mixed

    def _mix_some(self, groups: Sequence[Sequence[int]]) -> Tensor:
        longest = max(len(g) for g in groups)
        index = torch.tensor([[*g, *[g[0]] * (longest - len(g))] for g in groups], device=self.device)
        first = self._rows[index[:, 0]]
        total = torch.zeros_like(first)
        for column in range(1, longest):
            total += self._rows[index[:, column]] - first
        lengths = torch.tensor([[len(g)] for g in groups], device=self.device, dtype=torch.float32)
        return first + total / lengths

    def _grow(self, needed: int) -> None:
        old = len(self._rows)
        new = old + max(needed, old // 4)
        rows = torch.empty((new, self._rows.shape[1]), device=self.device)
        rows[:old] = self._rows
        self._rows = rows
        self._references += [0] * (new - old)
        self._free += range(new - 1, old - 1, -1)

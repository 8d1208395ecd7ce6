# SPDX-License-Identifier: Apache-2.0
"""ModelStack: holds all models in use, as rows of one matrix, with reference counts.

A row never changes once it is written: an update reads rows and writes a new one. Sending a model therefore only counts
one more reference to its row, a snapshot costs nothing, and a row is free for reuse when nothing refers to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_ALL = slice(None)
_GROUPS_AT_ONCE = 1024  # groups averaged together, which bounds the memory needed beside the result


class ModelStack:
    """Rows of models on one device."""

    def __init__(self, size: int, device: torch.device, reserve: int = 0) -> None:
        """`reserve`: rows to begin with. When they run out, all rows are copied to a larger matrix."""
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
        """Count one reference less. A row without references is free."""
        self._references[row] -= 1
        if self._references[row] == 0:
            self._free.append(row)

    def read(self, rows: Sequence[int], columns: slice = _ALL) -> Tensor:
        """A copy of some models, or of some of their numbers.  → [len(rows), size]"""
        return self._rows[:, columns][torch.tensor(rows, device=self.device, dtype=torch.int64)]

    def mix(self, groups: Sequence[Sequence[int]], columns: slice = _ALL) -> Tensor:
        """The plain average of each group of models, or of some of their numbers.  → [len(groups), size]

        Summed as differences from the group's first model, in the group's order: equal models stay exactly equal
        (law 7), and a group's average does not depend on which groups are computed with it (law 3).
        """
        on_cpu = self.device.type == "cpu"
        return (self._mix_one_by_one if on_cpu else self._mix)(groups, columns)

    def _mix_one_by_one(self, groups: Sequence[Sequence[int]], columns: slice) -> Tensor:
        rows = self._rows[:, columns]
        mixed = torch.empty((len(groups), rows.shape[1]), device=self.device)
        for group, target in zip(groups, mixed, strict=True):
            _mix_one(rows, group, target)
        return mixed

    def _mix(self, groups: Sequence[Sequence[int]], columns: slice = _ALL) -> Tensor:
        """The plain averages of many groups computed together, which is fast on a GPU."""
        rows = self._rows[:, columns]
        mixed = torch.empty((len(groups), rows.shape[1]), device=self.device)
        for start in range(0, len(groups), _GROUPS_AT_ONCE):
            some = groups[start : start + _GROUPS_AT_ONCE]
            mixed[start : start + len(some)] = _mix_some(rows, some)
        return mixed

    def blend(
        self, groups: Sequence[Sequence[int]], weights: Sequence[Sequence[float]], columns: slice = _ALL
    ) -> Tensor:
        """The weighted average of each group of models, or of some of their numbers. Weights sum to one.

        → [len(groups), numbers]. It is summed as differences from the group's first model, as in `mix`, so that laws 3
        and 7 hold for it, too.
        """
        on_cpu = self.device.type == "cpu"
        return (self._blend_one_by_one if on_cpu else self._blend)(groups, weights, columns)

    def _blend_one_by_one(
        self, groups: Sequence[Sequence[int]], weights: Sequence[Sequence[float]], columns: slice
    ) -> Tensor:
        rows = self._rows[:, columns]
        blended = torch.empty((len(groups), rows.shape[1]), device=self.device)
        for group, shares, target in zip(groups, weights, blended, strict=True):
            _blend_one(rows, group, shares, target)
        return blended

    def _blend(
        self, groups: Sequence[Sequence[int]], weights: Sequence[Sequence[float]], columns: slice = _ALL
    ) -> Tensor:
        rows = self._rows[:, columns]
        blended = torch.empty((len(groups), rows.shape[1]), device=self.device)
        for start in range(0, len(groups), _GROUPS_AT_ONCE):
            some = slice(start, start + _GROUPS_AT_ONCE)
            blended[some] = _blend_some(rows, groups[some], weights[some])
        return blended

    def _grow(self, needed: int) -> None:
        old = len(self._rows)
        new = old + max(needed, old // 4)
        rows = torch.empty((new, self._rows.shape[1]), device=self.device)
        rows[:old] = self._rows
        self._rows = rows
        self._references += [0] * (new - old)
        self._free += range(new - 1, old - 1, -1)


def _mix_one(rows: Tensor, group: Sequence[int], target: Tensor) -> None:
    """Write the plain average of one group into `target`; the sum stays in the processor's cache.
    rows [row, number], target [number]"""
    first, change = rows[group[0]], torch.empty_like(target)
    target.zero_()
    for row in group[1:]:
        target += torch.sub(rows[row], first, out=change)
    torch.add(first, target.div_(len(group)), out=target)


def _mix_some(rows: Tensor, groups: Sequence[Sequence[int]]) -> Tensor:
    """The plain averages of several groups. Shorter groups are filled up with their first model, which adds zero.
    → [len(groups), number]"""
    longest = max(len(g) for g in groups)
    index = torch.tensor([[*g, *[g[0]] * (longest - len(g))] for g in groups], device=rows.device)
    first = rows[index[:, 0]]
    total = torch.zeros_like(first)
    for column in range(1, longest):
        total += rows[index[:, column]] - first
    lengths = torch.tensor([[len(g)] for g in groups], device=rows.device, dtype=torch.float32)
    return first + total / lengths


def _blend_one(rows: Tensor, group: Sequence[int], weights: Sequence[float], target: Tensor) -> None:
    """Write the weighted average of one group into `target`.  rows [row, number], target [number]"""
    first, change = rows[group[0]], torch.empty_like(target)
    target.zero_()
    for row, weight in zip(group[1:], weights[1:], strict=True):
        target += torch.sub(rows[row], first, out=change).mul_(weight)
    torch.add(first, target, out=target)


def _blend_some(rows: Tensor, groups: Sequence[Sequence[int]], weights: Sequence[Sequence[float]]) -> Tensor:
    """The weighted averages of several groups. Shorter groups are filled up with weights of zero.
    → [len(groups), number]"""
    longest = max(len(g) for g in groups)
    index = torch.tensor([[*g, *[g[0]] * (longest - len(g))] for g in groups], device=rows.device)
    shares = torch.tensor([[*w, *[0.0] * (longest - len(w))] for w in weights], device=rows.device)
    first = rows[index[:, 0]]
    total = torch.zeros_like(first)
    for column in range(1, longest):
        total += (rows[index[:, column]] - first) * shares[:, column, None]
    return first + total

# SPDX-License-Identifier: Apache-2.0
"""Random draws that other members cannot foresee."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pens import rng

_T = TypeVar("_T")


class Draws:
    """A stream of random numbers, selected by a secret."""

    def __init__(self, secret: int) -> None:
        self._key, self._taken = rng.key(secret, "membership"), 0

    def number(self) -> float:
        """The next random number.  0 … 1"""
        self._taken += 1
        return rng.number(self._key, self._taken)

    def place(self, count: int) -> int:
        """One of so many places, from 0."""
        return int(self.number() * count)

    def some(self, among: Sequence[_T], count: int) -> list[_T]:
        """Some of these, each at most once; all, if they are no more."""
        left = list(among)
        return [left.pop(self.place(len(left))) for _ in range(min(count, len(left)))]

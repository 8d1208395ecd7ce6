# SPDX-License-Identifier: Apache-2.0
"""Typed ranges of settings, from which a random search draws: what `pens tune` varies.

lr = { log = [1e-4, 1e-1] }          uniform on a logarithmic scale
weight_decay = { uniform = [0, 1e-3] }
n_peers = { whole = [2, 10] }        whole numbers, both ends included
merge = ["mean", "median"]           one of these
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pens.errors import SettingsError


@dataclass(frozen=True)
class Choices:
    """One of several values, each as likely as the others."""

    values: tuple[Any, ...]

    def at(self, number: float) -> Any:
        """The value that a number in [0, 1) stands for."""
        return self.values[int(number * len(self.values))]

    @property
    def limits(self) -> tuple[Any, ...]:
        """Values that are allowed where all are."""
        return self.values


@dataclass(frozen=True)
class Uniform:
    """A real number between two ends."""

    low: float
    high: float

    def at(self, number: float) -> float:
        """The value that a number in [0, 1) stands for."""
        return self.low + number * (self.high - self.low)

    @property
    def limits(self) -> tuple[Any, ...]:
        """Values that are allowed where all are."""
        return self.low, self.high


@dataclass(frozen=True)
class LogUniform(Uniform):
    """A real number above 0 whose logarithm is uniform: each power of ten is as likely as the next."""

    def at(self, number: float) -> float:
        """The value that a number in [0, 1) stands for, to four digits."""
        value = math.exp(math.log(self.low) + number * math.log(self.high / self.low))
        return min(self.high, max(self.low, float(f"{value:.4g}")))


@dataclass(frozen=True)
class WholeNumbers:
    """A whole number between two ends, which are included."""

    low: int
    high: int

    def at(self, number: float) -> int:
        """The value that a number in [0, 1) stands for."""
        return self.low + int(number * (self.high - self.low + 1))

    @property
    def limits(self) -> tuple[Any, ...]:
        """Values that are allowed where all are."""
        return self.low, self.high


Dimension = Choices | Uniform | WholeNumbers
"""The range of one setting."""
Space = Mapping[str, Dimension]
"""Ranges by the settings' names."""

_FORMS = "a list of values, {log = [low, high]}, {uniform = [low, high]} or {whole = [low, high]}"


def dimension(name: str, given: Any) -> Dimension:
    """The range that a TOML file gives a setting."""
    if isinstance(given, list):
        if not given or any(given.count(value) > 1 for value in given):
            raise SettingsError(f"{name} = {given!r}: list at least one value, and each once")
        return Choices(tuple(given))
    if not isinstance(given, Mapping) or len(given) != 1 or (kind := next(iter(given))) not in _KINDS:
        raise SettingsError(f"{name} = {given!r}: give {_FORMS}")
    ends = given[kind]
    needed, least = (int, None) if kind == "whole" else ((int, float), 0 if kind == "log" else None)
    are_numbers = isinstance(ends, list) and len(ends) == 2 and all(_is_number(end, needed) for end in ends)
    if not are_numbers or not ends[0] < ends[1] or not all(map(math.isfinite, ends)):
        what = "whole numbers" if kind == "whole" else "numbers"
        raise SettingsError(f"{name} = {{{kind} = {ends!r}}}: give two {what}, the smaller one first")
    if least is not None and not ends[0] > least:
        raise SettingsError(f"{name} = {{{kind} = {ends!r}}}: a logarithmic scale begins above 0")
    made: Dimension = _KINDS[kind](*ends)
    return made


def _is_number(value: Any, needed: Any) -> bool:
    return isinstance(value, needed) and not isinstance(value, bool)


_KINDS: Mapping[str, Any] = {"log": LogUniform, "uniform": Uniform, "whole": WholeNumbers}

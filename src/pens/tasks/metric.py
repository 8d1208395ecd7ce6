# SPDX-License-Identifier: Apache-2.0
"""Metrics: how good models are, in which unit, and whether more is better.

A metric is a function of sums over samples. Each sample adds its statistics, one number or several, and `value` makes
of the sums what is shown. So no padded sample enters, and it does not matter in which chunks samples are evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pens.data.samples import Array

if TYPE_CHECKING:
    from torch import Tensor

_DIGITS = 3  # significant ones, of what is not in per cent


@dataclass(frozen=True)
class Measure:
    """What a number says: plain words and a direction, as records hold them."""

    name: str
    unit: str = ""
    """"%": values are fractions, shown in per cent. Else a unit, as of what is predicted, or nothing."""
    higher_is_better: bool = True

    @property
    def scale(self) -> float:
        """By what values are multiplied to be shown."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def gap_unit(self) -> str:
        """In what a difference is told: "points", "kWh", "of R²"."""
        return "points" if self.unit == "%" else self.unit or f"of {self.name}"

    @property
    def title(self) -> str:
        """Its name at the beginning of a sentence."""
        return self.name[0].upper() + self.name[1:]

    def label(self, before: str = "", comma: bool = False) -> str:
        """For a heading or an axis: test accuracy %, or test accuracy, %"""
        name = f"{before} {self.name}".strip()
        return f"{name}{',' if comma else ''} {self.unit}" if self.unit else name

    def key(self, name: str) -> str:
        """The name of a number in records and messages, in which accuracy has its own: val_accuracy, or val_score."""
        return name if self == ACCURACY else name.replace("accuracy", "score")

    def decimals(self, value: float) -> int:
        """After the point, for numbers of the size of this one."""
        if self.unit == "%":
            return 1
        if not math.isfinite(value) or not value:
            return _DIGITS - 1
        return min(9, max(0, _DIGITS - 1 - math.floor(math.log10(abs(value)))))

    def number(self, value: float, like: float | None = None) -> str:
        """Without its unit: 85.3, or 0.412. `like`: a value whose decimals this one is to have."""
        return f"{self.scale * value:.{self.decimals(value if like is None else like)}f}"

    def words(self, value: float) -> str:
        """With its unit: 85.3 %"""
        return f"{self.number(value)} {self.unit}".rstrip()

    def goodness(self, value: float) -> float:
        """The value, or its negative where lower is better: of two, the higher is the better one."""
        return value if self.higher_is_better else -value


ACCURACY = Measure("accuracy", "%")
"""What classification measures, and what all records hold that do not say."""


@dataclass(frozen=True)
class Metric:
    """How one number about a model comes from its outputs on samples."""

    name: str
    statistics: Callable[[Tensor, Tensor], Tensor]
    """(outputs [batch, ...], targets [batch, ...]) → what each sample adds.  [batch] or [batch, statistic]"""
    value: Callable[[Array, int], float] | None = None
    """(sums [statistic], number of samples) → the metric; None: the mean of the one statistic."""
    unit: str = ""
    """"%": values are fractions, shown in per cent."""
    higher_is_better: bool = True

    @property
    def measure(self) -> Measure:
        """What its numbers say."""
        return Measure(self.name, self.unit, self.higher_is_better)

    def of_sums(self, sums: Array, count: int) -> float:
        """The metric of so many samples.  sums [statistic]"""
        return float(sums[0] / count) if self.value is None else float(self.value(sums, count))

    def of_each(self, sums: Array, counts: Array) -> Array:
        """The metric of several models.  sums [model, statistic], counts [model] → [model]"""
        if self.value is None:
            means: Array = sums[:, 0] / counts
            return means
        return np.array([self.of_sums(*of) for of in zip(sums, counts.tolist(), strict=True)], np.float64)

# SPDX-License-Identifier: Apache-2.0
"""Regression: each sample has a number, or k numbers, to be predicted.

The loss is the squared error, so its size, and with it the size of gradients, depends on the unit of the targets.
Standardise them, by the same numbers at all peers: (y − mean) / standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pens.data.samples import Array
from pens.settings.section import Section
from pens.tasks.metric import Metric
from pens.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor


class RegressionSettings(Section):
    """The task regression."""

    title = "regression"

    unit: str = ""
    """The unit of the targets, in which errors are shown: kWh, for instance. % means fractions, shown in per cent."""


class Regression(Task):
    """The mean squared error; its root, the mean absolute error and R²."""

    name = "regression"
    about = "each sample has one number, or some, to be predicted; mean squared error, RMSE"
    section = RegressionSettings

    @property
    def metrics(self) -> Sequence[Metric]:
        unit = self.options.unit if self.options else ""
        return (
            Metric("RMSE", squared, root_mean, unit=unit, higher_is_better=False),
            Metric("MAE", absolute, unit=unit, higher_is_better=False),
            Metric("R²", squares, r_squared),
        )

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return squared(outputs, targets)


def _error(outputs: Tensor, targets: Tensor) -> Tensor:
    """[batch, number], [batch] or [batch, number] → [batch, number]"""
    return outputs - targets.reshape(outputs.shape)


def squared(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean squared error of a sample's numbers.  → [batch]"""
    return _error(outputs, targets).square().mean(1)


def absolute(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean absolute error of a sample's numbers.  → [batch]"""
    return _error(outputs, targets).abs().mean(1)


def root_mean(sums: Array, count: int) -> float:
    """The root of the mean over samples."""
    return math.sqrt(sums[0] / count)


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each number: its squared error, itself, and its square.  → [batch, 3 × number]"""
    import torch

    real = targets.reshape(outputs.shape).double()
    return torch.cat([(outputs.double() - real).square(), real, real.square()], 1)


def r_squared(sums: Array, count: int) -> float:
    """1 − squared errors / squared distances from the mean; with several numbers the mean over them. Of a number that
    is always the same: 1 where it is always met, else 0."""
    errors, total, square = sums.reshape(3, -1)
    spread = square - total**2 / count
    varies = spread > 1e-12 * square
    found = np.where(varies, 1 - errors / np.where(varies, spread, 1), errors == 0)
    return float(found.mean())

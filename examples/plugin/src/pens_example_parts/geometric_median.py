# SPDX-License-Identifier: Apache-2.0
"""`geometric-median`: the model whose distances to all merged models have the smallest sum, by Weiszfeld's algorithm.

It begins at the mean. Each step averages the models with weights inverse to their distances from the last result, so
that models far away count little (Pillutla et al. 2022 aggregate updates so). Fewer than half of the models cannot move
it beyond a bound that depends on the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pens

if TYPE_CHECKING:
    from torch import Tensor


class GeometricMedianSettings(pens.Section):
    """The merge rule geometric-median."""

    title = "geometric-median"
    weiszfeld_steps: pens.Count = 8
    """How many steps of Weiszfeld's algorithm each merge takes."""
    smallest_distance: pens.Positive = 1e-6
    """Smaller distances count as this one, so that no weight is infinite."""


class GeometricMedian(pens.MergeRule):
    """A robust mean of whole models."""

    name = "geometric-median"
    about = "the geometric median of all models, by a few Weiszfeld steps"
    section = GeometricMedianSettings

    def merge(self, rows: pens.Rows, options: GeometricMedianSettings) -> Tensor:
        models = rows.models  # [merge, model, number]
        merged = models.mean(1)
        for _ in range(options.weiszfeld_steps):
            distances = (models - merged[:, None]).square().sum(2).sqrt()  # [merge, model]
            weights = 1 / distances.clamp(min=options.smallest_distance)
            weights = weights / weights.sum(1, keepdim=True)
            merged = (weights[:, :, None] * models).sum(1)
        return merged

# SPDX-License-Identifier: Apache-2.0
"""The median of each number (Yin et al. 2018): fewer than half of the models cannot move it beyond the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pens.merging.rule import MergeRule, Rows

if TYPE_CHECKING:
    from torch import Tensor


class Median(MergeRule):
    """Number by number, the middle one of all models; of an even number of models, the mean of the middle two."""

    name = "median"
    about = "the median of each number over all models"
    coordinatewise = True

    def merge(self, rows: Rows, options: Any) -> Tensor:
        from pens.merging.ordered import average, in_order

        models = in_order(rows.models)
        return average(models[(len(models) - 1) // 2 : len(models) // 2 + 1])

# SPDX-License-Identifier: Apache-2.0
"""The trimmed mean of each number (Yin et al. 2018): the extremes are left out on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from pens.merging.rule import MergeRule, Rows
from pens.settings.section import Section

if TYPE_CHECKING:
    from torch import Tensor


class TrimmedSettings(Section):
    """The merge rule `trimmed`."""

    title: ClassVar[str] = "trimmed"
    trim_share: Annotated[float, Field(ge=0, lt=0.5)] = 0.2
    """The share of the models that is left out on each side, number by number, rounded down: 0.2 of 21 models are the 4
    lowest and the 4 highest."""


class Trimmed(MergeRule):
    """Number by number, the mean of what remains without the lowest and the highest."""

    name = "trimmed"
    about = "the mean of each number without the lowest and the highest"
    section = TrimmedSettings
    coordinatewise = True

    def merge(self, rows: Rows, options: TrimmedSettings) -> Tensor:
        from pens.merging.ordered import average, in_order

        models = in_order(rows.models)
        cut = left_out(len(models), options.trim_share)
        return average(models[cut : len(models) - cut])


def left_out(models: int, share: float) -> int:
    """How many models are left out on each side; 0.29 of 100 are 29, though the product is a little less."""
    return int(models * share + 1e-9)

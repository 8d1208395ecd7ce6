# SPDX-License-Identifier: Apache-2.0
"""The base of tasks in which each sample is of one class: what their targets and outputs look like.

Their losses and metrics are left to them, so that another loss than the cross-entropy needs nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pens.data.samples import Array
from pens.errors import DataError
from pens.tasks.task import Task, check_whole, num_classes


class ClassTask(Task):
    """Targets are classes, numbered from 0, and networks return a score for each class."""

    has_classes: ClassVar[bool] = True
    has_one_class: ClassVar[bool] = True

    def check(self, targets: Array) -> None:
        check_whole(targets, "[sample]", (1,), "one integer class per sample")
        if len(targets) and targets.min() < 0:
            raise DataError(f"label {targets.min()} is negative: number the classes from 0")

    def num_outputs(self, targets: Sequence[Array]) -> int:
        return num_classes(targets)

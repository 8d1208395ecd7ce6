# SPDX-License-Identifier: Apache-2.0
"""A label for each position: sequence tagging and segmentation.

Targets are [sample, length] or [sample, height, width], outputs [batch, class, length] or [batch, class, height,
width]. A position with the label −100 counts nowhere: padding of a sequence, or a pixel that nobody labelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pens.data.samples import IGNORED, Array
from pens.errors import DataError
from pens.tasks.metric import Metric
from pens.tasks.task import Task, check_whole, num_classes

if TYPE_CHECKING:
    from torch import Tensor


class Positions(Task):
    """Cross-entropy, as the mean over a sample's labelled positions; accuracy per position, and mean IoU."""

    name = "positions"
    about = "a label for each position of a sequence or image; cross-entropy, accuracy per position"
    has_classes = True

    @property
    def metrics(self) -> Sequence[Metric]:
        return METRICS

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        from torch.nn import functional as F

        each = F.cross_entropy(outputs, targets, reduction="none", ignore_index=IGNORED).flatten(1)
        return each.sum(1) / (targets != IGNORED).flatten(1).sum(1).clamp(min=1)

    def check(self, targets: Array) -> None:
        shape = f"[sample, length] or [sample, height, width], with {IGNORED} where there is none"
        check_whole(targets, shape, (2, 3), "an integer class per position")
        wrong = (targets < 0) & (targets != IGNORED)
        if wrong.any():
            raise DataError(
                f"label {targets[wrong][0]} is negative: number the classes from 0, or write {IGNORED} where a "
                "position is not to count"
            )

    def num_outputs(self, targets: Sequence[Array]) -> int:
        return num_classes(targets)

    def output_shape(self, num_outputs: int, target_shape: Sequence[int]) -> tuple[int, ...]:
        return (num_outputs, *target_shape)


def right_positions(outputs: Tensor, targets: Tensor) -> Tensor:
    """How many of a sample's labelled positions are right, and how many there are.  → [batch, 2]"""
    import torch

    right = (outputs.argmax(1) == targets).flatten(1).sum(1)  # no class is −100
    return torch.stack([right, (targets != IGNORED).flatten(1).sum(1)], 1)


def share_of_positions(sums: Array, count: int) -> float:
    """Right positions among labelled ones; 0 where none is labelled."""
    return float(sums[0] / max(sums[1], 1))


def overlaps(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each class, at how many labelled positions of a sample it is said and right, and at how many it is said or
    right.  → [batch, 2 × class]"""
    import torch
    from torch.nn import functional as F

    classes, there = outputs.shape[1], (targets != IGNORED).flatten(1)[..., None]
    real, said = (F.one_hot(of.flatten(1), classes) * there for of in (targets.clamp(min=0), outputs.argmax(1)))
    both = (real * said).sum(1)
    return torch.cat([both, real.sum(1) + said.sum(1) - both], 1)


def mean_iou(sums: Array, count: int) -> float:
    """The mean over classes of intersection / union, of those that occur or are said to."""
    both, either = sums.reshape(2, -1)
    there = either > 0
    return float((both[there] / either[there]).mean()) if there.any() else 0.0


METRICS = (
    Metric("accuracy per position", right_positions, share_of_positions, unit="%"),
    Metric("mean IoU", overlaps, mean_iou, unit="%"),
)

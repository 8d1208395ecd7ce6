# SPDX-License-Identifier: Apache-2.0
"""Multi-label classification: each sample has some of k labels, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pens.data.samples import Array
from pens.errors import DataError
from pens.tasks.classification import macro_f1
from pens.tasks.metric import Metric
from pens.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor


class MultiLabel(Task):
    """Binary cross-entropy of each label, and the mean over labels of F1. A label with an output above 0 is said."""

    name = "multi-label"
    about = "each sample has some of k labels; binary cross-entropy, macro F1"

    @property
    def metrics(self) -> Sequence[Metric]:
        return METRICS

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # PyTorch's own function has a gradient that differs in its last bit by a number's place among all others
        size = outputs.abs()
        return ((outputs + size) / 2 - outputs * targets + (-size).exp().log1p()).mean(1)

    def check(self, targets: Array) -> None:
        if targets.ndim != 2 or not targets.shape[1] or targets.dtype.kind not in "fiub":
            raise DataError(
                f"they have shape {targets.shape} and type {targets.dtype}: expected 0 or 1 for each label, "
                "[sample, label]"
            )
        wrong = (targets != 0) & (targets != 1)
        if wrong.any():
            raise DataError(f"there is a {targets[wrong][0]}: expected 0 or 1 for each label, [sample, label]")

    def predict(self, outputs: Array) -> Array:
        """1 for each label that is more likely than not."""
        likely: Array = (outputs > 0).astype("int64")
        return likely

    def num_outputs(self, targets: Sequence[Array]) -> int:
        return int(targets[0].shape[1])


def right_labels(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of a sample's labels that are right.  → [batch]"""
    return ((outputs > 0) == (targets > 0.5)).double().mean(1)


def counts_by_label(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each label: whether the sample has it, is said to have it, or both.  → [batch, 3 × label]"""
    import torch

    real, said = targets > 0.5, outputs > 0
    return torch.cat([real, said, real & said], 1)


def subset_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether all labels of a sample are right.  → [batch]"""
    return ((outputs > 0) == (targets > 0.5)).all(1)


METRICS = (
    Metric("macro F1", counts_by_label, macro_f1, unit="%"),
    Metric("label accuracy", right_labels, unit="%"),
    Metric("exact match", subset_accuracy, unit="%"),
)

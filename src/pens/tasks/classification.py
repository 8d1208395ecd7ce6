# SPDX-License-Identifier: Apache-2.0
"""Classification: each sample is of one class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import field_validator

from pens.data.samples import Array
from pens.errors import DataError
from pens.settings.section import Positive, Section
from pens.tasks.class_task import ClassTask
from pens.tasks.metric import Metric

if TYPE_CHECKING:
    from torch import Tensor


class ClassificationSettings(Section):
    """The task classification."""

    title = "classification"

    class_weights: Literal["none", "balanced"] | tuple[Positive, ...] = "none"
    """How much a class counts in training. none: all samples count the same; balanced: all classes of a peer's own
    training data count the same; or a list of a weight for each class. Validation and tests have no weights."""

    @field_validator("class_weights", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        """`1,5` is a list."""
        return tuple(given.split(",")) if isinstance(given, str) and "," in given else given


class Classification(ClassTask):
    """Cross-entropy, and accuracy: the share of samples whose class has the highest score."""

    name = "classification"
    about = "each sample is of one class; cross-entropy, accuracy"
    section = ClassificationSettings
    is_cross_entropy = True

    @property
    def metrics(self) -> Sequence[Metric]:
        return METRICS if self._weights != "none" else METRICS[:1]

    @property
    def _weights(self) -> Literal["none", "balanced"] | tuple[float, ...]:
        return self.options.class_weights if isinstance(self.options, ClassificationSettings) else "none"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        from torch.nn import functional as F

        return F.cross_entropy(outputs, targets, reduction="none")

    def check(self, targets: Array) -> None:
        super().check(targets)
        weights = self._weights
        if not isinstance(weights, str) and len(targets) and targets.max() >= len(weights):
            raise DataError(
                f"class_weights has {len(weights)} weights, but there is a label {targets.max()}: give one for each "
                "class, from 0 on"
            )

    def sample_weights(self, targets: Array) -> Array | None:
        if self._weights == "none":
            return None
        if self._weights == "balanced":
            _, which, counts = np.unique(targets, return_inverse=True, return_counts=True)
            balanced: Array = len(targets) / (len(counts) * counts[which])
            return balanced
        given: Array = np.array(self._weights)[targets]
        return given


def hits(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether the class of each sample has its highest score.  [batch, class], [batch] → [batch]"""
    return outputs.argmax(1) == targets


def counts_by_class(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each class: whether the sample is of it, is taken for it, or both.  → [batch, 3 × class]"""
    from torch.nn import functional as F

    classes = outputs.shape[1]
    real, said = F.one_hot(targets, classes), F.one_hot(outputs.argmax(1), classes)
    return _joined(real, said, real * said)


def _joined(*columns: Tensor) -> Tensor:
    import torch

    return torch.cat(columns, 1)


def balanced_accuracy(sums: Array, count: int) -> float:
    """The mean over classes of the share of their samples that are recognised."""
    real, _, right = sums.reshape(3, -1)
    there = real > 0
    return float((right[there] / real[there]).mean())


def macro_f1(sums: Array, count: int) -> float:
    """The mean over classes of 2 TP / (2 TP + FP + FN), of those that occur or are said to."""
    real, said, right = sums.reshape(3, -1)
    there = real + said > 0
    return float((2 * right[there] / (real + said)[there]).mean()) if there.any() else 0.0


METRICS = (
    Metric("accuracy", hits, unit="%"),
    Metric("balanced accuracy", counts_by_class, balanced_accuracy, unit="%"),
    Metric("macro F1", counts_by_class, macro_f1, unit="%"),
)

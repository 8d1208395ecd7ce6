"""Samples: inputs and labels, the one form in which data travels through pens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pens.errors import DataError

Array = NDArray[Any]


@dataclass(frozen=True)
class Samples:
    """Inputs `x` [sample, ...] and class labels `y` [sample]."""

    x: Array
    y: Array

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise DataError(f"{len(self.x)} inputs but {len(self.y)} labels: each sample needs one label")
        if self.y.ndim != 1 or not np.issubdtype(self.y.dtype, np.integer):
            raise DataError(
                f"labels have shape {self.y.shape} and type {self.y.dtype}: expected one integer class per sample"
            )

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Array | slice) -> Samples:
        return Samples(self.x[index], self.y[index])


@dataclass(frozen=True)
class Dataset:
    """A labelled train and test set. Images are [sample, channel, height, width]."""

    name: str
    train: Samples
    test: Samples

    @property
    def num_classes(self) -> int:
        return int(max(self.train.y.max(initial=0), self.test.y.max(initial=0))) + 1

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])


def concatenate(parts: list[Samples]) -> Samples:
    return Samples(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))

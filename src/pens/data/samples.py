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
    """Inputs `x` [sample, ...] and class labels `y` [sample]: arrays, or whatever NumPy makes arrays of."""

    x: Array
    y: Array

    def __post_init__(self) -> None:
        for name in ("x", "y"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        if self.x.ndim < 1 or self.x.dtype.kind not in "fiub":
            raise DataError(f"inputs have shape {self.x.shape} and type {self.x.dtype}: expected real or whole numbers")
        if self.y.ndim != 1 or (len(self.y) and self.y.dtype.kind not in "iu"):
            raise DataError(
                f"labels have shape {self.y.shape} and type {self.y.dtype}: expected one integer class per sample"
            )
        if len(self.x) != len(self.y):
            raise DataError(f"{len(self.x)} inputs but {len(self.y)} labels: each sample needs one label")
        if len(self.y) and self.y.min() < 0:
            raise DataError(f"label {self.y.min()} is negative: classes are numbered from 0")

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

    def __post_init__(self) -> None:
        check_alike([self.train, self.test])

    @property
    def num_classes(self) -> int:
        return int(max(self.train.y.max(initial=0), self.test.y.max(initial=0))) + 1

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])


def check_alike(parts: list[Samples]) -> None:
    """Refuse samples of different shapes, or of real and whole numbers mixed."""
    kinds = {(part.x.shape[1:], "real" if part.x.dtype.kind == "f" else "whole") for part in parts}
    if len(kinds) > 1:
        found = ", ".join(sorted(f"{shape} of {kind} numbers" for shape, kind in kinds))
        raise DataError(f"samples of different shapes or types: {found}; all must be alike")


def concatenate(parts: list[Samples]) -> Samples:
    return Samples(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))

# SPDX-License-Identifier: Apache-2.0
"""Samples: inputs and targets, the form in which all data pass through pens.

What targets have to look like is said by the task (`pens.tasks`), which checks them before a run: for classification
one class per sample, numbered from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pens.data.preparation import AS_GIVEN, Preparation
from pens.errors import DataError

Array = NDArray[Any]

IGNORED = -100
"""The label of positions that count nowhere, where a sample has a label for each of its positions."""

_LARGEST = np.finfo(np.float32).max
_CHECKED_AT_ONCE = 1 << 20  # numbers checked together: a few MB, whatever the size of the array


@dataclass(frozen=True)
class Samples:
    """Inputs `x` [sample, ...] and targets `y` [sample, ...], such as class labels [sample]: arrays, or anything that
    NumPy can convert to arrays."""

    x: Array
    y: Array

    def __post_init__(self) -> None:
        for name in ("x", "y"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        if self.x.ndim < 1 or self.x.dtype.kind not in "fiub":
            raise DataError(
                f"inputs have shape {self.x.shape} and type {self.x.dtype}: expected real or whole numbers in an array "
                "[sample, ...]"
            )
        if self.y.ndim < 1 or (len(self.y) and self.y.dtype.kind not in "fiub"):
            raise DataError(
                f"targets have shape {self.y.shape} and type {self.y.dtype}: expected numbers in an array "
                "[sample, ...], for classification one integer class per sample"
            )
        if len(self.x) != len(self.y):
            raise DataError(f"{len(self.x)} inputs but {len(self.y)} labels: each sample needs one label")

    def __len__(self) -> int:
        return len(self.y)

    def take(self, index: Array | slice) -> Samples:
        return Samples(self.x[index], self.y[index])


@dataclass(frozen=True)
class Dataset:
    """A labelled training set and test set. Images are [sample, channel, height, width]."""

    name: str
    train: Samples
    test: Samples
    preparation: Preparation = field(default=AS_GIVEN, kw_only=True)
    """How its inputs were prepared."""
    class_names: tuple[str, ...] = field(default=(), kw_only=True)
    """The classes' names, where labels were texts; empty: they have numbers."""

    def __post_init__(self) -> None:
        check_alike([self.train, self.test], ("the training data", "the test data").__getitem__)

    @property
    def num_classes(self) -> int:
        return int(max(self.train.y.max(initial=0), self.test.y.max(initial=0))) + 1

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest training input."""
        return float(self.train.x.min()), float(self.train.x.max())


def check_alike(parts: Sequence[Samples], name_of: Callable[[int], str]) -> None:
    """Refuse samples of different shapes, or a mixture of real and whole numbers in their inputs. `name_of`: how an
    error message names one of the parts, by its place."""
    for form, remedy in (
        (_form_of_inputs, "all inputs need the same shape, and are either real or whole numbers"),
        (_form_of_targets, "all targets need the same shape"),
    ):
        forms = [form(part) if len(part) else None for part in parts]
        first = next((place for place, of in enumerate(forms) if of is not None), 0)
        odd = next((place for place, of in enumerate(forms) if of not in (None, forms[first])), None)
        if odd is not None:
            raise DataError(
                f"{name_of(first)} have {forms[first]} per sample, but {name_of(odd)} {forms[odd]}: {remedy}"
            )


def _form_of_inputs(part: Samples) -> str:
    return f"inputs of shape {part.x.shape[1:]} of {'real' if part.x.dtype.kind == 'f' else 'whole'} numbers"


def _form_of_targets(part: Samples) -> str:
    return f"targets of shape {part.y.shape[1:]}"


def check_finite(named_parts: Iterable[tuple[str, Samples]]) -> None:
    """Refuse inputs that are not finite numbers of float32, the type in which networks compute. Each part comes with
    the name that an error message uses for it. An array that several parts share is read once."""
    checked: set[object] = set()
    for name, samples in named_parts:
        about = samples.x.__array_interface__
        key = (about["data"], about["shape"], about["strides"], about["typestr"])
        if samples.x.dtype.kind == "f" and key not in checked:
            _check_finite(name, samples.x)
        checked.add(key)


def _check_finite(name: str, x: Array) -> None:
    """Refuse one array of inputs that are not all finite.  x [sample, ...]"""
    step = max(1, _CHECKED_AT_ONCE // max(1, x[:1].size))
    starts = range(0, len(x), step)
    wrong = [start + i for start in starts for i in _not_finite(x[start : start + step])]
    if not wrong:
        return
    values = x[wrong[0]].reshape(-1)
    value = values[_not_finite(values)[0]]
    raise DataError(
        f"{name}: {len(wrong):,} of {len(x):,} samples hold NaN, infinity or numbers beyond {_LARGEST:.1e} (the first "
        f"is sample {wrong[0]}, counted from 0, with {value}), on which no network can be trained or tested: remove "
        "these samples, or replace such values, for instance by numpy.nan_to_num or by each feature's mean"
    )


def _not_finite(x: Array) -> list[int]:
    """Positions along the first axis at which some number is not finite in float32."""
    wrong = ~(np.abs(x) <= _LARGEST)  # a comparison with NaN is false
    positions: list[int] = np.flatnonzero(wrong.reshape(len(x), -1).any(1)).tolist() if wrong.any() else []
    return positions


def concatenate(parts: list[Samples]) -> Samples:
    """All samples of several parts, in the order of the parts."""
    return Samples(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))

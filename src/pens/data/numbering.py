# SPDX-License-Identifier: Apache-2.0
"""Targets become numbers: the classes of all peers together get numbers, or the targets are numbers themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pens.data.reading import Parts, Raw, Reading
from pens.data.samples import IGNORED, Array, Samples
from pens.errors import DataError

_MOST_NUMBERED = 10_000
"""Whole numbers below this are the numbers of classes as they stand."""


class Numbering:
    """How targets become numbers: the classes of all peers together, or the targets themselves."""

    def __init__(self, classes: Array | None, numbers: bool, num_classes: int | None = None) -> None:
        """`num_classes`: how many there are, where labels are their numbers; None: it is not declared."""
        self._classes, self._numbers, self._num_classes = classes, numbers, num_classes

    @staticmethod
    def of(given: Mapping[str, Parts], reading: Reading) -> Numbering:
        if reading.numbers:
            return Numbering(None, True)
        if reading.classes is not None:
            return Numbering(_listed(reading.classes), False)
        targets = [_plain(raw.y) for parts in given.values() for raw in parts.values()]
        labels = [y[_are_classes(y)] for y in targets]
        if all(y.dtype.kind in "iu" and _are_numbered(y) for y in labels):
            return Numbering(None, False, reading.num_classes)
        named = np.unique(np.concatenate(_comparable(labels)))
        if reading.num_classes is not None and len(named) > reading.num_classes:
            raise DataError(
                f"num_classes = {reading.num_classes}, but the data have {len(named)} classes, {_first(named)}: raise "
                "num_classes, or correct the labels"
            )
        return Numbering(named, False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes, where they are not numbers from 0."""
        return () if self._classes is None else tuple(str(one) for one in self._classes.tolist())

    def samples(self, name: str, part: str, raw: Raw) -> Samples:
        if self._numbers:
            return Samples(raw.x, raw.y)
        y = _plain(raw.y)
        _check_classes(name, part, raw, y)
        if self._classes is None:
            self._check_numbers(name, part, raw, y)
            return Samples(raw.x, y)
        order = np.argsort(self._classes, kind="stable")
        if self._classes.dtype.kind != y.dtype.kind and "U" in (self._classes.dtype.kind, y.dtype.kind):
            y, classes = y.astype(str), self._classes.astype(str)
            order = np.argsort(classes, kind="stable")
        else:
            classes = self._classes
        place = np.searchsorted(classes, y, sorter=order).clip(max=len(classes) - 1)
        numbers, known = order[place], _are_classes(y)
        wrong = np.flatnonzero(((classes[numbers] != y) & known).reshape(len(y), -1).any(1))
        if len(wrong):
            raise DataError(
                f"peer {name}: target {y[wrong[0]]!s} of {raw.place(wrong[0])} of its {part} data is none of the "
                f"classes {_first(classes)}: add it to `classes`, or correct it"
            )
        return Samples(raw.x, np.where(known, numbers, IGNORED).astype(np.int64))

    def _check_numbers(self, name: str, part: str, raw: Raw, y: Array) -> None:
        """Refuse labels beyond the number of classes that was declared."""
        if self._num_classes is None or not len(y) or y.max() < self._num_classes:
            return
        sample = int((y >= self._num_classes).reshape(len(y), -1).any(1).argmax())
        raise DataError(
            f"peer {name}: label {y[sample].max()} of {raw.place(sample)} of its {part} data, but num_classes = "
            f"{self._num_classes}, so labels are 0 to {self._num_classes - 1}: raise num_classes, or correct the label"
        )


def _first(classes: Array) -> str:
    """The first of them, for an error message."""
    return ", ".join(map(str, classes.tolist()[:8])) + (" …" if len(classes) > 8 else "")


def _listed(classes: Sequence[Any]) -> Array:
    """The classes that a user listed."""
    if twice := [name for name, count in Counter(map(str, classes)).items() if count > 1]:
        raise DataError(f"classes lists {twice[0]!r} twice: list each class once")
    return np.asarray(classes)


def _are_numbered(y: Array) -> bool:
    """Whether whole numbers can be the numbers of classes, from 0; larger ones are codes, such as postcodes."""
    return not len(y) or (int(y.min()) >= 0 and int(y.max()) < _MOST_NUMBERED)


def _are_classes(y: Array) -> Array:
    """Which targets are classes: all but those of positions that count nowhere."""
    if y.ndim < 2:
        return np.ones(y.shape, bool)
    none: Array = y != (str(IGNORED) if y.dtype.kind == "U" else IGNORED)
    return none


def _plain(y: Array) -> Array:
    """Targets as whole numbers or texts: booleans and real numbers without fractions are whole numbers, and dates and
    objects of which some are texts are texts."""
    if y.dtype.kind == "b":
        return y.astype(np.int64)
    if y.dtype.kind == "f" and (np.abs(y) < 2**53).all() and (y == np.round(y)).all():
        return y.astype(np.int64)
    if y.dtype.kind == "S":
        return np.char.decode(y, "utf-8", "replace")
    if y.dtype.kind == "M" and not np.isnat(y).any():
        return y.astype(str)
    if y.dtype.kind == "O" and not any(_is_missing(value) for value in y.reshape(-1)):
        return y.astype(str) if any(isinstance(value, str) for value in y.reshape(-1)) else np.array(y.tolist())
    return y


def _is_missing(value: Any) -> bool:
    """None, NaN, NaT, pandas.NA"""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _check_classes(name: str, part: str, raw: Raw, y: Array) -> None:
    """Refuse targets that are no classes."""
    if y.dtype.kind in "iuU":
        return
    values = list(y.reshape(-1))
    missing = [i for i, value in enumerate(values) if _is_missing(value) or (y.dtype.kind == "M" and np.isnat(value))]
    if missing:
        raise DataError(
            f"peer {name}: {raw.place(missing[0])} of its {part} data has no target: fill it in, or leave it out"
        )
    odd = next((i for i, value in enumerate(values) if not _is_whole_number(value)), 0)
    raise DataError(
        f"peer {name}: target {values[odd]!s} of {raw.place(odd)} of its {part} data is no class: give whole numbers "
        "or texts, or set task = 'regression' where targets are real numbers (in Federation.of: numbers=True)"
    )


def _is_whole_number(value: Any) -> bool:
    try:
        return bool(value == round(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _comparable(targets: Sequence[Array]) -> list[Array]:
    """Targets of one type: as texts where some are."""
    if any(y.dtype.kind not in "iu" for y in targets):
        return [y.astype(str) for y in targets]
    return list(targets)

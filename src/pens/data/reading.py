# SPDX-License-Identifier: Apache-2.0
"""How own data are read, and the form in which they are until targets have become numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pens.data.samples import Array

PART_NAMES = ("train", "val", "test")


@dataclass(frozen=True)
class Reading:
    """How own data are read."""

    peer: str = "peer"
    """The column of a table that names the peer."""
    target: str | tuple[str, ...] = "label"
    """The column or columns of a table that are to be predicted."""
    val_share: float = 0.2
    """The share of a peer's samples that are split off for validation, where no validation data are given."""
    test_share: float = 0.2
    """Likewise for tests."""
    classes: Sequence[Any] | None = None
    """All classes in their order, where peers do not have them all; None: those that the data have."""
    num_classes: int | None = None
    """How many classes there are, where labels are numbers from 0 and peers do not have them all."""
    numbers: bool = False
    """Whether targets are numbers, not classes."""
    standardise: bool = False
    """Whether each peer's inputs are shifted and scaled by the means and deviations of its own training data."""
    ignore: tuple[str, ...] = ()
    """Columns of a table that are of no use, such as the numbers of patients."""
    places: bool = False
    """Whether inputs are replaced by their numbers in the source, from which a file of indices is written."""


@dataclass(frozen=True)
class SourceRules:
    """How a source is read."""

    reading: Reading
    image_size: int | None = None
    partition_file: Path | None = None
    """The file that says which samples each peer holds; None: the source says it, or a partition."""
    standardises_tables: bool = True


@dataclass(frozen=True)
class Raw:
    """Inputs and targets as they were given."""

    x: Array
    y: Array
    rows: Array | None = None
    """The number of each sample's row in its table, from 0. None: the samples come from no table."""
    columns: tuple[str, ...] = ()
    """The names of the features, in their order; empty: they have none."""

    def take(self, index: Array) -> Raw:
        """Some of the samples."""
        rows = None if self.rows is None else self.rows[index]
        return replace(self, x=self.x[index], y=self.y[index], rows=rows)

    def place(self, sample: int) -> str:
        """Where a user finds a sample. Rows are counted from 1, below the header."""
        return f"sample {sample}" if self.rows is None else f"row {self.rows[sample] + 1}"


def numbered(raw: Raw, first: int = 0) -> Raw:
    """The same targets, each sample's number in place of its inputs.  [sample, 1, 1, 1]: images that can be turned"""
    return replace(raw, x=np.arange(first, first + len(raw.y))[:, None, None, None])


Parts = dict[str, Raw]
"""What is given of a peer: `train`, and `val` and `test` where they are there."""

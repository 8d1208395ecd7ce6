# SPDX-License-Identifier: Apache-2.0
"""How own data are read, and the form in which they are until targets have become numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
    numbers: bool = False
    """Whether targets are numbers, not classes."""
    standardise: bool = False
    """Whether each peer's inputs are shifted and scaled by the means and deviations of its own training data."""
    places: bool = False
    """Whether inputs are replaced by their numbers in the source, from which a file of indices is written."""


@dataclass(frozen=True)
class SourceRules:
    """How a source is read."""

    reading: Reading
    num_classes: int | None = None
    image_size: int | None = None
    partition_file: Path | None = None
    """The file that says which samples each peer holds; None: the source says it, or a partition."""
    standardises_tables: bool = True


class Raw(NamedTuple):
    """Inputs and targets as they were given."""

    x: Array
    y: Array


def numbered(raw: Raw, first: int = 0) -> Raw:
    """The same targets, each sample's number in place of its inputs.  [sample, 1, 1, 1]: images that can be turned"""
    return raw._replace(x=np.arange(first, first + len(raw.y))[:, None, None, None])


Parts = dict[str, Raw]
"""What is given of a peer: `train`, and `val` and `test` where they are there."""

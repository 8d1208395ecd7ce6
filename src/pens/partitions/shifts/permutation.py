# SPDX-License-Identifier: Apache-2.0
"""Concept shift: each cluster calls the classes by other labels, so that equal inputs have unequal labels.

The first cluster's labels stay as they are; each other cluster has a random permutation of its own.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from pens.data.samples import Array, Dataset, Samples
from pens.errors import DataError
from pens.partitions.axes import Shift, View
from pens.settings.section import Section, Whole
from pens.settings.tree import Settings


class PermutationSettings(Section):
    """The shift permutation: each cluster has a permutation of the labels."""

    title: ClassVar[str] = "permutation"
    permutations: Annotated[int, Field(ge=1, le=100)] = 2
    """The number of clusters. The first one's labels stay as they are."""
    swapped_pairs: Whole = 0
    """How many pairs of labels each further cluster exchanges; 0: all labels are permuted at random."""


class Permutation(Shift):
    """Labels are permuted, by another permutation for each cluster."""

    name = "permutation"
    about = "concept shift: each cluster has its own permutation of the labels, or some labels swapped"
    section = PermutationSettings
    needs_classes = True

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:
        chosen = settings.section(PermutationSettings)
        if dataset and chosen.permutations > (there := how_many(dataset.num_classes, chosen.swapped_pairs)):
            swaps = f" with {chosen.swapped_pairs} pairs swapped" if chosen.swapped_pairs else ""
            raise DataError(
                f"permutations = {chosen.permutations}, but {dataset.num_classes} labels have {there} permutations"
                f"{swaps}, the one that changes nothing included: lower permutations"
                f"{' or swapped_pairs' if chosen.swapped_pairs else ''}"
            )

    def clusters(self, settings: Settings) -> tuple[str, ...]:
        return tuple(f"permutation {number}" for number in range(settings.section(PermutationSettings).permutations))

    def apply(self, samples: Samples, view: View) -> Samples:
        chosen = view.settings.section(PermutationSettings)
        tables = permutations(view.num_classes, chosen.permutations, chosen.swapped_pairs, view.shared(self.name))
        return Samples(samples.x, tables[view.cluster][samples.y])

    def describe(self, settings: Settings) -> str:
        chosen = settings.section(PermutationSettings)
        pairs = f", {chosen.swapped_pairs} pairs swapped" if chosen.swapped_pairs else ""
        return f"{chosen.permutations} permutations of labels{pairs}"


def how_many(labels: int, pairs: int) -> int:
    """How many permutations there are of so many labels; with `pairs`, that exchange so many pairs, and the one that
    changes nothing. Four labels: 24, with one pair 7, with two 4."""
    if not pairs:
        return math.factorial(labels)
    return 1 + math.comb(labels, 2 * pairs) * math.prod(range(1, 2 * pairs, 2))


def permutations(labels: int, count: int, pairs: int, generator: np.random.Generator) -> Array:
    """So many different permutations, at most `how_many`, the first of which changes nothing: what each label
    becomes.  → [permutation, label]"""
    found = {tuple(range(labels)): None}
    while len(found) < count:  # each draw is new with a probability above 0
        drawn = generator.permutation(labels)
        if pairs:
            drawn, ends = np.arange(labels), drawn[: 2 * pairs]
            drawn[ends] = np.concatenate([ends[pairs:], ends[:pairs]])
        found[tuple(drawn.tolist())] = None
    return np.array(list(found))

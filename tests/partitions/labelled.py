# SPDX-License-Identifier: Apache-2.0
"""Data sets of numbered samples with given numbers of labels, and what a law of label skew promises of a federation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pens.data.samples import Array, Dataset, Samples
from pens.data.scenarios import Federation


def labelled(counts: Sequence[int], first: int = 0) -> Samples:
    """So many samples of each label, in no order; each sample is its number."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    return Samples(np.arange(first, first + len(y), dtype=np.float32)[:, None], y)


def dataset(train: Sequence[int], test: Sequence[int]) -> Dataset:
    return Dataset("numbered", labelled(train), labelled(test, first=100_000))


def numbers(samples: Samples) -> list[int]:
    return [int(number) for number in samples.x[:, 0]]


def labels(samples: Samples, num_classes: int) -> Array:
    return np.bincount(samples.y, minlength=num_classes)


def check_law(federation: Federation, of: Dataset, train: int, val: int, *, shared_tests: bool = False) -> None:
    """Sizes as asked, every sample as it was and in one place, one label law for a peer's three parts."""
    assert federation.clusters is None
    label_of = dict(zip(numbers(of.train) + numbers(of.test), of.train.y.tolist() + of.test.y.tolist(), strict=True))
    held: list[int] = []
    for peer, data in enumerate(federation.peers):
        test = federation.tests[federation.tested_on[peer]]
        assert (len(data.train), len(data.val)) == (train, val)
        whole = labels(data.train, of.num_classes) + labels(data.val, of.num_classes)
        for part in (data.train, data.val, test):
            assert [label_of[number] for number in numbers(part)] == part.y.tolist()
            law = whole * len(part) / (train + val)
            assert (np.abs(labels(part, of.num_classes) - law) < 1).all()
        held += numbers(data.train) + numbers(data.val)
        assert len(set(numbers(test))) == len(test)
    assert len(set(held)) == len(held)
    tested = [number for test in federation.tests for number in numbers(test)]
    assert set(held) <= set(numbers(of.train))
    assert set(tested) <= set(numbers(of.test))
    assert shared_tests or len(set(tested)) == len(tested)

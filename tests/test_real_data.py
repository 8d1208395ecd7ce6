# SPDX-License-Identifier: Apache-2.0
"""The real data sets, where this machine has them (PENS_DATA, the cache, or the system's folder): longer, run apart."""

from __future__ import annotations

import numpy as np
import pytest

import pens
from pens.data.sources import find_folder, load_dataset

pytestmark = pytest.mark.slow
SIZES = {"fashion-mnist": (60_000, (1, 28, 28)), "cifar-10": (50_000, (3, 32, 32))}


def needed(name: str) -> None:
    if find_folder(name) is None:
        pytest.skip(f"{name} is not on this machine")


@pytest.mark.parametrize("name", list(SIZES))
def test_the_published_set_is_read_whole(name: str) -> None:
    needed(name)
    dataset = load_dataset(name)
    count, shape = SIZES[name]
    assert dataset.train.x.shape == (count, *shape)
    assert dataset.test.x.shape == (10_000, *shape)
    assert np.bincount(dataset.train.y).tolist() == [count // 10] * 10
    assert np.bincount(dataset.test.y).tolist() == [1000] * 10


def test_pens_finds_the_clusters_in_fashion_mnist_and_gains_by_it() -> None:
    needed("fashion-mnist")
    result = pens.run("fashion-mnist-small", methods="local,random,pens,oracle", overrides={"rounds": 25})
    accuracy = {row.method: row.accuracy.mean for row in result.table}
    found = result.summary("pens")
    assert found.precision is not None
    assert found.precision.mean > 0.9
    assert accuracy["pens"] > accuracy["local"]
    assert accuracy["pens"] > accuracy["random"]
    assert accuracy["pens"] > accuracy["oracle"] - 0.04


def test_pens_finds_the_clusters_in_digits_without_rounds() -> None:
    result = pens.run("digits", methods="local,pens", overrides={"schedule": "async", "rounds": 30})
    found = result.summary("pens")
    assert found.precision is not None
    assert found.precision.mean > 0.9
    assert found.accuracy.mean > result.summary("local").accuracy.mean

# SPDX-License-Identifier: Apache-2.0
"""Label laws and size laws: cases worked out by hand, and what each promises."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.data.samples import Array
from pens.errors import DataError, NotEnoughData, SettingsError
from pens.partitions.label_laws.classes import supplies
from pens.partitions.label_laws.majority import choose_classes
from pens.partitions.labels import draw_from, largest_test
from pens.partitions.shards import cut_shards
from pens.partitions.sizes import _raised, bounded, divided, split_off
from pens.parts import LABEL_LAWS, SIZE_LAWS
from pens.settings.tree import Settings
from tests.partitions.labelled import dataset


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def counts(law: str, there: Sequence[int], sizes: Sequence[int], seed: int = 0, **settings: object) -> Array:
    clusters = np.array(settings.pop("clusters", [0] * len(sizes)))
    chosen = Settings().replace({"partition": "product", "label_law": law, **settings})
    found: Array = LABEL_LAWS.find(law).counts(np.array(there), np.array(sizes), clusters, chosen, generator(seed))
    return found


# --- labels -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20), min_size=1, max_size=4).filter(any), st.integers(1, 5), st.integers(0, 9))
def test_random_draws_take_each_sample_once(there: list[int], peers: int, seed: int) -> None:
    cuts = np.sort(generator(seed).integers(0, sum(there) + 1, peers))
    sizes = np.diff(cuts, prepend=0)
    found = draw_from(np.array(there), sizes, generator(seed))
    assert found.sum(1).tolist() == sizes.tolist()
    assert (found.sum(0) <= there).all()
    whole = draw_from(np.array(there), np.array([sum(there)]), generator(seed))
    assert whole.tolist() == [there]


def test_random_draws_are_random() -> None:
    """Ten of 50 and 50: 5 on average, with a standard deviation of √(10 · ¼ · 90 / 99) = 1.5."""
    drawn = [draw_from(np.array([50, 50]), np.array([10]), generator(seed))[0, 0] for seed in range(300)]
    assert np.mean(drawn) == pytest.approx(5, abs=0.3)
    assert np.std(drawn) == pytest.approx(1.5, abs=0.2)


def test_a_majority_class_by_hand() -> None:
    """Of 20 samples 0.8 are of the majority class and a half of the rest, too: 18 and 2. Each class is that of one
    peer."""
    found = counts("majority", [50, 50], [20, 20])
    assert sorted(found.tolist()) == [[2, 18], [18, 2]]
    assert counts("majority", [60, 20], [20, 20], majority_share=0).tolist() == [[15, 5]] * 2


def test_majority_classes_are_as_frequent_as_their_samples() -> None:
    assert sorted(choose_classes(np.array([30, 10]), np.array([10] * 4), generator()).tolist()) == [0, 0, 0, 1]
    assert choose_classes(np.array([31, 9]), np.array([20, 20]), generator()).tolist() == [0, 0]  # middles 10 and 30
    assert choose_classes(np.array([0, 7, 0]), np.array([1, 3]), generator()).tolist() == [1, 1]
    found = choose_classes(np.array([5000] * 10), np.array([500] * 100), generator())
    assert np.bincount(found).tolist() == [10] * 10


@given(st.integers(2, 12), st.floats(0, 0.99), st.integers(0, 9))
def test_of_a_majority_class_there_are_never_more_than_there_are(peers: int, share: float, seed: int) -> None:
    sizes = generator(seed).integers(1, 20, peers)
    third = int(sizes.sum()) // 3
    there = [third, int(sizes.sum()) - third - 1, 1]  # all are handed out
    found = counts("majority", there, sizes.tolist(), seed, majority_share=share)
    assert found.sum(1).tolist() == sizes.tolist()
    assert found.sum(0).tolist() == there


def test_label_groups_by_hand() -> None:
    """All samples of four labels, for one peer of labels 0 and 3 and two of labels 1 and 2."""
    found = counts("classes", [3, 4, 6, 2], [5, 4, 6], class_groups=[[0, 3], [1, 2]], clusters=[0, 1, 1])
    assert found[0].tolist() == [3, 0, 0, 2]
    assert found[1:].sum(0).tolist() == [0, 4, 6, 0]
    assert found.sum(1).tolist() == [5, 4, 6]
    with pytest.raises(NotEnoughData, match=r"cluster classes 0\+3 asks for 6 samples, but its classes have 5 for it"):
        counts("classes", [3, 4, 6, 2], [6], class_groups=[[0, 3], [1, 2]], clusters=[0])


def test_clusters_that_share_a_class_share_its_samples() -> None:
    there, asked = np.array([6, 6, 6]), np.array([4, 8])
    assert supplies(there, asked, ((0, 1), (1, 2)), generator()).tolist() == [[6, 2, 0], [0, 4, 6]]


def test_label_groups_are_checked() -> None:
    for groups, reason in (
        ([[0, 1, 0]], r"\[0, 1, 0\] names a class twice"),
        ([[0, 1], [1, 0]], "two clusters have the same classes"),
    ):
        with pytest.raises(SettingsError, match=reason):
            Settings().replace({"class_groups": groups})
    chosen = Settings().replace({"partition": "product", "label_law": "classes", "class_groups": [[0], [1, 2]]})
    law = LABEL_LAWS.find("classes")
    assert law.clusters(chosen) == ("class 0", "classes 1+2")
    law.check(chosen, dataset([3, 3, 3], [1, 1, 1]))
    with pytest.raises(
        DataError, match="names class 2, of which numbered has no training sample: its classes are 0, 1"
    ):
        law.check(chosen, dataset([3, 3], [1, 1, 1]))


def test_shards_of_peers_of_unequal_size_by_hand() -> None:
    """Sorted 0000 1111 2222. A peer of four and one of eight samples: 0000 and 11112222, or 00001111 and 2222."""
    found = {
        tuple(map(tuple, cut_shards(np.array([4, 4, 4]), np.array([4, 8]), 1, generator(seed)).tolist()))
        for seed in range(20)
    }
    assert found == {((4, 0, 0), (0, 4, 4)), ((0, 0, 4), (4, 4, 0))}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 9), st.integers(0, 9))
def test_shards_do_not_overlap(sizes: list[int], shards: int, more: int, seed: int) -> None:
    there = np.array([sum(sizes) // 2, 0, sum(sizes) - sum(sizes) // 2 + more])
    found = cut_shards(there, np.array(sizes), shards, generator(seed))
    assert found.sum(1).tolist() == sizes
    assert (found.sum(0) <= there).all()


def test_dirichlet_shares_of_peers_of_unequal_size_are_those_of_the_data_for_a_large_alpha() -> None:
    found = counts("dirichlet", [60, 30, 10], [10, 50, 40], alpha=1e6)
    assert (abs(found - np.array([[6, 3, 1], [30, 15, 5], [24, 12, 4]])) < 1.5).all()


def test_how_large_tests_of_peers_of_unequal_size_can_be() -> None:
    """Of two peers' samples all three, and three of six, are of label 0: 9 test samples of label 0 allow 9 / 1.5 = 6
    each, or 9 where both draw from all."""
    there, of = np.array([9, 20]), np.array([[3, 0], [3, 3]])
    assert (largest_test(of, there, shared=False), largest_test(of, there, shared=True)) == (6, 9)


# --- sizes ------------------------------------------------------------------------------------------------------------


def test_sizes_by_hand() -> None:
    """Weights 1, 1, 6, 8 of 16 samples, at least 2 each: 2, 2, and 12 by 6 : 8."""
    weights = np.array([1.0, 1, 6, 8])
    found = {tuple(bounded(weights, 16, 2, generator(seed)).tolist()) for seed in range(40)}
    assert found == {(2, 2, 5, 7), (2, 2, 6, 6)}
    assert bounded(weights, 32, 2, generator()).tolist() == [2, 2, 12, 16]
    assert bounded(np.array([1.0, 100, 100]), 9, 3, generator()).tolist() == [3, 3, 3]


@given(
    st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=8), st.integers(2, 9), st.integers(0, 10**6), st.integers(0, 9)
)
def test_sizes_add_up_and_are_bounded_below(weights: list[float], smallest: int, more: int, seed: int) -> None:
    total = smallest * len(weights) + more
    found = bounded(np.array(weights), total, smallest, generator(seed))
    assert found.sum() == total
    assert found.min() >= smallest
    order = np.argsort(weights, kind="stable")
    assert (np.diff(found[order]) >= -1).all()  # larger weights, larger sizes, but for rounding


def test_what_rounding_leaves_too_small_is_taken_from_the_largest() -> None:
    assert _raised(np.array([1, 9, 8, 0]), 2).tolist() == [2, 7, 7, 2]  # from 9, 8 and 8


def test_weights_of_the_laws() -> None:
    settings = Settings().replace({"partition": "product", "spread": 0.5, "exponent": 2})
    assert SIZE_LAWS.find("equal").weights(3, settings, generator()).tolist() == [1, 1, 1]
    power = SIZE_LAWS.find("power").weights(4, settings, generator())
    assert sorted(power.tolist()) == pytest.approx([1 / 16, 1 / 9, 1 / 4, 1])
    logs = np.log(SIZE_LAWS.find("lognormal").weights(4000, settings, generator()))
    assert (logs.mean(), logs.std()) == (pytest.approx(0, abs=0.05), pytest.approx(0.5, abs=0.03))
    even = settings.replace({"spread": 0, "exponent": 0})
    for name in ("lognormal", "power"):
        assert SIZE_LAWS.find(name).weights(3, even, generator()).tolist() == [1, 1, 1]


def test_shares_of_clusters_by_hand() -> None:
    assert divided((70, 20, 5, 5), 100) == [70, 20, 5, 5]
    assert divided((70, 20, 5, 5), 20) == [14, 4, 1, 1]
    assert (divided((30, 2), 32), divided((30, 2), 16), divided((30, 2), 6)) == ([30, 2], [15, 1], [5, 1])
    assert divided((1, 1, 1), 8) == [3, 3, 2]


def test_validation_samples_by_hand() -> None:
    assert split_off(np.array([500, 5, 6, 2, 12, 13]), 400, 100).tolist() == [100, 1, 1, 1, 2, 3]
    assert split_off(np.array([2, 9]), 1, 9).tolist() == [1, 8]  # at least one to train on

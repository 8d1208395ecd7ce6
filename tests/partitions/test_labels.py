# SPDX-License-Identifier: Apache-2.0
"""Label skew: whole numbers in proportion, samples dealt once, and one label law for all that a peer has."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens import rng
from pens.errors import NotEnoughData
from pens.partitions.cells import federation_of
from pens.partitions.labels import apportion, counts_of_tests, deal, largest_test
from pens.settings.schema import ScenarioSettings
from tests.partitions.labelled import check_law, dataset, labelled, labels, numbers

weights = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=8).filter(any)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_two_samples_by_weights_one_one_two() -> None:
    """Exactly 0.5, 0.5 and 1: half of the time 1, 0, 1 and else 0, 1, 1."""
    found = [tuple(apportion(np.array([1, 1, 2]), 2, generator(seed)).tolist()) for seed in range(400)]
    assert set(found) == {(1, 0, 1), (0, 1, 1)}
    assert found.count((1, 0, 1)) == pytest.approx(200, abs=40)


@given(weights, st.integers(0, 5000), st.integers(0, 9))
def test_parts_add_up_and_are_less_than_one_away_from_their_share(of: list[int], size: int, seed: int) -> None:
    found = apportion(np.array([of, of[::-1]]), size, generator(seed))
    for row, each in zip(found.tolist(), (of, of[::-1]), strict=True):
        assert sum(row) == size
        assert all(abs(n - Fraction(w * size, sum(of))) < 1 for n, w in zip(row, each, strict=True))


@given(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3).filter(any), min_size=1, max_size=6))
def test_samples_are_dealt_once_as_many_of_each_label_as_asked(counts: list[list[int]]) -> None:
    asked = np.array(counts)
    samples = labelled(asked.sum(0).tolist())
    hands = deal(samples.y, asked, generator())
    assert sorted(np.concatenate(hands).tolist()) == list(range(len(samples)))
    assert [labels(samples.take(hand), 3).tolist() for hand in hands] == counts


def test_two_peers_by_hand() -> None:
    """Of four samples peer 0 has label 0 alone, peer 1 half and half. Tests of four samples need six of label 0, which
    is all there is, and two of label 1. Where the peers share the test set, each has six: all six of label 0, or three
    and three."""
    data, counts = dataset([6, 2], [6, 3]), np.array([[4, 0], [2, 2]])
    scenario = ScenarioSettings(peers=2, train_per_peer=2, val_per_peer=2)
    own = federation_of(data, counts, scenario, 0)
    assert [labels(peer.train, 2).tolist() for peer in own.peers] == [[2, 0], [1, 1]]
    assert [labels(peer.val, 2).tolist() for peer in own.peers] == [[2, 0], [1, 1]]
    assert [labels(test, 2).tolist() for test in own.tests] == [[4, 0], [2, 2]]
    shared = federation_of(data, counts, scenario.model_copy(update={"test": "full"}), 0)
    assert [labels(test, 2).tolist() for test in shared.tests] == [[6, 0], [3, 3]]
    few = federation_of(data, counts, scenario.model_copy(update={"test_samples": 2}), 0)
    assert [labels(test, 2).tolist() for test in few.tests] == [[2, 0], [1, 1]]


def test_samples_are_dealt_from_a_stream_of_its_own() -> None:
    data, counts = dataset([6, 2], [6, 3]), np.array([[4, 0], [2, 2]])
    stream = generator(rng.key(7, "labels"))
    train = apportion(counts, 2, stream)
    held = deal(data.train.y, np.concatenate([train, counts - train]), stream)
    made = federation_of(data, counts, ScenarioSettings(peers=2, train_per_peer=2, val_per_peer=2), 7)
    parts = [peer.train for peer in made.peers] + [peer.val for peer in made.peers]
    assert [numbers(part) for part in parts] == [numbers(data.train.take(hand)) for hand in held]


def test_how_large_test_sets_can_be_by_hand() -> None:
    """Of four samples one is of label 0 and three are of label 1: from 1 and 6 test samples the one of label 0 allows
    four. With a second peer that has label 1 alone, 6 of label 1 allow 6 · 4 / 7 = 3, and four where both draw from
    all."""
    there = np.array([1, 6])
    assert largest_test(np.array([[1, 3]]), there, shared=False) == 4
    assert largest_test(np.array([[1, 3], [0, 4]]), there, shared=False) == 3
    assert largest_test(np.array([[1, 3], [0, 4]]), there, shared=True) == 4


def test_test_sets_get_smaller_one_by_one_until_there_are_samples_enough() -> None:
    """Ten samples are one for each of seven peers, and no two."""
    counts = np.ones((7, 2), np.int64)
    for most in (1, 2, 3, 4):
        found = counts_of_tests(counts[:, None], np.array([5, 5]), most, False, generator())
        assert found is not None
        assert found.sum((1, 2)).tolist() == [1] * 7
    assert counts_of_tests(counts[:, None], np.array([3, 3]), 4, False, generator()) is None


@given(st.integers(2, 6), st.integers(1, 9), st.integers(1, 5), st.booleans(), st.integers(0, 99))
def test_what_a_peer_trains_validates_and_is_tested_on_follows_one_law(
    peers: int, train: int, val: int, shared: bool, seed: int
) -> None:
    counts = generator(seed).multinomial(train + val, [0.7, 0.2, 0.1], peers)
    data = dataset(counts.sum(0).tolist(), [60, 40, 20])
    scenario = ScenarioSettings(
        peers=peers, train_per_peer=train, val_per_peer=val, test="full" if shared else "partitioned"
    )
    federation = federation_of(data, counts, scenario, seed)
    check_law(federation, data, train, val, shared_tests=shared)
    assert len({len(test) for test in federation.tests}) == 1


def test_no_more_is_tested_on_than_there_is() -> None:
    """Seven peers with half a sample of each label: rounding may ask for more than the five of a label."""
    counts = np.ones((7, 2), np.int64)
    data = dataset([7, 7], [5, 5])
    scenario = ScenarioSettings(peers=7, train_per_peer=1, val_per_peer=1)
    sizes = {len(federation_of(data, counts, scenario, seed).tests[0]) for seed in range(20)}
    assert sizes == {1}
    with pytest.raises(NotEnoughData, match=r"has 6 test samples, too few .* 7 peers: use fewer peers or test = full"):
        federation_of(dataset([7, 7], [3, 3]), counts, scenario, 0)
    with pytest.raises(NotEnoughData, match="test data of all labels"):
        federation_of(dataset([7, 7], [9, 0]), counts, scenario.model_copy(update={"test": "full"}), 0)


def test_peers_of_unequal_size_train_on_the_same_share() -> None:
    """40 training and 20 validation samples: of 90 a peer trains on 60, of 6 on 4, and of 2 on 1. Test sets are of one
    size: 30 of label 0 and 3 of label 1 for shares 1, 1/2 and 1 of label 0 allow min(30 / 2.5, 3 / 0.5) = 6."""
    counts = np.array([[90, 0], [3, 3], [2, 0]])
    scenario = ScenarioSettings(peers=3, train_per_peer=40, val_per_peer=20)
    made = federation_of(dataset([95, 3], [30, 3]), counts, scenario, 0)
    assert [(len(peer.train), len(peer.val)) for peer in made.peers] == [(60, 30), (4, 2), (1, 1)]
    assert [labels(peer.train, 2).tolist() for peer in made.peers] == [[60, 0], [2, 2], [1, 0]]
    assert [labels(test, 2).tolist() for test in made.tests] == [[6, 0], [3, 3], [6, 0]]


@pytest.mark.parametrize(
    ("counts", "error", "reason"),
    [
        ([[2, 2, 0], [2, 2, 0]], ValueError, r"counts have shape \[2, 3\]: give a row .* each of the 2 labels of"),
        ([[2, 2], [2, -1]], ValueError, "counts say -1 samples of label 1 for peer 1: give whole numbers"),
        ([[2, 2], [0.5, 2]], ValueError, "counts say 0.5 samples of label 0 for peer 1"),
        ([[2, 2], [0, 1]], NotEnoughData, "peer 1 gets 1 samples: each peer needs at least two"),
        ([[2, 2], [4, 6]], NotEnoughData, "the peers together get 8 samples of label 1, but .* has 7"),
    ],
)
def test_counts_that_cannot_be_are_refused(counts: list[list[float]], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        federation_of(dataset([7, 7], [7, 7]), np.array(counts), ScenarioSettings(peers=2), 0)


def test_real_weights_are_shares() -> None:
    assert apportion(np.array([[0.1, 0.1, 0.2], [5.0, 0.0, 0.0]]), 4, generator()).tolist() == [[1, 1, 2], [4, 0, 0]]
    for weights in ([0.0, 0.0], [1.0, -1.0], [1.0, np.nan]):
        with pytest.raises(ValueError, match="weights are finite numbers of at least 0"):
            apportion(np.array(weights), 2, generator())

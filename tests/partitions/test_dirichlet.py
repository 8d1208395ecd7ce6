# SPDX-License-Identifier: Apache-2.0
"""The partition dirichlet: always ends, IID where alpha is large, skewed as its law says where it is small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pens import rng
from pens.errors import NotEnoughData, SettingsError
from pens.partitions.dirichlet import draw_counts, lacking
from pens.partitions.labels import within
from pens.partitions.partition import build_federation, partition_of
from pens.settings.tree import Settings
from tests.partitions.labelled import check_law, dataset, labels, numbers

SETTINGS = Settings().replace({"partition": "dirichlet", "peers": 6, "train_per_peer": 9, "val_per_peer": 5})
alphas = st.sampled_from([1e-3, 0.01, 0.1, 1.0, 30.0, 1e6])


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_what_too_many_want_is_taken_back_from_all_of_them() -> None:
    """Two peers want 4 of label 0 and a third 4 of label 1; there are 4 and 8: the first two get 2 and 2."""
    wanted = np.array([[4, 0], [4, 0], [0, 4]])
    assert within(wanted, np.array([4, 8]), generator()).tolist() == [[2, 2], [2, 2], [0, 4]]
    assert within(wanted, np.array([8, 4]), generator()).tolist() == wanted.tolist()


def test_what_draws_lack_by_hand() -> None:
    assert lacking(np.array([[3, 1], [0, 4]]), np.array([2, -1])).tolist() == [2, 4]


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=6),
    st.integers(1, 30),
    st.integers(1, 9),
    alphas,
    st.integers(0, 9),
)
def test_every_peer_gets_its_samples_of_those_that_there_are(
    there: list[int], peers: int, size: int, alpha: float, seed: int
) -> None:
    missing = max(0, peers * size - sum(there))
    have = np.array([*there, missing])  # often exactly as many as are asked for
    counts = draw_counts(have, peers, size, alpha, generator(seed))
    assert counts.min() >= 0
    assert (counts.sum(1) == size).all()
    assert (counts.sum(0) <= have).all()


@pytest.mark.parametrize("alpha", [0.01, 1e-3])
def test_it_ends_with_100_peers_that_want_one_label_each_and_all_samples_used(alpha: float) -> None:
    """Draws for which most samples are left keep the skew: with the first draw it would be 86 % at alpha = 0.01."""
    counts = draw_counts(np.full(10, 5000), 100, 500, alpha, generator())
    assert (counts.sum(0) == 5000).all()
    assert counts.max(1).mean() / 500 > 0.9


@pytest.mark.parametrize("there", [[5000] * 10, [9000, 500, 300, 200]])
def test_a_large_alpha_is_iid(there: list[int]) -> None:
    counts = draw_counts(np.array(there), 20, 100, 1e6, generator())
    assert np.abs(counts - 100 * np.array(there) / sum(there)).max() < 2


@pytest.mark.parametrize("alpha", [0.1, 0.3, 1.0, 10.0])
def test_shares_vary_as_those_of_a_dirichlet_distribution(alpha: float) -> None:
    """Of 4 labels, shares have mean 1/4 and variance 3/16 / (4 alpha + 1)."""
    shares = draw_counts(np.full(4, 10**7), 2000, 1000, alpha, generator()) / 1000
    assert shares.mean(0) == pytest.approx([0.25] * 4, abs=0.03)
    assert shares.var() == pytest.approx(3 / 16 / (4 * alpha + 1), rel=0.08)


def test_labels_without_samples_do_not_count() -> None:
    """Of 2 labels, shares have variance 1/4 / (2 alpha + 1), whatever labels there are beside."""
    shares = draw_counts(np.array([0, 10**7, 0, 10**7, 0, 0]), 2000, 1000, 1.0, generator())[:, [1, 3]] / 1000
    assert shares.var() == pytest.approx(1 / 4 / 3, rel=0.08)


@settings(max_examples=10)
@given(alphas, st.integers(0, 99))
def test_a_federation_keeps_the_law_of_labels(alpha: float, seed: int) -> None:
    data = dataset([40, 30, 20, 10], [80, 60, 40, 20])
    check_law(build_federation(data, SETTINGS.replace({"alpha": alpha}), seed), data, 9, 5)


def test_the_seed_decides() -> None:
    data = dataset([40, 30, 20, 10], [80, 60, 40, 20])
    one, again, other = (build_federation(data, SETTINGS, seed) for seed in (1, 1, 2))
    for part in ("train", "val"):
        assert numbers(getattr(one.peers[5], part)) == numbers(getattr(again.peers[5], part))
    assert [numbers(test) for test in one.tests] == [numbers(test) for test in again.tests]
    assert numbers(one.peers[0].train) != numbers(other.peers[0].train)


def test_its_counts_are_drawn_from_a_stream_of_its_own() -> None:
    data = dataset([40, 30, 20, 10], [80, 60, 40, 20])
    stream = generator(rng.key(3, "dirichlet"))
    counts = draw_counts(np.array([40, 30, 20, 10]), 6, 14, 0.3, stream)
    peers = build_federation(data, SETTINGS, 3).peers
    assert [(labels(peer.train, 4) + labels(peer.val, 4)).tolist() for peer in peers] == counts.tolist()


def test_what_it_says_of_itself_and_refuses() -> None:
    partition = partition_of(SETTINGS)
    assert partition.describe(SETTINGS.replace({"alpha": 0.5})) == "label shares from Dirichlet(0.5)"
    assert partition.smallest_cluster(SETTINGS) is None
    with pytest.raises(SettingsError, match=r"alpha = 0: input should be greater than or equal to 0\.001"):
        SETTINGS.replace({"alpha": 0})
    with pytest.raises(
        NotEnoughData,
        match=r"6 peers × \(9 .* = 84 samples, but numbered has 80: at most train_per_peer = 8 or peers = 5",
    ):
        build_federation(dataset([40, 40], [40, 40]), SETTINGS, 0)
    for fits in ({"train_per_peer": 8}, {"peers": 5}):
        build_federation(dataset([40, 40], [40, 40]), SETTINGS.replace(fits), 0)

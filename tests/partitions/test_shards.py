# SPDX-License-Identifier: Apache-2.0
"""The partition shards: the samples sorted by label, cut, and handed out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pens import rng
from pens.errors import NotEnoughData, SettingsError
from pens.partitions.partition import build_federation, partition_of
from pens.partitions.shards import draw_shards
from pens.settings.tree import Settings
from tests.partitions.labelled import check_law, dataset, labels

SETTINGS = Settings().replace({"partition": "shards", "peers": 3, "train_per_peer": 4, "val_per_peer": 2})


def test_four_shards_of_three_by_hand() -> None:
    """Four samples of each of three labels make 000, 011, 112 and 222: each of four peers gets one of them."""
    counts = draw_shards(np.array([4, 4, 4]), 4, 1, 3, np.random.default_rng(0))
    assert sorted(counts.tolist()) == [[0, 0, 3], [0, 2, 1], [1, 2, 0], [3, 0, 0]]
    two = draw_shards(np.array([4, 4, 4]), 2, 2, 3, np.random.default_rng(0))
    assert sorted(two.tolist()) in ([[1, 2, 3], [3, 2, 1]], [[1, 4, 1], [3, 0, 3]], [[0, 2, 4], [4, 2, 0]])


def test_the_published_setting_has_two_labels_per_peer() -> None:
    """100 peers, two shards of 250 of 50,000 samples of ten labels: shards do not cross labels, and all are used."""
    counts = draw_shards(np.full(10, 5000), 100, 2, 250, np.random.default_rng(0))
    assert counts.sum(0).tolist() == [5000] * 10
    assert set(np.unique(counts).tolist()) == {0, 250, 500}
    assert (counts > 0).sum(1).max() == 2


@settings(max_examples=10)
@given(st.sampled_from([1, 2, 3, 6]), st.integers(0, 99))
def test_a_federation_keeps_the_law_of_labels(shards: int, seed: int) -> None:
    data = dataset([9, 7, 5], [30, 30, 30])
    federation = build_federation(data, SETTINGS.replace({"shards_per_peer": shards}), seed)
    check_law(federation, data, 4, 2)


def test_its_shards_are_drawn_from_a_stream_of_its_own() -> None:
    data = dataset([9, 7, 5], [30, 30, 30])
    counts = draw_shards(np.array([9, 7, 5]), 3, 2, 3, np.random.default_rng(rng.key(4, "shards")))
    peers = build_federation(data, SETTINGS, 4).peers
    assert [(labels(peer.train, 3) + labels(peer.val, 3)).tolist() for peer in peers] == counts.tolist()


def test_what_it_says_of_itself_and_refuses() -> None:
    partition = partition_of(SETTINGS)
    assert partition.describe(SETTINGS) == "2 label shards per peer"
    assert partition.describe(SETTINGS.replace({"shards_per_peer": 1})) == "1 label shard per peer"
    assert partition.smallest_cluster(SETTINGS) is None
    four = SETTINGS.replace({"shards_per_peer": 4})
    with pytest.raises(SettingsError, match=r"shards_per_peer = 4, but 4 training \+ 2 .*: use train_per_peer = 6"):
        partition.check(four)
    partition.check(four.replace({"train_per_peer": 6}))
    with pytest.raises(NotEnoughData, match="= 18 samples, but numbered has 17"):
        build_federation(dataset([9, 8], [9, 9]), SETTINGS, 0)

# SPDX-License-Identifier: Apache-2.0
"""The partition groups: clusters of unequal size, each with a rotation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pens import rng
from pens.errors import DataError, NotEnoughData, SettingsError
from pens.partitions.partition import build_federation, partition_of
from pens.settings.tree import Settings
from tests.data.test_scenarios import angle_of, dataset, identities
from tests.partitions.labelled import dataset as flat_dataset

SETTINGS = Settings().replace(
    {"partition": "groups", "sizes": [2, 1], "rotations": [0, 90], "peers": 3, "train_per_peer": 2, "val_per_peer": 1}
)


def test_who_holds_what_by_hand() -> None:
    """Two peers of 0°, one of 90°: 9 of 12 samples in random order, three for each peer, the last for validation; each
    rotation has half of the test set."""
    federation = build_federation(dataset(train=12, test=6), SETTINGS, 0)
    assert (federation.clusters, federation.cluster_names) == ((0, 0, 1), ("0°", "90°"))
    order = np.random.default_rng(rng.key(0, "split train")).permutation(12) + 1
    held = [(identities(peer.train), identities(peer.val)) for peer in federation.peers]
    assert held == [(order[start : start + 2].tolist(), [order[start + 2]]) for start in (0, 3, 6)]
    assert [angle_of(peer.train.x[0]) for peer in federation.peers] == [0, 0, 90]
    assert [len(test) for test in federation.tests] == [3, 3]
    assert [angle_of(test.x[0]) for test in federation.tests] == [0, 90]
    assert federation.tested_on == federation.clusters


@settings(max_examples=10)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(lambda s: sum(s) > 1), st.integers(0, 9))
def test_sizes_are_those_asked_for_and_no_sample_is_in_two_places(sizes: list[int], seed: int) -> None:
    angles = [0, 90, 180, 270][: len(sizes)]
    chosen = SETTINGS.replace({"sizes": sizes, "rotations": angles, "peers": sum(sizes)})
    federation = build_federation(dataset(), chosen, seed)
    assert federation.clusters is not None
    assert np.bincount(federation.clusters).tolist() == sizes
    assert federation.smallest_cluster == partition_of(chosen).smallest_cluster(chosen) == min(sizes)
    held = [i for peer in federation.peers for part in (peer.train, peer.val) for i in identities(part)]
    assert len(set(held)) == len(held) == 3 * sum(sizes)
    for peer, cluster in zip(federation.peers, federation.clusters, strict=True):
        assert {angle_of(image) for part in (peer.train, peer.val) for image in part.x} == {angles[cluster]}
    tested = [i for test in federation.tests for i in identities(test)]
    assert len(set(tested)) == len(tested)


def test_what_it_says_of_itself_and_refuses() -> None:
    partition = partition_of(SETTINGS)
    assert partition.describe(SETTINGS) == "clusters 0° (2), 90° (1)"
    for changes, reason in (
        ({"sizes": [2, 2]}, r"sizes = \[2, 2\] are 4 peers together, but peers = 3: set peers = 4"),
        ({"sizes": [3]}, r"sizes = \[3\] are 1 clusters, but rotations = \[0, 90\] are 2: give each rotation a size"),
    ):
        with pytest.raises(SettingsError, match=reason):
            partition.check(SETTINGS.replace(changes))
    with pytest.raises(NotEnoughData, match="= 9 samples, but numbered has 8"):
        build_federation(dataset(train=8), SETTINGS, 0)
    with pytest.raises(NotEnoughData, match="1 test samples, but 2 rotations"):
        build_federation(dataset(test=1), SETTINGS, 0)
    with pytest.raises(DataError, match="cannot be rotated"):
        build_federation(flat_dataset([9, 9], [9, 9]), SETTINGS, 0)

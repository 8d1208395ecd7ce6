# SPDX-License-Identifier: Apache-2.0
"""Who belongs together by the peers' own choices, against groups that were planted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.report.discovered import MOST_PEERS, discover, grouped
from pens.settings.tree import Settings
from tests.conftest import TINY
from tests.report.made import made_run

SETTINGS = Settings().replace(TINY)


@given(st.lists(st.integers(2, 7), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_groups_whose_peers_all_chose_each_other_are_found_whatever_their_numbers(sizes: list[int], random) -> None:  # type: ignore[no-untyped-def]
    peers = list(range(sum(sizes)))
    random.shuffle(peers)
    groups, begin = [], 0
    choices = np.zeros((len(peers), len(peers)))
    for size in sizes:
        groups.append(tuple(sorted(peers[begin : begin + size])))
        choices[np.ix_(groups[-1], groups[-1])] = 1
        begin += size
    np.fill_diagonal(choices, 0)
    found = grouped(choices)
    assert sorted(found.groups) == sorted(groups)
    assert found.within_all == 1
    assert sorted(found.order) == sorted(peers)
    place = {peer: i for i, peer in enumerate(found.order)}
    for group in found.groups:  # side by side
        places = sorted(place[peer] for peer in group)
        assert places == list(range(places[0], places[0] + len(group)))


def test_some_wrong_and_many_missing_choices_do_not_hide_the_groups() -> None:
    generator = np.random.default_rng(0)
    cluster = np.repeat([0, 1, 2], [24, 24, 12])
    alike = cluster[:, None] == cluster[None]
    choices = np.where(alike, generator.random(alike.shape) < 0.6, generator.random(alike.shape) < 0.03).astype(float)
    np.fill_diagonal(choices, 0)
    found = grouped(choices)
    assert [len(group) for group in found.groups] == [24, 24, 12]
    assert all(len(set(cluster[list(group)])) == 1 for group in found.groups)
    assert 0.8 < found.within_all < 1


def test_peers_that_do_not_part_are_one_group_and_a_peer_of_nobodys_choice_is_alone() -> None:
    everybody = 1 - np.eye(5)
    assert grouped(everybody).groups == ((0, 1, 2, 3, 4),)
    everybody[4] = everybody[:, 4] = 0
    found = grouped(everybody)
    assert found.groups == ((0, 1, 2, 3), (4,))
    assert found.within[0] == 1
    assert math.isnan(found.within[1])
    assert grouped(np.zeros((2, 2))).groups == ((0,), (1,))
    assert grouped(1 - np.eye(2)).groups == ((0, 1),)


def test_choices_of_all_seeds_count_together_and_merges_stand_in_where_nobody_has_selected() -> None:
    chosen: list[dict[int, tuple[int, ...]]] = [
        {0: (1, 2), 1: (0, 2), 2: (0,), 3: (4, 5), 4: (3,), 5: (3, 4)},
        {0: (1,), 1: (0,), 2: (1,), 3: (5,), 4: (5,), 5: (4, 0)},
    ]
    runs = [replace(made_run(SETTINGS, "pens", seed, 0.5), neighbours=of) for seed, of in enumerate(chosen)]
    found = discover(runs)
    assert found
    assert found.groups == ((0, 1, 2), (3, 4, 5))
    assert found.within == pytest.approx((1, 8 / 9))  # peer 5 once chose peer 0, of nine choices in its group
    assert found.within_all == pytest.approx(16 / 17)
    assert discover([replace(run, neighbours={}) for run in runs])
    assert discover([made_run(SETTINGS, "random", 0, 0.5)]) is None  # whom it merges, it did not choose
    assert discover([]) is None
    many = replace(runs[0], score=np.zeros(MOST_PEERS + 1))
    assert discover([many]) is None

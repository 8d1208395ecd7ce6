# SPDX-License-Identifier: Apache-2.0
"""Neighbours as the group of peers whose models have the lowest losses: worked out by hand, and as properties."""

from __future__ import annotations

import json
import math
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.protocol.lowest_group import _Cuts, _group_sizes, heights_of, lowest_group
from pens.protocol.messages import PeerId
from pens.protocol.policies import SelectionRule, Tally, choose_neighbours

A, B, C, D = map(PeerId, range(4))
RULE = SelectionRule(m=1, n_sampled=2, num_others=8, expected="uniform", by="levels")


def test_heights_are_logarithms_of_losses_and_of_distances() -> None:
    """A tenth of the median is added to each: 0.2 of 1, 2 and 10, and 0.1 of 0 and 2, where 0 counts as 0.001."""
    assert heights_of([1.0, 2.0, 10.0], "loss") == pytest.approx([math.log(1.2), math.log(2.2), math.log(10.2)])
    assert heights_of([0.0, 2.0], "loss") == pytest.approx([math.log(0.101), math.log(2.1)])
    assert heights_of([4.0, math.nan, math.inf], "loss") == pytest.approx([math.log(4.4), math.inf, math.inf])
    assert heights_of([math.nan, math.inf], "loss") == [math.inf, math.inf]
    assert heights_of([-0.5, 0.0], "accuracy") == [-0.5, 0.0]
    assert heights_of([1e-6, 0.0, math.nan], "l2") == pytest.approx([math.log(1.05e-6), math.log(5.1e-8), math.inf])


def test_one_absurd_loss_does_not_hide_how_the_others_differ() -> None:
    low, high, _ = heights_of([0.5, 1.0, 1e30], "loss")
    assert high - low > 0.5


def test_how_high_models_are_beside_those_they_were_compared_with() -> None:
    """The n-th sampling weighs n. First A at 1 and B at 3: the level is 2. Then B at 5 and C at 2: B is known to lie 1
    above, so the level is 4, and C lies 2 below. Then A at 0 and B at 0, known at −1 and 1: the level is 0, so that A
    has (−1 + 3 · 0) / 4 and B (1 + 2 · 1 + 3 · 0) / 6. D's height is no number: it counts as C's, the highest of its
    sampling; C is known at −2, so the level is 5, and D lies 2 below, too. All of that weighs 4. Last, nothing is a
    number, and nothing is counted."""
    tally = Tally()
    tally.add([A, B], [A], [1.0, 3.0])
    assert (tally.height(A), tally.height(B), tally.height(C)) == (-1.0, 1.0, 0.0)
    tally.add([B, C], [C], [5.0, 2.0])
    assert (tally.height(B), tally.height(C)) == (1.0, -2.0)
    tally.add([A, B], [A], [0.0, 0.0])
    assert (tally.height(A), tally.height(B)) == (-1 / 4, 1 / 2)
    tally.add([C, D], [C], [3.0, math.inf])
    assert (tally.height(C), tally.height(D)) == (-2.0, -2.0)
    tally.add([C, D], [C], [math.inf, math.inf])
    assert tally.above == {A: -1.0, B: 3.0, C: -12.0, D: -8.0}
    assert tally.weights == {A: 4.0, B: 6.0, C: 6.0, D: 4.0}
    again = Tally.restored(json.loads(json.dumps(tally.state())))
    assert again == tally


def test_neighbours_are_the_lowest_group_however_few_they_are() -> None:
    """Two of nine at −1, the others around 0: s = 0.0012 in two groups and 1.56 in one."""
    heights = [-1.0, -1.01, 0.0, 0.01, -0.01, 0.02, -0.02, 0.0, 0.01]
    assert lowest_group(heights) == [True, True] + [False] * 7
    tally = Tally()
    peers = list(map(PeerId, range(9)))
    tally.add(peers, [A], heights)
    assert choose_neighbours(tally, RULE).neighbours == (A, B)
    assert not choose_neighbours(tally, RULE).fallback


def test_several_groups_above_do_not_hide_the_lowest() -> None:
    heights = [0.0, 1.0, 2.0, 0.02, 1.02, 2.02, 0.01, 1.01, 2.01]
    assert lowest_group(heights) == [i % 3 == 0 for i in range(9)]


def test_a_gap_within_a_cluster_is_narrower_than_half_of_the_widest_one() -> None:
    """Three groups, at −3 (one), −2 (four) and 1 (seven): gaps of 1 and 3. One at −4 in place of −3: a gap of 2, which
    is more than half of 3."""
    near, others = [-2.0, -2.01, -1.99, -2.0], [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0]
    assert _group_sizes([-3.0, *sorted(near), *sorted(others)]) == [1, 4, 7]
    assert lowest_group([-3.0, *near, *others]) == [True] * 5 + [False] * 7
    assert lowest_group([-4.0, *near, *others]) == [True] + [False] * 11


def test_of_one_group_the_lowest_third_is_in() -> None:
    """Of four the two lowest, of seven the three lowest; whoever is as low as the last of them is in, too."""
    assert lowest_group([0.1, -0.1, 0.3, -0.3]) == [False, True, False, True]
    assert lowest_group([0.3, 0.1, 0.0, 0.2, 0.5, 0.6, 0.4]) == [False, True, True, True, False, False, False]
    assert lowest_group([0.1, 0.1, 0.2]) == [True, True, False]
    assert lowest_group([0.5, 0.5, 0.5]) == [True] * 3
    assert lowest_group([7.0]) == [True]
    assert lowest_group([]) == []


def test_when_a_group_is_told_apart_by_hand() -> None:
    """Eight heights, four at 0, four at x: in one group s = 2 x², in two s is at its bound, 8 / 10⁴. The criterion is
    8 log(x² / 4) + 2 log 8 in one group, and 8 log 10⁻⁴ + 16 log 2 + 4 log 8 in two: two are better where
    log(x² / 4) > log 10⁻⁴ + 2 log 2 + log(8) / 4, that is where x exceeds 0.04 · 8^(1/8) = 0.05187."""
    assert _group_sizes([0.0] * 4 + [0.0519] * 4) == [4, 4]
    assert _group_sizes([0.0] * 4 + [0.0518] * 4) == [8]


def test_few_heights_are_one_group() -> None:
    """With one group for each three heights at most, five cannot be two groups, however far apart they lie."""
    assert _group_sizes([0.0, 0.0, 9.0, 9.0, 9.0]) == [5]
    assert lowest_group([0.0, 0.0, 9.0, 9.0, 9.0]) == [True, True, False, False, False]
    assert _group_sizes([0.0, 0.0, 9.0, 9.0, 9.0, 9.0]) == [2, 4]


@given(st.lists(st.floats(-3, 3).map(lambda height: round(height, 2)), min_size=1, max_size=13).map(sorted))
def test_each_cut_is_the_best_of_its_kind(heights: list[float]) -> None:
    """For each number of groups and size of the lowest one, compared with all cuts."""

    def spread(begin: int, end: int) -> float:
        mean = sum(heights[begin:end]) / (end - begin)
        return sum((height - mean) ** 2 for height in heights[begin:end])

    n, seen = len(heights), set()
    for sizes, found in _Cuts(heights).candidates():
        lowest, groups = sizes[-1], len(sizes)
        inner = [(lowest, *cuts) for cuts in combinations(range(lowest + 1, n), groups - 2)] if groups > 1 else [()]
        best = min(sum(spread(*ends) for ends in pairwise((0, *cuts, n))) for cuts in inner)
        assert sum(sizes) == n
        assert found == pytest.approx(best, abs=1e-9)
        seen.add((groups, lowest))
    assert len(seen) == 1 + sum(n - groups + 1 for groups in range(2, min(6, n // 3) + 1))


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_order_of_peers_does_not_matter_and_the_lowest_is_always_in(heights: list[float], shuffled: object) -> None:
    distinct = list(dict.fromkeys(heights))
    order = list(range(len(distinct)))
    shuffled.shuffle(order)  # type: ignore[attr-defined]
    found = lowest_group(distinct)
    assert [found[i] for i in order] == lowest_group([distinct[i] for i in order])
    assert found[distinct.index(min(distinct))]
    highest_in = max(height for height, is_in in zip(distinct, found, strict=True) if is_in)
    assert all(is_in for height, is_in in zip(distinct, found, strict=True) if height < highest_in)

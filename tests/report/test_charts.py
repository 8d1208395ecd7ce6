# SPDX-License-Identifier: Apache-2.0
"""Scales and labels: what is drawn where."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.report.charts.merges import _cut, _span
from pens.report.svg import DARK, LIGHT, Scale, scale_over, spread, tick_label


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_a_scale_covers_its_values_with_few_round_ticks(low: float, width: float) -> None:
    scale = scale_over(low, low + width, 10, 110)
    assert scale.low <= low + 1e-6 * width
    assert scale.high >= low + width * (1 - 1e-6)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 8
    assert all(9.9 <= scale(tick) <= 110.1 for tick in ticks)


def test_a_scale_is_straight_and_its_ticks_are_round() -> None:
    scale = Scale(0, 50, 100, 0)
    assert (scale(0), scale(25), scale(50)) == (100, 50, 0)
    assert scale.ticks() == [0, 10, 20, 30, 40, 50]
    assert scale_over(3, 3, 0, 1).low < 3 < scale_over(3, 3, 0, 1).high
    assert [tick_label(t) for t in (-5.0, 0.25, 20.0, 219 * 0.4, 1500.0)] == ["−5", "0.25", "20", "87.6", "1,500"]


@given(st.lists(st.floats(0, 100), max_size=6))
def test_labels_keep_their_order_and_distance(places: list[float]) -> None:
    moved = sorted(spread(places, 14))
    assert all(below - above >= 14 - 1e-6 for above, below in pairwise(moved))
    assert sum(moved) == pytest.approx(sum(places), abs=1e-6)


def test_long_names_are_cut_and_groups_of_peers_named() -> None:
    assert [_cut("hospital", room) for room in (100, 35, 8)] == ["hospital", "hosp…", ""]
    assert [_span(peers) for peers in ([3], [3, 4, 5], [3, 7], [5, 4, 3])] == ["3", "3–5", "3 7", "5 4 3"]


def test_every_colour_is_there_for_light_and_dark() -> None:
    assert LIGHT.keys() == DARK.keys()

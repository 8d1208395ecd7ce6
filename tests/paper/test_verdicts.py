# SPDX-License-Identifier: Apache-2.0
"""The rule by which a number agrees with the paper's, against Welch's test."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from pens.measuring.metrics import Interval, interval
from pens.paper.verdicts import compare_with_paper, less_paper


@pytest.mark.parametrize(
    ("values", "paper", "words"),
    [
        # both sides have a standard error of half / t(3) = 0.01 / 3.18: the difference's interval is ± 0.011
        ((0.570, 0.575, 0.565, 0.570), (0.578, 0.010), "does not differ"),
        # intervals that overlap (0.5700 ± 0.0065 reaches 0.5765, 0.580 ± 0.004 reaches 0.576), and yet differ
        ((0.570, 0.575, 0.565, 0.570), (0.580, 0.004), "below by 1.0"),
        ((0.600, 0.601, 0.602), (0.578, 0.004), "above by 2.3"),
        ((0.578, 0.578), (0.578, 0.004), "too few seeds"),
        ((0.578,), (0.578, 0.004), "too few seeds"),
        ((), (0.578, 0.004), "not run"),
        ((0.578, 0.578, 0.578), None, "–"),
    ],
)
def test_one_rule_says_what_agrees(values: tuple[float, ...], paper: tuple[float, float] | None, words: str) -> None:
    ours = interval(values) if values else None
    verdict = compare_with_paper(ours, len(values), Interval(*paper) if paper else None)
    assert str(verdict) == words
    assert verdict.agrees == (words == "does not differ")
    assert (verdict.detectable is not None) == words.startswith(("does", "above", "below"))


@given(
    st.lists(st.floats(0.4, 0.6), min_size=3, max_size=9),
    st.lists(st.floats(0.4, 0.6), min_size=4, max_size=4),
)
def test_the_rule_is_welchs_test_at_5_percent(ours: list[float], paper: list[float]) -> None:
    assume(np.std(ours) > 1e-4 and np.std(paper) > 1e-4)
    p = stats.ttest_ind(ours, paper, equal_var=False).pvalue
    assume(abs(p - 0.05) > 1e-6)
    verdict = compare_with_paper(interval(ours), len(ours), interval(paper))
    assert verdict.agrees == (p > 0.05)
    assert verdict.outcome in (
        ["does not differ"] if p > 0.05 else ["above"] if np.mean(ours) > np.mean(paper) else ["below"]
    )


@given(st.lists(st.floats(0.4, 0.6), min_size=3, max_size=9), st.lists(st.floats(0.4, 0.6), min_size=4, max_size=4))
def test_the_distance_to_the_paper_has_welchs_interval(ours: list[float], paper: list[float]) -> None:
    assume(np.std(ours) > 1e-4 and np.std(paper) > 1e-4)
    found = less_paper(interval(ours), len(ours), interval(paper))
    welch = stats.ttest_ind(ours, paper, equal_var=False).confidence_interval(0.95)
    assert found.half_width is not None
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx((welch.low, welch.high))
    assert less_paper(interval(ours[:1]), 1, interval(paper)).half_width is None

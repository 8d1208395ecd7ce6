# SPDX-License-Identifier: Apache-2.0
"""Which settings are those of a cell of the paper's tables, and what is then compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from pens.experiment.presets import PRESETS
from pens.measuring.metrics import Interval, interval
from pens.report.paper import compare_with_paper, departures, less_paper, paper_accuracy, paper_agreement
from pens.settings.tree import MethodName, Settings

CIFAR = PRESETS["cifar-10"].settings
FASHION = PRESETS["fashion-mnist"].settings

CELLS: list[tuple[Settings, dict[str, Any], MethodName, str, float, float]] = [
    (CIFAR, {}, "pens", "table 1, independent", 57.8, 0.4),
    (CIFAR, {"init": "common"}, "random", "table 1, common", 54.1, 0.8),
    (CIFAR, {"rotations": [0, 90, 180, 270]}, "local", "table 2", 33.4, 0.7),
    (FASHION, {}, "central", "table 3, 500", 87.3, 0.3),
    (FASHION, {"train_per_peer": 100}, "oracle", "table 3, 100", 79.4, 0.4),
    (CIFAR, {"train_per_peer": 150, "n_sampled": 20, "m": 6}, "pens", "table 4, n_sampled = 20, m = 6", 48.4, 0.5),
    (CIFAR, {"train_per_peer": 200, "init": "common"}, "pens", "figure 1a", 50.8, 1.1),
    (CIFAR, {"train_per_peer": 150, "peers": 50}, "oracle", "figure 1b", 45.0, 2.2),
]


@pytest.mark.parametrize(("base", "changes", "method", "where", "mean", "half"), CELLS)
def test_settings_find_their_cell(
    base: Settings, changes: dict[str, Any], method: MethodName, where: str, mean: float, half: float
) -> None:
    cell = paper_accuracy(base.replace(changes), method)
    assert cell
    assert cell.where.startswith(where)
    assert cell.value.percent() == f"{mean} ± {half}"


@pytest.mark.parametrize("changes", [{"peers": 98}, {"train_per_peer": 401}, {"rotations": [0]}, {"dataset": "digits"}])
def test_other_settings_find_none(changes: dict[str, Any]) -> None:
    assert paper_accuracy(CIFAR.replace(changes), "pens") is None
    assert paper_agreement(CIFAR.replace(changes)) is None


def test_precision_and_recall_are_those_of_table_5() -> None:
    found = paper_agreement(CIFAR.replace({"train_per_peer": 100}))
    assert found
    assert [cell.value.percent() for cell in found] == ["95.8 ± 1.5", "67.9 ± 1.5"]


def test_what_differs_from_the_paper_is_named() -> None:
    assert departures(CIFAR) == ()
    assert departures(CIFAR.replace({"rounds": 100, "step1_rounds": 200, "step1_samplings": 1})) == (
        "rounds = 100 (paper: 333)",
    )
    assert departures(CIFAR.replace({"step1_rounds": 30})) == ("samplings of step 1 = 300 (paper: 200)",)


def test_no_setting_that_decides_results_is_passed_over() -> None:
    changed = {"lr": 0.1, "epochs": 30, "batch_size": 128, "wire": "int8", "schedule": "async"}
    assert departures(CIFAR.replace(changed)) == (
        "lr = 0.1 (preset: 0.001)",
        "batch_size = 128 (preset: 8)",
        "epochs = 30 (preset: 3)",
        "schedule = async (preset: rounds)",
        "wire = int8 (preset: fp32)",
    )
    for key, value in {**changed, "weight_decay": 0.0, "patience": 50, "own_in_merge": False, "m": 3}.items():
        assert [words.split(" = ")[0] for words in departures(CIFAR.replace({key: value}))] == [key]
    assert departures(CIFAR.replace({"central_rounds": 3}), ["pens"]) == ()
    assert departures(CIFAR.replace({"m": 3}), ["random", "central"]) == ()
    assert departures(CIFAR.replace({"latency": 3})) == ()  # rounds have no latency
    assert departures(CIFAR.replace({"schedule": "async", "latency": 3}))[1] == "latency = 3.0 (preset: 0.1)"
    assert departures(CIFAR.replace({"precision": "fp32", "seeds_at_once": 2, "memory_mb": 99})) == ()
    assert departures(CIFAR.replace({"precision": "bf16"})) == ("precision = bf16 (preset: tf32)",)


def test_what_a_table_varies_is_no_departure() -> None:
    for base, changes, *_ in CELLS:
        assert departures(base.replace(changes)) == ()
    pair_of_no_row = {"train_per_peer": 150, "n_sampled": 20, "m": 7}
    assert departures(CIFAR.replace(pair_of_no_row)) == ("n_sampled = 20 (paper: 10)", "m = 7 (paper: 2)")
    assert departures(CIFAR.replace({"peers": 98, "lr": 0.1})) == ()  # there is no cell to depart from


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

"""Which settings are those of a cell of the paper's tables, and what is then compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from pens.config import Method, Settings
from pens.metrics import Interval, interval
from pens.presets import PRESETS
from pens.report.paper import departures, less_paper, paper_accuracy, paper_agreement
from pens.report.section import agreement_words

CIFAR = PRESETS["cifar-10"].settings
FASHION = PRESETS["fashion-mnist"].settings

CELLS: list[tuple[Settings, dict[str, Any], Method, str, float, float]] = [
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
    base: Settings, changes: dict[str, Any], method: Method, where: str, mean: float, half: float
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


def test_agreement_is_said_in_words() -> None:
    paper = Interval(0.578, 0.004)
    assert agreement_words(Interval(0.570, 0.005), paper) == "the intervals overlap"
    assert agreement_words(Interval(0.560, 0.005), paper) == "the intervals do not overlap, 1.8 points lower"
    assert agreement_words(Interval(0.580, None), paper) == "one seed, inside the paper's interval"
    assert agreement_words(Interval(0.600, None), paper) == "one seed, 2.2 points higher, outside the paper's interval"


@given(st.lists(st.floats(0.4, 0.6), min_size=2, max_size=9), st.lists(st.floats(0.4, 0.6), min_size=4, max_size=4))
def test_the_distance_to_the_paper_has_welchs_interval(ours: list[float], paper: list[float]) -> None:
    assume(np.std(ours) > 1e-4 and np.std(paper) > 1e-4)
    found = less_paper(interval(ours), len(ours), interval(paper))
    welch = stats.ttest_ind(ours, paper, equal_var=False).confidence_interval(0.95)
    assert found.half_width is not None
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx((welch.low, welch.high))
    assert less_paper(interval(ours[:1]), 1, interval(paper)).half_width is None

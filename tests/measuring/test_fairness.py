# SPDX-License-Identifier: Apache-2.0
"""The worst cluster, the gap and fair accuracy, each worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pens.measuring.fairness import Fairness, fair_words, fairness
from pens.measuring.results import ExperimentResult, summarise
from pens.settings.tree import Settings
from pens.tasks.metric import ACCURACY, Measure
from tests.conftest import TINY
from tests.report.made import made_run


def test_each_cluster_counts_once_however_many_peers_it_has() -> None:
    scores = np.array([0.8, 0.9, 0.85, 0.85, 0.4])  # four peers at 0.85 on average, one at 0.4
    found = fairness(scores, (0, 0, 0, 0, 1), ACCURACY)
    assert found
    assert (found.worst, found.gap, found.fair) == pytest.approx((0.4, 0.45, (2 * 0.625 + 0.55) / 3))


def test_of_errors_the_highest_is_the_worst_and_fair_ones_are_one_minus_fair_accuracy() -> None:
    wrong = Measure("error rate", "%", higher_is_better=False)
    scores, clusters = np.array([0.2, 0.1, 0.15, 0.5]), (0, 0, 1, 2)
    ours, theirs = fairness(scores, clusters, wrong), fairness(1 - scores, clusters, ACCURACY)
    assert ours
    assert theirs
    assert theirs.fair
    assert (ours.worst, ours.gap) == pytest.approx((0.5, 0.35))  # clusters at 0.15, 0.15 and 0.5
    assert ours.fair == pytest.approx((2 * 0.8 / 3 + 0.35) / 3)
    assert ours.fair == pytest.approx(1 - theirs.fair)
    assert "worst minus best" in fair_words(wrong)


def test_what_has_no_known_best_value_has_no_fair_one() -> None:
    found = fairness(np.array([2.0, 5.0]), (0, 1), Measure("likelihood"))
    assert found == Fairness(2.0, 3.0, None)
    assert "Fair" not in fair_words(Measure("likelihood"))


def test_peers_of_unknown_clusters_do_not_count() -> None:
    assert fairness(np.array([0.1, 0.6, 0.8]), (-1, 0, 1), ACCURACY) == fairness(np.array([0.6, 0.8]), (0, 1), ACCURACY)
    assert fairness(np.array([0.1, 0.6]), None, ACCURACY) is None
    assert fairness(np.array([0.1, 0.6]), (-1, -1), ACCURACY) is None


def test_summaries_and_tables_of_runs_have_them_over_seeds() -> None:
    settings = Settings().replace({**TINY, "peers": 4})
    runs = [
        replace(made_run(settings, "pens", seed, 0.5), score=np.array(scores), clusters=(0, 0, 1, 1))
        for seed, scores in enumerate(([0.6, 0.8, 0.4, 0.6], [0.7, 0.7, 0.7, 0.7], [0.5, 0.5, 0.8, 0.8]))
    ]
    row = summarise(tuple(runs))
    assert row.worst_cluster
    assert row.gap
    assert row.fair
    assert row.worst_cluster.mean == pytest.approx((0.5 + 0.7 + 0.5) / 3)
    assert row.gap.mean == pytest.approx((0.2 + 0.0 + 0.3) / 3)
    assert row.fair.mean == pytest.approx(((2 * 0.6 + 0.8) + (2 * 0.7 + 1) + (2 * 0.65 + 0.7)) / 9)
    assert row.fair.measure.name == "fair accuracy"
    assert runs[0].cluster_scores == {runs[0].cluster_names[0]: pytest.approx(0.7), runs[0].cluster_names[1]: 0.5}
    table = ExperimentResult(settings, tuple(runs)).by_run.to_table()
    assert table["gap"].to_pylist() == pytest.approx([0.2, 0.0, 0.3])
    unknown = replace(runs[0], clusters=None, cluster_names=())
    assert summarise((unknown,)).gap is None
    assert ExperimentResult(settings, (unknown,)).by_run.to_table()["fair"].to_pylist() == [None]

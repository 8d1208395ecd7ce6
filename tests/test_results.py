# SPDX-License-Identifier: Apache-2.0
"""What results say of themselves, with numbers that a reader can add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pens.config import Settings
from pens.metrics import Agreement
from pens.results import Communication, ExperimentResult, Pairs, summarise
from tests.conftest import TINY
from tests.report.made import made_run

SETTINGS = Settings().replace(TINY)


def test_bytes_are_models_times_their_weight() -> None:
    sent, received, other = np.array([1, 2]), np.array([5, 1]), np.array([9, 9])
    traffic = Communication(sent, received, refused=other, merged=other, scored=other, model_bytes=10)
    assert traffic.bytes_sent == (1 + 2) * 10
    assert traffic.bytes_received == (5 + 1) * 10


def test_a_merge_matrix_has_receivers_in_rows() -> None:
    """Figure 2. Peer 0 merged peer 2's models three times, peer 1 merged peer 0's once."""
    pairs = Pairs(*(np.array(column) for column in ([0, 1], [2, 0], [3, 1], [7, 8], [9, 9])))
    assert pairs.merge_matrix(3).tolist() == [[0, 0, 3], [1, 0, 0], [0, 0, 0]]


def test_a_summary_is_the_mean_over_seeds() -> None:
    """Section 5.4. Seeds reach 60, 70 and 80 %: 70 ± 4.303 · 10 / √3 = 24.8; models merged per peer 2, 4 and 6."""
    runs = [made_run(SETTINGS, "pens", seed, 0.5) for seed in range(3)]
    runs = [
        replace(
            run,
            accuracy=np.array([0.5 + place / 10, 0.7 + place / 10]),
            agreement=Agreement(0.9, 0.1 * place) if place else None,
            communication=replace(run.communication, merged=np.array([1 + 2 * place, 3 + 2 * place])),
            mean_batch=float(place),
            seconds=float(place + 1),
        )
        for place, run in enumerate(runs)
    ]
    row = summarise(tuple(runs))
    assert (row.method, row.seeds) == ("pens", 3)
    assert row.accuracy.mean == pytest.approx(0.7)
    assert row.accuracy.half_width == pytest.approx(4.302653 * 0.1 / 3**0.5)
    assert row.worst_tenth.mean == pytest.approx(0.6)
    assert row.precision
    assert row.recall
    assert (row.precision.mean, row.recall.mean) == pytest.approx((0.9, 0.15))
    assert row.models_merged == pytest.approx(4)
    assert (row.mean_batch, row.seconds) == (1.0, 6.0)
    with pytest.raises(KeyError):
        summarise(())


def test_a_table_has_a_row_for_each_method_in_order() -> None:
    runs = tuple(made_run(SETTINGS, method, seed, 0.5) for seed in (0, 1) for method in ("pens", "local"))
    result = ExperimentResult(SETTINGS, runs)
    assert [row.method for row in result.table] == ["pens", "local"]
    assert [run.seed for run in result.of("local")] == [0, 1]
    assert result.table[1].precision is None
    assert result.table[1].recall is None


def test_a_peers_model_is_its_row() -> None:
    run = made_run(SETTINGS, "pens", 0, 0.5)
    run.models["weight"][4] = 7.0
    assert run.state_dict(4)["weight"].tolist() == [7.0, 7.0]
    assert run.state_dict(0)["weight"].tolist() == [0.0, 0.0]
    assert run.mean_accuracy == pytest.approx(run.accuracy.sum() / 6)
    assert run.worst_tenth == run.accuracy.min()


def test_a_peer_is_called_by_its_name_or_its_cluster_or_its_number() -> None:
    run = made_run(SETTINGS, "pens", 0, 0.5)
    assert [run.peer_label(peer) for peer in (0, 5)] == ["peer 0", "peer 5"]
    named = replace(run, peer_names=("ann", "bob", "cid", "dee", "eve", "fay"))
    assert [named.peer_label(peer) for peer in (0, 5)] == ["ann", "fay"]
    alone = replace(run, clusters=(2, 0, 1), cluster_names=("x", "y", "z"))
    assert [alone.peer_label(peer) for peer in range(3)] == ["z", "x", "y"]
    one_unused = replace(run, clusters=(2, 0, 1), cluster_names=("x", "y", "z", "w"))
    assert one_unused.peer_label(1) == "peer 1"
    shared = replace(run, clusters=(0, 0, 1), cluster_names=("x", "y", "z"))
    assert shared.peer_label(1) == "peer 1"


def test_agreement_is_not_summed_up_where_the_clusters_are_unknown() -> None:
    run = made_run(SETTINGS, "pens", 0, 0.5)
    assert run.clusters_known
    assert summarise((run,)).precision
    unknown = replace(run, clusters=(0, 1, 2, 3, 4, 5), cluster_names=tuple("abcdef"))
    assert not unknown.clusters_known
    assert summarise((replace(unknown, agreement=run.agreement),)).precision is None

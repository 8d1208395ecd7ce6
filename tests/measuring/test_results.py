# SPDX-License-Identifier: Apache-2.0
"""What results say of themselves, with numbers that a reader can add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pens.measuring.metrics import Agreement
from pens.measuring.results import (
    Communication,
    Comparisons,
    DataSizes,
    ExperimentResult,
    History,
    Pairs,
    RunResult,
    epochs_of_updates,
    mean_or_none,
    spec_of,
    spending,
    summarise,
    work_of,
    work_of_updates,
)
from pens.settings.tree import MethodName, Settings
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
            score=np.array([0.5 + place / 10, 0.7 + place / 10]),
            clusters=(0, 0),
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


def test_a_peers_cluster_has_a_name_where_it_is_known() -> None:
    run = replace(made_run(SETTINGS, "random", 0, 0.5), clusters=(1, 0, 1, 0, 1, 1), cluster_names=("left", "right"))
    assert [run.cluster_label(peer) for peer in range(6)] == ["right", "left", "right", "left", "right", "right"]
    unknown = replace(run, clusters=None)
    assert [unknown.cluster_label(peer) for peer in range(6)] == [""] * 6


def test_names_of_peers_stay_where_older_records_call_each_peer_a_cluster() -> None:
    """Three real peers with names, in whose record each is a cluster of its own: clusters are not known."""
    run = made_run(SETTINGS, "random", 0, 0.5)
    names = ("ann", "bob", "cy")
    named = replace(run, clusters=(2, 0, 1), cluster_names=("x", "y", "z"), peer_names=names)
    assert (named.peer_names, named.clusters, named.cluster_names, named.agreement) == (names, None, (), None)


def test_agreement_is_not_summed_up_where_the_clusters_are_unknown() -> None:
    run = made_run(SETTINGS, "pens", 0, 0.5)
    assert run.clusters_known
    assert summarise((run,)).precision
    unknown = replace(run, clusters=(0, 1, 2, 3, 4, 5), cluster_names=tuple("abcdef"))
    assert not unknown.clusters_known
    assert summarise((replace(unknown, agreement=run.agreement),)).precision is None


# --- what a run costs -------------------------------------------------------------------------------------------------

UNEQUAL = Settings().replace({**TINY, "epochs": 2, "step1_epochs": 9, "score_samples": 5, "central_epochs": 4})


def unequal_run(method: MethodName = "pens") -> RunResult:
    """Three peers of 4, 6 and 10 training and 2, 3 and 7 validation samples, which train 7, 5 and 3 epochs in a round
    of step 1 and 2 otherwise. Peer 0 begins with a training, one round of step 1 and one after it; peer 1 does without
    the latter, and peer 2 has two rounds of step 1. They score 5, 3 and 4 models, of which 3, 3 and 4 in step 1."""
    history = History(
        time=np.arange(8) / 2,
        peer=np.array([2, 0, 1, 0, 1, 2, 2, 0]),
        version=np.array([1, 1, 1, 2, 2, 2, 3, 3]),
        searching=np.array([True, True, True, True, True, True, True, False]),
        merged=np.zeros(8, np.int64),
        train_loss=np.zeros(8),
        val_loss=np.zeros(8),
        val_accuracy=np.zeros(8),
    )
    traffic = Communication(
        sent=np.array([1, 2, 3]),
        received=np.array([7, 8, 12]),
        refused=np.array([1, 0, 0]),
        merged=np.array([2, 2, 5]),
        scored=np.array([5, 3, 4]),
        model_bytes=100,
    )
    compared = Comparisons(
        receiver=np.array([0, 0, 1, 2, 2]),
        round=np.array([1, 1, 1, 1, 2]),
        sender=np.array([1, 2, 0, 0, 1]),
        sampled=np.array([2, 1, 3, 3, 1]),
        selected=np.array([1, 0, 1, 2, 0]),
    )
    return replace(
        made_run(UNEQUAL, method, 0, 0.5),
        score=np.array([0.5, 0.5, 0.5]),
        clusters=(0, 0, 1),
        communication=traffic,
        history=history,
        comparisons=compared,
        data_sizes=DataSizes(np.array([4, 6, 10]), np.array([2, 3, 7])),
        step1_epochs=(7, 5, 3),
    )


def test_each_update_takes_its_own_peers_epochs_and_samples() -> None:
    """Three forward passes for each sample and epoch of training, and one for each sample of validation."""
    run = unequal_run()
    assert run.data_sizes
    epochs, samples = [2, 2, 2, 7, 5, 3, 3, 2], [10, 4, 6, 4, 6, 10, 10, 4]
    assert epochs_of_updates(run, spec_of(run, UNEQUAL)).tolist() == epochs
    found = work_of_updates(run, spec_of(run, UNEQUAL), run.data_sizes)
    assert found.training.tolist() == [3 * e * n for e, n in zip(epochs, samples, strict=True)]
    assert found.validation.tolist() == [7, 2, 3, 2, 3, 7, 7, 2]
    without_first_training = UNEQUAL.replace({"train_first": False})  # then version 1 comes out of step 1
    assert epochs_of_updates(run, spec_of(run, without_first_training)).tolist() == [3, 7, 5, 7, 5, 3, 3, 2]
    older = replace(run, step1_epochs=None)  # a record that leaves it to the settings
    assert epochs_of_updates(older, spec_of(older, UNEQUAL)).tolist() == [2, 2, 2, 9, 9, 9, 9, 2]
    for method, always in (("random", 2), ("central", 4)):
        other = replace(older, method=method)
        assert epochs_of_updates(other, spec_of(other, UNEQUAL)).tolist() == [always] * 8


def test_what_a_run_costs_is_divided_among_its_peers() -> None:
    """Training: peer 0 (2 + 7 + 2) · 4 = 44 samples, peer 1 (2 + 5) · 6 = 42, peer 2 (2 + 3 + 3) · 10 = 80: together
    166, three passes each, for three peers. Validation: 3 · 2 + 2 · 3 + 3 · 7 = 33, for three peers. Scoring on at most
    5 training samples: 3 · 4 + 3 · 5 + 4 · 5 = 47 in step 1, and peer 0 judged 5 − 3 = 2 strangers on its 2 validation
    samples: 51. Models received: 27, of 100 bytes, for three peers."""
    run = unequal_run()
    assert work_of(run, spec_of(run, UNEQUAL)) == (166, 11, 17)
    found = spending(run, spec_of(run, UNEQUAL))
    assert (found.models_received, found.bytes_received, found.work) == (9, 900, 166 + 11 + 17)
    assert spending(run, None).work is None


def test_scoring_costs_what_the_settings_say() -> None:
    """Peers compare 3, 3 and 4 models; peer 0 judges 2 more on its 2 validation samples. All training samples make
    3 · 4 + 3 · 6 + 4 · 10 = 70, all validation samples 3 · 2 + 3 · 3 + 4 · 7 = 43, and at most 5 of these 6 + 9 + 20.
    """
    run = unequal_run()

    def scoring(run: RunResult, **values: object) -> float:
        work = work_of(run, spec_of(run, UNEQUAL.replace(values)))
        assert work
        return work[2] * 3

    assert scoring(run, score_samples=None) == pytest.approx(70 + 4)
    assert scoring(run, score_samples=None, score_on="val") == pytest.approx(43 + 4)
    assert scoring(run, score_on="val") == pytest.approx(35 + 4)
    assert scoring(run, score="l2") == pytest.approx(4)  # how far models lie from each other is no forward pass
    # without comparisons on record all scored models count as compared: 5 · 4 + 3 · 6 + 4 · 10
    assert scoring(replace(run, comparisons=None), score_samples=None) == pytest.approx(78)
    assert scoring(replace(run, comparisons=None), score_samples=None, score="l2") == pytest.approx(78)
    # a peer that broke off may have written fewer scored models than comparisons: it judged nobody
    broken_off = replace(run, communication=replace(run.communication, scored=np.array([1, 3, 4])))
    assert scoring(broken_off, score_samples=None) == pytest.approx(70)


def test_work_is_not_known_without_the_sizes_of_the_data() -> None:
    """Sizes may come from elsewhere, and then count for more than those on record: with 1 sample each, the epochs are
    11 + 7 + 8 = 26, at 3 passes, the updates 8 and the scored models 12."""
    run = unequal_run()
    older = replace(run, data_sizes=None)
    assert work_of(older, spec_of(older, UNEQUAL)) is None
    assert spending(older, spec_of(older, UNEQUAL)).work is None
    one = DataSizes(np.ones(3, np.int64), np.ones(3, np.int64))
    assert work_of(older, spec_of(older, UNEQUAL), one) == pytest.approx((26, 8 / 3, 4))
    assert work_of(run, spec_of(run, UNEQUAL), one) == pytest.approx((26, 8 / 3, 4))
    assert summarise((run, older), UNEQUAL).work is None
    assert summarise((run, run)).work is None
    twice = replace(run, data_sizes=DataSizes(2 * np.array([4, 6, 10]), 2 * np.array([2, 3, 7])))
    settings = UNEQUAL.replace({"score_samples": None})  # so that twice the data are twice the work: 166 + 11 + 74 / 3
    row = summarise((run, twice), settings)
    assert row.work == pytest.approx(1.5 * (166 + 11 + 74 / 3))
    assert (row.models_received, row.bytes_received) == (9, 900)


def test_a_mean_is_not_known_where_a_value_is_missing() -> None:
    assert mean_or_none([1.0, 0.0, 5.0]) == 2.0
    assert mean_or_none([1.0, None]) is None
    assert mean_or_none([None]) is None
    assert mean_or_none([]) is None

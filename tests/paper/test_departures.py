# SPDX-License-Identifier: Apache-2.0
"""In which settings a run departs from the paper's, in words."""

from __future__ import annotations

from pens.paper.departures import departures
from tests.paper.test_cells import CELLS, CIFAR


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

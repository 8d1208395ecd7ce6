# SPDX-License-Identifier: Apache-2.0
"""Each table and figure of the paper as settings: held against the paper's words, once more and by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pens.errors import SettingsError
from pens.experiment.presets import AUTHORS_METHODS, rules_of
from pens.paper.cells import paper_agreement
from pens.paper.departures import departures
from pens.paper.exhibits import EXHIBITS, PAPER_ORDER, PLUS, exhibits
from tests.methods.specs import ALL

HALF, QUARTER = (0, 180), (0, 90, 180, 270)
SCENES: dict[str, list[tuple[str, str, tuple[int, ...], int, int, str]]] = {
    # column, data set, rotations, peers, training samples per peer, initialisation
    "table1": [
        ("independent init", "cifar-10", HALF, 100, 400, "independent"),
        ("common init", "cifar-10", HALF, 100, 400, "common"),
    ],
    "table2": [("four rotations", "cifar-10", QUARTER, 100, 400, "independent")],
    "table3": [
        ("100 samples", "fashion-mnist", HALF, 100, 100, "independent"),
        ("500 samples", "fashion-mnist", HALF, 100, 500, "independent"),
    ],
    "table5": [(f"{n} samples", "cifar-10", HALF, 100, n, "independent") for n in (400, 300, 200, 100)],
    "figure1a": [(f"{n} samples", "cifar-10", HALF, 100, n, "common") for n in (100, 200, 300, 400)],
    "figure1b": [(f"{n} peers", "cifar-10", HALF, n, 150, "independent") for n in (50, 100, 200)],
    "figure2": [("200 peers", "cifar-10", HALF, 200, 150, "independent")],
}


@pytest.mark.parametrize("name", SCENES)
def test_columns_have_the_settings_of_the_paper(name: str) -> None:
    found = []
    for column in EXHIBITS[name].columns:
        settings = column.settings()
        scene = settings.scenario
        told = (settings.data.source, scene.rotations, scene.peers, scene.train_per_peer, settings.model.init)
        found.append((column.label, *told))
        assert departures(settings) == ()  # n_peers = 20, n_sampled = 10, m = 2, T = 333, 200 samplings, 100 validation
        assert (settings.training.optimizer, settings.training.lr) == ("adam", 1e-3)
        assert settings.stopping.tested == "best"
    assert found == SCENES[name]


def test_table_4_varies_n_sampled_and_m_with_150_samples() -> None:
    pairs = []
    for column in EXHIBITS["table4"].columns:
        settings = column.settings()
        pairs.append((settings.pens.n_sampled, settings.pens.m))
        assert (settings.scenario.peers, settings.scenario.train_per_peer) == (100, 150)
        assert column.methods == ("pens",)
    assert len(set(pairs)) == 15
    assert sorted({n for n, _ in pairs}) == [5, 10, 20, 50]
    assert pairs[0] == (20, 6)


def test_the_authors_rules_are_those_of_their_published_code() -> None:
    """Read in their code, and written down by hand: what it does otherwise than the presets."""
    settings = EXHIBITS["table1"].columns[0].settings(rules_of("authors"))
    scenario, training, pens, stopping = settings.scenario, settings.training, settings.pens, settings.stopping
    assert (scenario.half_turn, scenario.test) == ("flip", "full")  # RandomVerticalFlip(p=1); the whole test set
    assert (training.optimizer, training.lr, training.weight_decay, training.batch_size) == ("adam", 1e-3, 0.0, 8)
    assert (training.epochs, training.train_first) == (3, False)  # untrained models are merged
    assert (pens.step1_rounds, pens.step1_samplings, settings.step1_epochs) == (20, 10, 4)  # 1250 // 400 + 1
    assert (pens.score, pens.expected_offset, pens.nobody_found) == ("accuracy", -1.0, "alone")
    assert (stopping.stop_on, stopping.window, stopping.patience) == ("accuracy", 5, 51)  # more than 50 rounds back
    assert (settings.gossip.rounds, settings.gossip.n_peers, pens.step2_model) == (333, 20, "last")
    assert AUTHORS_METHODS == ("oracle", "pens", "random", "local")
    assert rules_of("ours") == {}
    with pytest.raises(SettingsError, match="--as paper: choose from ours, authors"):
        rules_of("paper")


def test_methods_are_those_the_paper_reports() -> None:
    for name in ("table1", "table2", "table3", "figure1a", "figure1b"):
        assert EXHIBITS[name].methods == PAPER_ORDER
    assert EXHIBITS["table5"].methods == ("pens",)
    assert EXHIBITS["figure2"].methods == ("oracle", "pens", "random")
    assert {*PAPER_ORDER, *PLUS} < {*ALL}  # there are methods that the paper does not have


def test_figures_and_table_5_have_their_own_numbers() -> None:
    figure1a = {(c.label, cell.method): cell.paper for c in EXHIBITS["figure1a"].columns for cell in c.cells}
    assert str(figure1a["100 samples", "pens"]) == "42.1 ± 0.8"
    assert str(figure1a["400 samples", "central"]) == "65.9 ± 0.8"
    figure1b = {(c.label, cell.method): cell.paper for c in EXHIBITS["figure1b"].columns for cell in c.cells}
    assert str(figure1b["50 peers", "oracle"]) == "45.0 ± 2.2"
    for column in EXHIBITS["table5"].columns:
        known = paper_agreement(column.settings())
        assert known
        assert [cell.paper for cell in column.cells] == [cell.value for cell in known]


def test_all_comes_in_an_order_of_its_own() -> None:
    order = ["table1", "table3", "table5", "table2", "figure2", "figure1a", "figure1b", "table4"]
    assert [exhibit.name for exhibit in exhibits(["all"])] == order
    assert [exhibit.name for exhibit in exhibits(["table2", "table1", "table2"])] == ["table2", "table1"]


@pytest.mark.parametrize(("name", "meant"), [("tabel1", "table1"), ("Figure 1a", "figure1a"), ("al", "all")])
def test_slips_of_the_pen_get_a_suggestion(name: str, meant: str) -> None:
    with pytest.raises(SettingsError, match=f"did you mean '{meant}'"):
        exhibits([name])


def test_settings_changed_for_a_trial_come_last() -> None:
    changed: dict[str, Any] = {"train_per_peer": 7, "dataset": "digits"}
    for column in EXHIBITS["table3"].columns:
        assert column.settings(changed).scenario.train_per_peer == 7

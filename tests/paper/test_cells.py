# SPDX-License-Identifier: Apache-2.0
"""Which settings are those of a cell of the paper's tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pens.experiment.presets import PRESETS
from pens.paper.cells import PaperValue, paper_accuracy, paper_agreement
from pens.paper.exhibits import EXHIBITS, tables
from pens.settings.keys import flat_values
from pens.settings.tree import MethodName, Settings

CIFAR = PRESETS["cifar-10"].settings
FASHION = PRESETS["fashion-mnist"].settings

CELLS: list[tuple[Settings, dict[str, Any], MethodName, str, float, float]] = [
    (CIFAR, {}, "pens", "table 1, independent", 57.8, 0.4),
    (CIFAR, {"init": "common"}, "random", "table 1, common", 54.1, 0.8),
    (CIFAR, {"rotations": [0, 90, 180, 270]}, "local", "table 2", 33.4, 0.7),
    (FASHION, {}, "central", "table 3, 500", 87.3, 0.3),
    (FASHION, {"train_per_peer": 100}, "oracle", "table 3, 100", 79.4, 0.4),
    (CIFAR, {"train_per_peer": 150, "n_sampled": 20, "m": 6}, "pens", "table 4, n_sampled 20, m 6", 48.4, 0.5),
    (CIFAR, {"train_per_peer": 200, "init": "common"}, "pens", "figure 1a, 200 samples", 50.8, 1.1),
    (CIFAR, {"train_per_peer": 150, "peers": 50}, "oracle", "figure 1b, 50 peers", 45.0, 2.2),
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


@pytest.mark.parametrize("name", EXHIBITS)
def test_columns_have_the_settings_and_all_the_numbers_of_the_source(name: str) -> None:
    """What was copied out of the source says its own setting: each column must have it, and no number is left out."""
    (source,) = (told for title, told in tables().items() if title.partition("_")[0] == name)
    told = {key: value for key, value in source["setting"].items() if key != "note"}
    for column in EXHIBITS[name].columns:
        flat = flat_values(column.settings())
        assert {key: flat[key] for key in told} == told
    numbers = [cell.paper for column in EXHIBITS[name].columns for cell in column.cells if cell.paper]
    assert sorted(number.mean for number in numbers) == sorted(mean / 100 for mean, _ in _pairs(source))


def _pairs(source: Any) -> Iterator[tuple[float, float]]:
    """Every mean and half-width in there."""
    if isinstance(source, dict):
        for key, value in source.items():
            yield from _pairs(value) if key != "setting" else ()
    elif isinstance(source, list) and source and not isinstance(source[0], list) and isinstance(source[-1], float):
        yield source[-2], source[-1]
    elif isinstance(source, list):
        for value in source:
            yield from _pairs(value)


@pytest.mark.parametrize("name", EXHIBITS)
def test_the_settings_of_a_column_find_its_numbers(name: str) -> None:
    """But for those of figures that a table has, too: there the table's are found."""
    for column in EXHIBITS[name].columns:
        for cell in (cell for cell in column.cells if cell.paper and cell.quantity == "accuracy"):
            known = paper_accuracy(column.settings(), cell.method)
            assert known
            assert cell.paper
            if name.startswith("table") or not known.where.startswith("table"):
                assert known == PaperValue(EXHIBITS[name].where(column), cell.paper)

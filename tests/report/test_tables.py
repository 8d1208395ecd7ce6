# SPDX-License-Identifier: Apache-2.0
"""The table that ends a run keeps its numbers whole."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from pens.measuring.metrics import Interval, interval
from pens.measuring.results import ExperimentResult, Summary
from pens.report.tables import print_results, results_table
from pens.settings.tree import Settings
from tests.conftest import TINY
from tests.report.made import made_run


def shown(rows: list[Summary], width: int) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(results_table(rows, "digits", width))
    assert max(map(len, text.getvalue().splitlines())) <= width
    assert "…" not in text.getvalue()
    return text.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_narrow_terminal_gets_fewer_columns_and_no_cut_numbers(width: int) -> None:
    wide = Interval(0.527, 1.088)
    row = Summary("random", 4, wide, wide, wide, wide, 12_345.0, 20.0, 3_700.0, 904.0, 4.5e8, 201_000.0)
    text = shown([row], width)
    assert text.count("52.7 ± 108.8") >= (3 if width >= 80 else 1)
    assert ("12,345" in text) == (width >= 140)


def test_accuracy_never_stands_without_what_it_cost() -> None:
    value = interval([0.87, 0.88, 0.86, 0.875])
    pens = Summary("pens", 4, value, value, value, value, 284.0, 16.0, 46.0, 904.0, 37.4e6, 201_400.0)
    older = Summary("random", 4, value, value, None, None, 450.0, 20.0, 24.0, 450.0, 18.6e6, None)
    for width in (60, 80, 120):
        text = shown([pens, older], width)
        assert "received" in text
        assert "904" in text
        assert "201" in text
        assert [cell.strip() for cell in text.splitlines()[-2].split("│")].count("–") >= 1  # work that is not known
    assert "284" in shown([pens, older], 120)


def test_two_seeds_stand_in_brackets() -> None:
    two = interval([0.841, 0.865])
    text = shown([Summary("pens", 2, two, two, two, two, 1.0, 1.0, 1.0)], 80)
    assert "85.3 (84.1, 86.5)" in text
    assert "±" not in text


def test_where_clusters_are_not_known_the_table_says_nothing_of_them() -> None:
    settings = Settings().replace({**TINY, "peers": 6})
    names = tuple("abcdef")
    run = replace(
        made_run(settings, "pens", 0, 0.5),
        clusters=tuple(range(6)),
        cluster_names=names,
        neighbours={0: (1, 2), 1: (0, 2), 2: (0, 1), 3: (4, 5), 4: (3, 5), 5: (3, 4)},
    )
    text = io.StringIO()
    print_results(Console(file=text, width=100), ExperimentResult(settings, (run,)), "own data")
    title = text.getvalue().splitlines()[0].strip()
    assert title == "own data: 6 peers, 1 seed"
    assert "precision" not in text.getvalue()
    assert "recall" not in text.getvalue()
    assert "group 1: a, b, c\n  group 2: d, e, f\n" in text.getvalue()

"""The table that ends a run keeps its numbers whole."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pens.metrics import Interval
from pens.report.tables import results_table
from pens.results import Summary


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_narrow_terminal_gets_fewer_columns_and_no_cut_numbers(width: int) -> None:
    interval = Interval(0.527, 1.088)
    row = Summary("random", 2, interval, interval, interval, interval, 12_345.0, 20.0, 3_700.0)
    text = io.StringIO()
    Console(file=text, width=width).print(results_table([row], "digits", width))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text.getvalue()
    assert text.getvalue().count("52.7 ± 108.8") >= 3
    assert ("12,345" in text.getvalue()) == (width >= 100)

# SPDX-License-Identifier: Apache-2.0
"""Results as tables and frames: a row for each peer, and None for what is not known."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import pens
from pens.errors import MissingPackage
from pens.measuring.results import ExperimentResult, RunResult
from pens.measuring.tabular import joined
from pens.settings.tree import Settings
from tests.conftest import TINY
from tests.report.made import made_run

SETTINGS = Settings().replace(TINY)


def result() -> ExperimentResult:
    runs = [made_run(SETTINGS, method, seed, 0.5) for method in ("local", "pens", "central") for seed in (0, 1)]
    return ExperimentResult(SETTINGS, tuple(runs))


def rows_of(table: pa.Table, **where: object) -> list[dict[str, object]]:
    return [row for row in table.to_pylist() if all(row[key] == value for key, value in where.items())]


def test_a_result_has_a_row_for_each_method_seed_and_peer() -> None:
    found = result()
    table = found.to_table()
    assert table.num_rows == 3 * 2 * 6
    (row,) = rows_of(table, method="pens", seed=1, peer=4)
    run, alone = found.of("pens")[1], found.of("local")[1]
    assert row["accuracy"] == run.accuracy[4]
    assert row["gain"] == run.accuracy[4] - alone.accuracy[4]
    assert row["cluster"] == run.cluster_label(4) == "180°"
    assert row["neighbours"] == len(run.neighbours[4])
    assert row["neighbours_in_cluster"] == sum(neighbour >= 3 for neighbour in run.neighbours[4])
    assert row["received"] == run.communication.received[4]
    assert run.data_sizes
    assert row["train_samples"] == run.data_sizes.train[4]


def test_what_is_not_known_is_none() -> None:
    table = result().to_table()
    assert all(row["neighbours"] is None for row in rows_of(table, method="local"))
    assert all(row["received"] is None and row["train_samples"] is None for row in rows_of(table, method="central"))
    without = ExperimentResult(SETTINGS, result().of("pens")).to_table()
    assert without["gain"].type == pa.float64()
    assert without["gain"].null_count == without.num_rows
    run = replace(result().of("pens")[0], clusters=None, cluster_names=(), agreement=None)
    assert all(row["cluster"] is None and row["neighbours_in_cluster"] is None for row in run.to_table().to_pylist())
    assert ExperimentResult(SETTINGS, ()).to_table().num_rows == 0


def test_real_peers_have_names_and_say_who_was_not_tested() -> None:
    run = replace(result().of("pens")[0], peer_names=tuple("abcdef"), untested=(2,))
    rows = run.to_table().to_pylist()
    assert [row["name"] for row in rows] == list("abcdef")
    assert [row["tested"] for row in rows] == [True, True, False, True, True, True]


def test_histories_pairs_and_comparisons_are_tables() -> None:
    run = result().of("pens")[0]
    assert run.comparisons
    for columns in (run.history, run.pairs, run.comparisons):
        table = columns.to_table()
        assert table.column_names == list(columns.columns())
        assert str(columns).startswith(f"{type(columns).__name__}({table.num_rows:,} rows: ")
        assert len(str(columns)) < 200
    older = replace(run.history, received=None, epochs=None)
    assert "epochs" not in older.to_table().column_names


def test_frames_keep_whole_numbers_whole() -> None:
    pytest.importorskip("pandas")
    found = result()
    frame = found.to_frame()
    assert len(frame) == 36
    assert str(frame["neighbours"].dtype) == "Int64"
    assert frame["neighbours"].isna().sum() == 24
    assert str(frame["peer"].dtype) == "int64"
    means = frame.groupby("method")["accuracy"].mean()
    assert means["pens"] == pytest.approx(found.summary("pens").accuracy.mean)
    history = found.runs[0].history.to_frame()
    np.testing.assert_array_equal(history["val_accuracy"], found.runs[0].history.val_accuracy)


def test_without_pandas_a_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackage, match=r"pip install 'pens-fl\[pandas\]'.*to_table"):
        result().to_frame()
    with pytest.raises(pens.PensError):
        result().runs[0].to_frame()


def test_parts_without_a_column_have_none_there() -> None:
    assert joined([{"a": [1, 2]}, {"a": np.array([3]), "b": ["x"]}]) == {"a": [1, 2, 3], "b": [None, None, "x"]}
    assert joined([]) == {}


def test_representations_fit_a_screen() -> None:
    found = result()
    text = repr(found)
    assert text.splitlines()[0].startswith("ExperimentResult: ")
    assert [line.split()[0] for line in text.splitlines()[2:5]] == ["local", "pens", "central"]
    run: RunResult = replace(found.runs[0], warnings=tuple(f"peer {peer}: odd" for peer in range(9)))
    assert "… and 6 warnings more" in repr(run)
    many = ExperimentResult(SETTINGS, tuple(replace(found.runs[0], method=f"m{number}") for number in range(50)))
    for each in (text, repr(run), repr(many), repr(run.communication)):
        assert len(each.splitlines()) <= 24
        assert len(each) < 3000
    assert "… and 34 more" in repr(many)
    assert repr(ExperimentResult(SETTINGS, ())).startswith("ExperimentResult: ")


def test_html_escapes_all_text() -> None:
    run = replace(result().runs[0], method="<b>x</b>", device="<i>gpu", warnings=("<script>alert(1)</script>",))
    found = ExperimentResult(SETTINGS, (run,), missing=(("<u>y", 1),))
    for html in (run._repr_html_(), found._repr_html_()):
        assert not any(tag in html for tag in ("<b>", "<i>", "<u>", "<script>"))
        assert "&lt;b&gt;x&lt;/b&gt;" in html
    assert "1 of 2 runs are not complete: &lt;u&gt;y seed 1" in found._repr_html_()
    assert "color: inherit" in run._repr_html_()

# SPDX-License-Identifier: Apache-2.0
"""Files of indices: what `pens data --write-partition` writes gives the same federation again, from any source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pens
from pens.data.partition_files import Share, read_shares, write_shares
from pens.data.scenarios import Federation
from pens.errors import DataCorrupt, DataError, DataNotFound
from pens.experiment.holdings import Holdings, shares_of
from pens.settings.tree import Settings

X, Y = np.arange(60, dtype=np.float32).reshape(30, 2), np.arange(30) % 3


def settings_of(**values: Any) -> Settings:
    return Settings().replace(
        {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    )


def federation_of(settings: Settings) -> Federation:
    return Holdings(settings).federation(settings, 0)


def archive(folder: Path) -> Path:
    np.savez(folder / "all.npz", x=X, y=Y)
    return folder / "all.npz"


def test_indices_are_places_in_the_source(tmp_path: Path) -> None:
    """Peer a holds samples 3 and 4, is validated on 0 and tested on 29; b's parts are split off its six samples."""
    tree = {"a": {"train": [3, 4], "val": [0], "test": [29], "cluster": "x"}, "b": [1, 2, 5, 7, 9, 11]}
    (tmp_path / "split.json").write_text(json.dumps(tree))
    found = federation_of(settings_of(source=archive(tmp_path), partition_file=tmp_path / "split.json"))
    assert (found.peer_names, found.clusters, found.cluster_names) == (("a", "b"), (0, -1), ("x",))
    a, b = found.peers
    assert [a.train.x[:, 0].tolist(), a.val.y.tolist(), found.tests[0].x.tolist()] == [[6, 8], [0], [[58, 59]]]
    held = [*b.train.x[:, 0], *b.val.x[:, 0], *found.tests[1].x[:, 0]]
    assert sorted(held) == [2, 4, 10, 14, 18, 22]


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
@pytest.mark.parametrize(
    "values",
    [
        {"partition": "dirichlet", "alpha": 0.5, "peers": 4}, {"partition": "shards", "peers": 4},
        {"rotations": [0], "peers": 4},
    ],
    ids=lambda of: of.get("partition", "rotation"),
)  # fmt: skip
def test_what_a_partition_made_is_made_again_from_its_file(values: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    settings = settings_of(**values, train_per_peer=20, val_per_peer=10)
    write_shares(tmp_path / f"split{suffix}", shares_of(settings, 0))
    made, usual = (
        federation_of(s) for s in (settings.replace({"partition_file": str(tmp_path / f"split{suffix}")}), settings)
    )
    for number in range(4):
        for part in ("train", "val"):
            one, other = (getattr(of.peers[number], part) for of in (made, usual))
            assert np.array_equal(one.x, other.x)
            assert np.array_equal(one.y, other.y)
        one, other = (of.tests[of.tested_on[number]] for of in (made, usual))
        assert np.array_equal(one.x, other.x)
    assert made.num_classes == 10


def test_rows_of_a_table_of_peers_are_written_down(tmp_path: Path) -> None:
    """Rows of three peers in turn: with the file the column of peers is not needed any more."""
    rows = [f"{'abc'[i % 3]},{i},{'yes' if i % 2 else 'no'}" for i in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["peer,x,label", *rows]))
    settings = settings_of(source=tmp_path / "t.csv")
    shares = shares_of(settings, 0)
    assert sorted(np.concatenate(list(shares["b"].parts.values())).tolist()) == list(range(1, 30, 3))
    write_shares(tmp_path / "split.json", shares)
    again = federation_of(settings.replace({"partition_file": str(tmp_path / "split.json")}))
    assert again.fingerprint == federation_of(settings).fingerprint
    assert read_shares(tmp_path / "split.json")["a"].parts["test"].tolist() == shares["a"].parts["test"].tolist()


def test_other_programs_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[[0, 1], [2]]")
    assert {name: of.parts["train"].tolist() for name, of in read_shares(tmp_path / "list.json").items()} == {
        "peer-0": [0, 1],
        "peer-1": [2],
    }
    pq.write_table(pa.table({"peer": [7, 8, 7], "index": [5, 6, 4]}), tmp_path / "two.parquet")
    assert read_shares(tmp_path / "two.parquet")["7"].parts["train"].tolist() == [5, 4]


def test_names_and_clusters_survive(tmp_path: Path) -> None:
    shares = {
        "ü/ b\x1b": Share({"train": np.array([1]), "test": np.array([], int)}, "x"),
        "c": Share({"train": np.array([2])}),
    }
    for name in ("a.json", "a.parquet"):
        write_shares(tmp_path / name, shares)
        found = read_shares(tmp_path / name)
        assert {who: (of.cluster, of.parts["train"].tolist()) for who, of in found.items()} == {
            "ü/ b\x1b": ("x", [1]),
            "c": (None, [2]),
        }


def test_a_file_of_indices_runs_and_resumes(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text(json.dumps({"a": [*range(12)], "b": [*range(12, 20)], "c": [*range(20, 30)]}))
    (tmp_path / "my.toml").write_text('[data]\nsource = "all.npz"\npartition_file = "split.json"\n')
    archive(tmp_path)
    quick = {"rounds": 1, "step1_rounds": 1, "step1_samplings": 1, "step1_epochs": 1}
    result = pens.run(tmp_path / "my.toml", overrides=quick, methods="local,pens", out=tmp_path / "run", device="cpu")
    assert (result.runs[0].peer_names, result.settings.scenario.peers) == (("a", "b", "c"), 3)
    again = pens.resume(tmp_path / "run", device="cpu")
    assert [run.accuracy.tolist() for run in again.runs] == [run.accuracy.tolist() for run in result.runs]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "cannot be read"), ("7", "holds a int"), ("{}", "names no peer"),
        ('{"a": 3}', "peer a has 3: expected a list"), ('{"a": [0.5]}', "peer a has .*expected a list of whole"),
        ('{"a": ["x"]}', "expected a list of whole"), ('{"a": [[1], [2, 3]]}', "expected a list of whole"),
        ('{"a": {"tran": [1]}}', "peer a has 'tran'"), ('{"a": [1, 30]}', "index 30, but the source has 30 samples"),
        ('{"a": [-1, 2]}', "the index -1"), ('{"a": {"train": [1, 2], "test": [2]}}', "peer a has the index 2 twice"),
        ('{"a": []}', "peer a has 0 samples"), ('{"a": {"test": [1]}}', "peer a has no training data"),
        ('{"a": {}}', "peer a has no training data"),
    ],
)  # fmt: skip
def test_wrong_files_are_refused_by_peer_and_index(content: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text(content)
    with pytest.raises((DataError, DataCorrupt), match=reason):
        federation_of(settings_of(source=archive(tmp_path), partition_file=tmp_path / "split.json"))


def test_files_of_other_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataNotFound, match="no such file"):
        read_shares(tmp_path / "none.json")
    with pytest.raises(DataError, match=r"ends in \.json or \.parquet"):
        write_shares(tmp_path / "split.txt", {})
    pq.write_table(pa.table({"who": [7]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="no column 'peer'"):
        read_shares(tmp_path / "other.parquet")

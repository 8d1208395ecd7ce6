# SPDX-License-Identifier: Apache-2.0
"""pens.load: results from folders of every kind, and sentences about folders that hold none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import pens
from pens.errors import RunDirError
from pens.settings.tree import Settings
from pens.storage import runlog
from pens.storage.runlog import ExperimentDir
from tests.conftest import TINY, TinyNet
from tests.experiment.test_experiment import same_result, tiny_run
from tests.inference.test_using import digits
from tests.report.made import made_run


def test_what_is_loaded_is_what_was_run(tmp_path: Path) -> None:
    result = tiny_run(seeds=2, out=tmp_path / "run")
    for folder in (tmp_path / "run", str(tmp_path / "run"), tmp_path):  # the last holds only this one
        loaded = pens.load(folder)
        assert [(run.method, run.seed) for run in loaded.runs] == [(run.method, run.seed) for run in result.runs]
        for one, other in zip(loaded.runs, result.runs, strict=True):
            same_result(one, other)
        assert (loaded.settings, loaded.own_parts, loaded.missing) == (result.settings, ("model", "data"), ())
    assert repr(pens.load(tmp_path / "run")) == repr(result)
    assert pens.load(tmp_path / "run").to_table().equals(result.to_table())


def test_a_run_that_is_not_finished_is_loaded_as_far_as_it_is(tmp_path: Path) -> None:
    tiny_run(methods="local,pens", out=tmp_path)
    (tmp_path / "pens-seed0" / "result.json").unlink()
    loaded = pens.load(tmp_path)
    assert (loaded.methods, loaded.missing) == (("local",), (("pens", 0),))
    assert "1 of 2 runs are not complete: pens seed 0" in repr(loaded)
    (tmp_path / "local-seed0" / "result.json").unlink()
    none = pens.load(tmp_path)
    assert (none.runs, none.table, none.to_table().num_rows) == ((), (), 0)
    assert none._repr_html_()


def test_methods_and_parts_that_are_not_there_any_more_do_not_matter(tmp_path: Path) -> None:
    x = np.zeros((2, 1, 4, 4), np.float32)
    expected = tiny_run(methods="local,pens", out=tmp_path).predict(1, x, method="pens").tolist()
    record = json.loads((tmp_path / "experiment.json").read_text())
    record |= {"methods": ["local", "gone"], "references": {"gone": str(tmp_path / "gone.py:Gone")}}
    (tmp_path / "experiment.json").write_text(json.dumps(record))
    (tmp_path / "pens-seed0").rename(tmp_path / "gone-seed0")
    data = json.loads((tmp_path / "gone-seed0" / "result.json").read_text())
    (tmp_path / "gone-seed0" / "result.json").write_text(json.dumps({**data, "method": "gone"}))
    loaded = pens.load(tmp_path)
    assert loaded.methods == ("local", "gone")
    assert loaded.predict(1, x, method="gone", model=TinyNet).tolist() == expected
    assert "gone" in repr(loaded)
    assert loaded.to_table().num_rows == 12


def test_older_records_are_read(tmp_path: Path) -> None:
    """Without the network, with `kinds`, without later columns: as version 0.1 wrote them."""
    result = digits(methods="pens", out=tmp_path)
    place = tmp_path / "pens-seed0" / "result.json"
    data = json.loads(place.read_text())
    for name in ("network", "servers", "untested", "peer_names", "step1_epochs", "data_sizes"):
        del data[name]
    data["kinds"], data["kind_names"] = data.pop("clusters"), data.pop("cluster_names")
    place.write_text(json.dumps(data))
    loaded = pens.load(tmp_path)
    x = np.zeros((2, 1, 8, 8))
    np.testing.assert_array_equal(loaded.scores(1, x), result.scores(1, x))
    (row, *_) = loaded.to_table().to_pylist()
    assert (row["cluster"], row["train_samples"]) == ("0°", None)
    record = json.loads((tmp_path / "experiment.json").read_text())
    (tmp_path / "experiment.json").write_text(json.dumps({**record, "own_parts": ["data"]}))
    assert pens.load(tmp_path).runs[0].network is None


def test_loading_reads_no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_run(methods="local,pens", out=tmp_path)
    read: list[str] = []
    row = runlog.StoredTensors.row

    def counted(self: runlog.StoredTensors, name: str, index: int) -> object:
        read.append(f"{name} {index}")
        return row(self, name, index)

    monkeypatch.setattr(runlog.StoredTensors, "row", counted)
    monkeypatch.setattr(runlog.StoredTensors, "__getitem__", lambda *_: pytest.fail("reads all peers' models"))
    loaded = pens.load(tmp_path)
    assert repr(loaded)
    assert loaded.to_table().num_rows == 12
    assert not read
    loaded.predict(4, np.zeros((1, 1, 4, 4), np.float32), method="pens", model=TinyNet)
    assert sorted(read) == ["conv.bias 4", "conv.weight 4", "out.bias 4", "out.weight 4"]


def test_several_run_directories_are_loaded_by_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        directory = ExperimentDir(tmp_path / name)
        settings = Settings().replace(TINY)
        directory.create(runlog.ExperimentRecord(settings, ("pens",), (0,)))
        directory.run("pens", 0).save(made_run(settings, "pens", 0, 0.5))
    (tmp_path / "reproduce.json").write_text("{}")
    assert {name: result.methods for name, result in pens.load_all(tmp_path).items()} == {
        "one": ("pens",),
        "two": ("pens",),
    }
    assert list(pens.load_all(tmp_path / "two")) == ["two"]
    with pytest.raises(RunDirError, match=r"holds 2 run directories \(one, two\): .*pens\.load_all"):
        pens.load(tmp_path)


def test_other_folders_are_refused_in_words(tmp_path: Path) -> None:
    tiny_run(methods="local", out=tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "peer").mkdir()
    (tmp_path / "peer" / "peer.json").write_text("{}")
    for name, words in {
        "nothing": "there is no folder",
        "file": "is a file",
        "empty": "holds no run: there is no experiment.json",
        "peer": "is the folder of one real peer: .*pens collect",
        "run/local-seed0": r"is one run of the run directory .*run: load that, pens\.load",
    }.items():
        for load in (pens.load, pens.load_all):
            with pytest.raises(RunDirError, match=words):
                load(tmp_path / name)
    (tmp_path / "run" / "local-seed0" / "history.parquet").write_bytes(b"")
    with pytest.raises(RunDirError, match="cannot be read"):
        pens.load(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "local-seed0")
    (tmp_path / "run" / "experiment.json").write_text("{}")
    with pytest.raises(RunDirError, match="not the record of a run"):
        pens.load(tmp_path / "run")

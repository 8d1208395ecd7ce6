# SPDX-License-Identifier: Apache-2.0
"""Own data from files: tables, folders of images, archives and functions, by settings, flags and in Python."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import pens
from pens.data.own_sources import OwnPeers, load_data
from pens.data.samples import Dataset
from pens.errors import DataCorrupt, DataError, DataNotFound, SettingsError
from pens.experiment.holdings import Holdings
from pens.partitions.partition import build_federation
from pens.settings.reading import flat_keys
from pens.settings.tree import Settings

QUICK = {"rounds": 2, "step1_rounds": 1, "step1_samplings": 1, "step1_epochs": 1}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four peers of 30 samples; the label is a simple rule, which half of the peers turn round."""
    random = np.random.default_rng(0)
    rows = ["peer,a,b,label"]
    for peer in range(4):
        x = random.normal(size=(30, 2))
        rows += [f"p{peer},{a:.3f},{b:.3f},{'yes' if (a > 0) != (peer % 2) else 'no'}" for a, b in x]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


def peers_of(source: Path | str, **changes: object) -> OwnPeers:
    found = load_data(Settings().replace({"source": str(source), **changes}))
    assert isinstance(found, OwnPeers)
    return found


def test_a_table_is_read_as_csv_tsv_and_parquet(table: Path, tmp_path: Path) -> None:
    """All the same; tables are standardised, unless that is switched off; each seed splits anew."""
    lines = table.read_text()
    (tmp_path / "table.tsv").write_text(lines.replace(",", "\t"))
    (tmp_path / "semicolons.csv").write_text("\ufeff" + lines.replace(",", ";"))
    pq.write_table(pa.csv.read_csv(table), tmp_path / "table.parquet")
    usual = peers_of(table).federation(0)
    assert (usual.peer_names, usual.class_names) == (("p0", "p1", "p2", "p3"), ("no", "yes"))
    assert usual.peers[0].train.x.mean(0) == pytest.approx(np.zeros(2), abs=1e-6)
    for name in ("table.tsv", "semicolons.csv", "table.parquet"):
        assert peers_of(tmp_path / name).federation(0).fingerprint == usual.fingerprint
    assert peers_of(table, standardise="no").federation(0).peers[0].train.x.mean() != pytest.approx(0, abs=1e-3)
    assert peers_of(table).federation(1).fingerprint != usual.fingerprint


def test_rows_that_a_partition_shares_out_are_standardised_by_the_same_numbers(table: Path, tmp_path: Path) -> None:
    rows = [line.partition(",")[2] for line in table.read_text().splitlines()]
    (tmp_path / "rows.csv").write_text("\n".join(rows))
    settings = Settings().replace({"source": str(tmp_path / "rows.csv"), "partition": "dirichlet", "peers": 2})
    settings = settings.replace({"train_per_peer": 5, "val_per_peer": 2})
    dataset = load_data(settings)
    assert isinstance(dataset, Dataset)
    federation = build_federation(dataset, settings, 0)
    made = federation.preparation
    assert (made.columns, federation.class_names) == (("a", "b"), ("no", "yes"))
    assert made.standard_of(0) is made.standard_of(1) is not None


def test_files_of_other_programs_are_read(table: Path, tmp_path: Path) -> None:
    """Compressed, with capitals, spaces, the marks and decimal commas of spreadsheets, in UTF-16: all the same."""
    lines, usual = table.read_text(), peers_of(table).federation(0).fingerprint
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "T.CSV").write_text(lines.replace(",", " , "))
    (tmp_path / "commas.csv").write_text(lines.replace(",", ";").replace(".", ","))
    (tmp_path / "sixteen.csv").write_text(lines, encoding="utf-16")
    (tmp_path / "bars.csv").write_text(lines.replace(",", "|").replace("\n", "\r\n"))
    for name in ("t.csv.gz", "T.CSV", "commas.csv", "sixteen.csv", "bars.csv"):
        assert peers_of(tmp_path / name).federation(0).fingerprint == usual, name
    (tmp_path / "header.csv").write_text(lines.replace(",", ";").replace("a;b", '"a, old";b'))
    numbered = [f"{i},{line}" if i else f",{line}" for i, line in enumerate(lines.splitlines())]
    (tmp_path / "index.csv").write_text("\n".join(numbered))
    assert peers_of(tmp_path / "header.csv").federation(0).fingerprint == usual
    assert peers_of(tmp_path / "index.csv", ignore_columns="Unnamed: 0").federation(0).fingerprint == usual
    (tmp_path / "quoted.csv").write_text(lines.replace("yes", '"very\nill"'))
    assert peers_of(tmp_path / "quoted.csv").federation(0).class_names == ("no", "very\nill")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"peer,a,label\n", "has the columns peer, a, label, but no rows"),
        (b",peer,a,label\n0,p,1,x\n", r"column 1 has no name.* set ignore_columns='Unnamed: 0'"),
        (b"peer,Unnamed: 0,label\np,1,x\n", r"column 2 has no name"),
        (b"peer,a,label\np,1,x\nq,2\n", r"row 2 has 2 fields, but the first line names 3 columns: 'q,2'\. Correct"),
        (b"a,clinic,label\n1,p,x\n", r"'clinic' .* in row 1: .* ignore_columns=clinic; .* set peer_column=clinic"),
        (b"peer,a,label\np,1,x\nq,2,\n", r"row 2 \(peer q\) has no label"),
        (b"peer,a,label\np,1,x\n ,2,y\n", "row 2 has no peer"),
        ("peer,a,label\np,1,gr\xfcn\n".encode("latin-1"), "column 'label' is no text in UTF-8"),
        (b"peer,a,label\np,2020-01-31,x\n", r"holds '2020-01-31' in row 1 \(peer p\)"),
        (b"a,label\n1,x\n2,y\n3,x\n", "samples of shape .* name the column or array of the peers by peer_column"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_bytes(content)
    settings = Settings().replace({"source": str(tmp_path / "bad.csv")})
    with pytest.raises((DataError, DataCorrupt), match=reason):
        Holdings(settings).federation(settings, 0)


def test_a_column_of_clusters_is_believed(table: Path, tmp_path: Path) -> None:
    """Empty where it is not known."""
    header, *rows = table.read_text().splitlines()
    path = tmp_path / "known.csv"
    cluster = {"p0": "odd", "p1": "even", "p2": "odd", "p3": ""}
    path.write_text("\n".join([f"{header},cluster", *(f"{row},{cluster[row[:2]]}" for row in rows)]))
    found = peers_of(path).federation(0)
    assert found.cluster_names == ("even", "odd")
    assert found.clusters == (1, 0, 1, -1)


def test_images_are_read_by_peer_class_and_part(tmp_path: Path) -> None:
    for peer in "ab":
        for label, value in (("cat", 0), ("dog", 255)):
            folder = tmp_path / "images" / peer / label
            folder.mkdir(parents=True)
            for i in range(5):
                Image.fromarray(np.full((6, 6), value, np.uint8)).save(folder / f"{i}.png")
    found = peers_of(tmp_path / "images").federation(0)
    assert (found.peer_names, found.class_names, found.sample_shape) == (("a", "b"), ("cat", "dog"), (1, 6, 6))
    assert {(float(x.mean()), int(y)) for x, y in zip(found.peers[0].train.x, found.peers[0].train.y, strict=True)} == {
        (0, 0),
        (1, 1),
    }
    assert peers_of(tmp_path / "images", image_size=4).federation(0).sample_shape == (1, 4, 4)
    Image.fromarray(np.zeros((5, 6, 3), np.uint8)).save(tmp_path / "images" / "a" / "cat" / "odd.png")
    with pytest.raises(DataError, match=r"odd\.png has .* set image_size"):
        peers_of(tmp_path / "images")
    (tmp_path / "images" / "a" / "cat" / "odd.png").write_text("no image")
    with pytest.raises(DataCorrupt, match=r"odd\.png: cannot be read as an image"):
        peers_of(tmp_path / "images")
    for part in ("train", "test"):
        folder = tmp_path / "divided" / "a" / part / "x"
        folder.mkdir(parents=True)
        for i in range(4):
            Image.fromarray(np.zeros((4, 4), np.uint8)).save(folder / f"{i}.png")
    divided = peers_of(tmp_path / "divided").federation(0)
    assert [len(divided.peers[0].train), len(divided.peers[0].val), len(divided.tests[0])] == [3, 1, 4]


def test_archives_and_functions_give_peers_or_a_data_set(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    np.savez(tmp_path / "peers.npz", x=x, y=y, peer=np.repeat(["a", "b"], 20))
    assert peers_of(tmp_path / "peers.npz").federation(0).peer_names == ("a", "b")
    np.savez(tmp_path / "nobodys.npz", x=x, y=y)
    shared = load_data(Settings().replace({"source": str(tmp_path / "nobodys.npz")}))
    assert isinstance(shared, Dataset)
    assert (len(shared.train), len(shared.test)) == (32, 8)
    (tmp_path / "mine.py").write_text(
        "import numpy as np\nx, y = np.zeros((9, 2)), np.arange(9) % 3\n"
        "def peers():\n    return {'a': (x, y), 'b': (x, y)}\n"
        "def parts():\n    return {'train': (x, y), 'test': (x[:3], y[:3])}\n"
        "def fails():\n    raise ValueError('no luck')\n"
        "def number():\n    return 7\n"
    )
    assert peers_of(f"{tmp_path}/mine.py:peers").federation(0).num_classes == 3
    shared = load_data(Settings().replace({"source": f"{tmp_path}/mine.py:parts"}))
    assert isinstance(shared, Dataset)
    assert (len(shared.train), len(shared.test)) == (9, 3)
    with pytest.raises(SettingsError, match="it fails: ValueError: no luck"):
        peers_of(f"{tmp_path}/mine.py:fails")
    with pytest.raises(SettingsError, match="gives a int: return a pens"):
        peers_of(f"{tmp_path}/mine.py:number")


def test_paths_in_a_file_are_relative_to_it(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("def load(): return 1\nclass Net: pass\n")
    file = tmp_path / "my.toml"
    file.write_text('[data]\nsource = "table.csv"\n[model]\nnet = "mine.py:Net"\n')
    monkeypatch.chdir("/")
    keys = flat_keys(file)
    assert keys == {"data.source": str(table.resolve()), "model.net": f"{tmp_path.resolve()}/mine.py:Net"}
    file.write_text('dataset = "digits"\n')
    assert flat_keys(file) == {"data.source": "digits"}


def test_a_table_runs_resumes_and_takes_own_networks(table: Path, tmp_path: Path) -> None:
    """By settings alone, so that a run directory says all that is needed to go on."""
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "def make(shape, num_classes):\n"
        "    return nn.Sequential(nn.Linear(shape[0], 5), nn.ReLU(), nn.Linear(5, num_classes))\n"
    )
    settings = {**QUICK, "source": str(table), "net": f"{tmp_path}/net.py:make"}
    result = pens.run(None, overrides=settings, methods="local,pens", out=tmp_path / "run", device="cpu")
    again = pens.resume(tmp_path / "run", device="cpu")
    assert [run.accuracy.tolist() for run in again.runs] == [run.accuracy.tolist() for run in result.runs]
    assert result.runs[0].models["0.weight"].shape == (4, 5, 2)
    assert result.runs[0].peer_names == ("p0", "p1", "p2", "p3")


def test_images_by_class_alone_are_shared_out(tmp_path: Path) -> None:
    """Grey and colour images together are refused, and so is a damaged one, by name."""
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for i in range(10):
            Image.fromarray(np.full((4, 4), i, np.uint8)).save(tmp_path / "images" / label / f"{i}.png")
    shared = load_data(Settings().replace({"source": str(tmp_path / "images")}))
    assert isinstance(shared, Dataset)
    assert (len(shared.train), len(shared.test), shared.num_classes, shared.sample_shape) == (16, 4, 2, (1, 4, 4))
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / "images" / "cat" / "colour.png")
    with pytest.raises(DataError, match=r"colour\.png has .*\(3, 4, 4\)"):
        load_data(Settings().replace({"source": str(tmp_path / "images")}))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("nosuch.csv", "there is no such file"), ("nosuch/", "there is no such file or folder"),
        ("notes.docx", "a file ends in .csv"), ("nosuch", "unknown data set 'nosuch': choose from digits"),
        ("hf:nosuch", "datasets|hf:nosuch"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_said(source: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.docx").write_text("")
    with pytest.raises((DataNotFound, DataError, SettingsError), match=reason):
        load_data(Settings().replace({"source": source}))


def test_run_takes_a_path_as_the_source(table: Path) -> None:
    result = pens.run(data=table, overrides=QUICK, methods="local", device="cpu")
    assert (result.settings.data.source, result.settings.scenario.peers) == (str(table), 4)

# SPDX-License-Identifier: Apache-2.0
"""Files that others made to fill the memory, or to take over a terminal, are refused or made harmless."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save

from pens.network.federation import foreign_files
from pens.network.federation.foreign_files import read_json, read_model, read_table
from tests.network.federation.test_records import SETTINGS

EVIL = "\x1b[2J\u202eevil"


def test_what_peers_write_is_read(tmp_path: Path) -> None:
    senders = np.array(["a", "b", "a"])
    pq.write_table(pa.table({"round": np.arange(3), "sender": senders, "ok": senders == "a"}), tmp_path / "t")
    table = read_table(tmp_path / "t")
    assert {name: list(column) for name, column in table.items()} == {
        "round": [0, 1, 2],
        "sender": ["a", "b", "a"],
        "ok": [True, False, True],
    }
    model = {"w": torch.arange(6.0).reshape(2, 3)}
    (tmp_path / "m").write_bytes(save(model))
    assert torch.equal(read_model(tmp_path / "m")["w"], model["w"])


def rows(count: int) -> pa.Table:
    return pa.table({"x": np.zeros(count, np.bool_)})


def texts(text: str | None, count: int) -> pa.Table:
    return pa.table({"x": pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [text])})


TABLES: dict[str, tuple[Callable[[Path], object], str]] = {
    "rows": (lambda p: pq.write_table(rows(2_000_001), p), "2000001 rows, but at most 2000000"),
    "columns": (lambda p: pq.write_table(pa.table({f"c{n}": [1] for n in range(65)}), p), "65 columns"),
    "nested": (lambda p: pq.write_table(pa.table({"x": [[1, 2]]}), p), "nests"),
    "type": (lambda p: pq.write_table(pa.table({"x": [b"raw"]}), p), "is of type binary"),
    "codec": (lambda p: pq.write_table(rows(3), p, compression="gzip"), "compressed by GZIP"),
    "long texts": (lambda p: pq.write_table(texts("x" * 100_000, 100_000), p), "a text of more than 1000"),
    "no values": (lambda p: pq.write_table(pa.table({"x": [1, None]}), p), "without a value"),
    "a hole": (lambda p: os.truncate(_touched(p), 1 << 40), "1099511627776 bytes, but at most"),
    "a pipe": (lambda p: os.mkfifo(p), "not a file"),
    "no table": (lambda p: p.write_bytes(b"PAR1" + bytes(100) + b"PAR1"), "."),
}


def _touched(path: Path) -> Path:
    path.touch()
    return path


@pytest.mark.parametrize("what", TABLES)
def test_tables_that_are_refused(tmp_path: Path, what: str) -> None:
    make, words = TABLES[what]
    make(tmp_path / "t")
    with pytest.raises((ValueError, OSError, pa.ArrowException), match=words):
        read_table(tmp_path / "t")


def test_unpacked_bytes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"x": np.random.default_rng(0).random(1000)}), tmp_path / "t")
    monkeypatch.setattr(foreign_files, "_UNPACKED_BYTES", 7000)
    with pytest.raises(ValueError, match="at most 7000 are read"):
        read_table(tmp_path / "t")


def test_json_that_is_refused(tmp_path: Path) -> None:
    for text, words in {"[" * 100_000: "nests", '{"a":' * 900 + "1" + "}" * 900: "nests", "[]": "not a JSON"}.items():
        (tmp_path / "j").write_text(text)
        with pytest.raises(ValueError, match=words):
            read_json(tmp_path / "j")
    os.truncate(tmp_path / "j", 1 << 40)
    with pytest.raises(ValueError, match="at most"):
        read_json(tmp_path / "j")


def test_texts_are_made_printable(tmp_path: Path) -> None:
    (tmp_path / "j").write_text(json.dumps({"name": EVIL, "x": [EVIL * 1000]}))
    read = read_json(tmp_path / "j")
    assert str(read).isprintable()
    assert len(str(read)) < 10_000
    pq.write_table(pa.table({"sender": [EVIL]}), tmp_path / "t")
    assert read_table(tmp_path / "t")["sender"][0].isprintable()


@pytest.mark.parametrize(
    "header", [(1 << 62).to_bytes(8, "little") + b"{", (5 << 20).to_bytes(8, "little") + bytes(6 << 20), b"", b"xyz"]
)
def test_models_that_are_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "m").write_bytes(header)
    with pytest.raises((ValueError, SafetensorError)):
        read_model(tmp_path / "m")


def _evil_folder(folder: Path) -> None:
    """A peer's records, of which the table has 300 million equal rows, and all texts take over the terminal."""
    folder.mkdir()
    card = {"name": EVIL, "method": "pens", "seed": 0, "cluster": EVIL, "device": EVIL, "own_parts": [EVIL]}
    (folder / "peer.json").write_text(json.dumps({**card, "settings": SETTINGS.model_dump(mode="json")}))
    schema = pa.schema([("version", pa.int64()), (EVIL, pa.int64())])
    part = pa.table({"version": np.zeros(1_000_000, np.int64), EVIL: np.zeros(1_000_000, np.int64)})
    with pq.ParquetWriter(folder / "history.parquet", schema) as writer:
        for _ in range(150):
            writer.write_table(part)


@pytest.mark.slow
def test_collecting_takes_little_memory_and_leaves_the_terminal_alone(tmp_path: Path) -> None:
    """The folder alone, as `pens collect` reads it, with 2 GB of address space above what Python and PyTorch take."""
    _evil_folder(tmp_path / "evil")
    command = [sys.executable, "-m", "pens", "collect", str(tmp_path / "evil"), "--out", str(tmp_path / "run")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30)),
    )
    assert done.returncode == 2
    assert "150000000 rows" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert "\u202e" not in done.stderr + done.stdout

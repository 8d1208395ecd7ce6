# SPDX-License-Identifier: Apache-2.0
"""`pens backup`: the state of one moment, from which a peer goes on, however often the folder is written meanwhile."""

from __future__ import annotations

import tarfile
import threading
from pathlib import Path

import pytest

from pens.errors import RunDirError, SettingsError
from pens.network.node.state import PeerFolder
from pens.network.operating.backup import back_up
from pens.storage.checkpoint import encode_state
from tests.network.node.test_saved_state import STATE, state_in, stopped
from tests.network.node.test_stopping import Life, unbroken
from tests.network.virtual import run_virtually

CARD = {"name": "peer-0", "seed": 0}


def restored(target: Path, folder: Path) -> Path:
    with tarfile.open(target) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_a_peer_goes_on_from_a_backup(tmp_path: Path) -> None:
    state = tmp_path / "state"
    folder = PeerFolder(state)
    folder.create(CARD)
    assert not run_virtually(Life(state).live(9))
    (state / "audit.jsonl").write_text("{}\n")
    made = back_up(state, tmp_path / "a.tar")
    assert made.name == "peer-0"
    assert made.path.stat().st_mode & 0o077 == 0
    life = Life(restored(made.path, tmp_path / "again"))
    assert (life.folder / "audit.jsonl").read_text() == "{}\n"
    assert run_virtually(life.live())
    assert life.outcome() == unbroken("pens")[0]


def test_a_backup_is_whole_while_the_peer_writes(tmp_path: Path) -> None:
    state, folder = tmp_path / "state", PeerFolder(tmp_path / "state")
    folder.create(CARD)
    folder.save_membership({"incarnation": 1, "members": []})
    saved, tensors = state_in(stopped()[STATE])
    text = encode_state(saved)
    folder.save(text, tensors)
    over = threading.Event()

    def write_on() -> None:
        while not over.is_set():
            folder.save(text, tensors)
            folder.save_membership({"incarnation": 2, "members": []})

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        for number in range(8):
            back_up(state, tmp_path / f"{number}.tar")
    finally:
        over.set()
        writer.join()
    for number in range(8):
        again = PeerFolder(restored(tmp_path / f"{number}.tar", tmp_path / f"again-{number}"))
        found = again.load()
        assert found
        assert found[0] == saved
        assert again.load_membership()


def test_what_cannot_be_backed_up_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(RunDirError, match="nothing to back up yet"):
        back_up(tmp_path / "state", tmp_path / "a.tar")
    with pytest.raises(SettingsError, match=r"ends in \.tar"):
        back_up(tmp_path / "state", tmp_path / "a.zip")
    (tmp_path / "there.tar").write_bytes(b"")
    with pytest.raises(SettingsError, match="is there already"):
        back_up(tmp_path / "state", tmp_path / "there.tar")
    folder = PeerFolder(tmp_path / "state")
    folder.create(CARD)
    folder.save_membership({"incarnation": 1, "members": []})
    (tmp_path / "state" / STATE).write_bytes(stopped()[STATE][:-9])
    with pytest.raises(RunDirError, match="no backup was made"):
        back_up(tmp_path / "state", tmp_path / "a.tar")
    assert not (tmp_path / "a.tar").exists()

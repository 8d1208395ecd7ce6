# SPDX-License-Identifier: Apache-2.0
"""Files are replaced as a whole, and a checkpoint in which a bit has changed is refused."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from pens.errors import DiskError, RunDirError
from pens.storage.checkpoint import Checkpoint, encode_state
from pens.storage.files import not_written, remove_strays, replace_file


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 75),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 75),
        (OSError(errno.EIO, "Input/output error"), 75),
        (OSError(errno.EACCES, "Permission denied"), 2),
        (OSError(errno.ENOENT, "No such file or directory"), 2),
        (ValueError("Error while serializing: I/O error: No space left on device (os error 28)"), 75),
        (ValueError("a tensor that shares memory"), 2),
    ],
)
def test_what_may_pass_has_a_status_of_its_own(error: Exception, status: int) -> None:
    found = not_written(Path("state") / "a.json", error)
    assert found.exit_status == status
    assert isinstance(found, DiskError) == (status == 75)
    assert str(found).startswith(f"{Path('state') / 'a.json'}: cannot be written: ")


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")

    def half(place: Path) -> None:
        place.write_text("ne")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DiskError, match="make room on that disk"):
        replace_file(path, half)
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == "old"


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in (".checkpoint.safetensors.4711", ".a.json.1", ".a.json.bak", ".hidden", "a.json.1"):
        (tmp_path / name).touch()
    (tmp_path / ".folder.1").mkdir()
    remove_strays(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".a.json.bak", ".folder.1", ".hidden", "a.json.1"]


def test_every_bit_of_a_checkpoint_counts(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors", ": do this")
    checkpoint.save(
        encode_state({"a": 1}), {"t": torch.ones(3), "empty": torch.zeros(0, 2), "is": torch.tensor([True])}
    )
    found = checkpoint.load()
    assert found
    assert found[0] == {"a": 1}
    assert torch.equal(found[1]["t"], torch.ones(3))
    whole = checkpoint.path.read_bytes()
    for at in range(len(whole)):
        checkpoint.path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        if whole[at : at + 1] != b" ":  # the header ends in blanks, which say nothing
            with pytest.raises(RunDirError, match=r"checkpoint\.safetensors: .*: do this"):
                checkpoint.load()
    for length in range(0, len(whole), 7):
        checkpoint.path.write_bytes(whole[:length])
        with pytest.raises(RunDirError, match=r"checkpoint\.safetensors: .*: do this"):
            checkpoint.load()

# SPDX-License-Identifier: Apache-2.0
"""A backup of a peer's state folder, made while the peer runs or not: one tar file, from which `pens peer` can start.

Theory of operation. The state is one file that is replaced as a whole, so a copy of it is the state of one moment,
whatever the peer writes meanwhile. It is copied first and checked. The other files are whole, too, each by itself: the
membership may be some seconds younger, which does not matter, and the records are written again from the state when a
peer starts. The tar file itself appears under its name only when it is complete.

Certificates and keys are not in it, nor is the peer's file: they are elsewhere, and a key has no place in a backup that
others may read.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pens.errors import RunDirError, SettingsError
from pens.network.operating.peer_config import read_peer_config
from pens.storage.checkpoint import Checkpoint
from pens.storage.files import replace_file

_STATE = "checkpoint.safetensors"
_OTHERS = (
    "membership.json",
    "peer.json",
    "preparation.json",
    "revocations",
    "history.parquet",
    "comparisons.parquet",
    "pairs.json",
    "models.safetensors",
    "result.json",
)
_NEEDED = ("membership.json", "peer.json")


@dataclass(frozen=True)
class Backup:
    """A backup that was made."""

    path: Path
    name: str
    """Of the peer."""
    version: int
    """Of its model."""
    size_bytes: int


def back_up(source: Path, target: Path) -> Backup:
    """Write the state of a peer into a tar file. `source`: the peer's file, or its state folder."""
    if source.is_dir():
        folder = source
    else:
        config = read_peer_config(source)
        folder = config.path(config.peer.state)
    if target.suffix != ".tar":
        raise SettingsError(f"{target}: a backup is a tar file: choose a name that ends in .tar")
    if target.exists():
        raise SettingsError(f"{target} is there already: choose another name, so that no earlier backup is lost")
    state = _read(folder / _STATE)
    if state is None:
        raise RunDirError(
            f"{folder}: there is nothing to back up yet: a peer saves its state for the first time when it has trained "
            "its first model and knows enough others"
        )
    others = {name: _read(path) for name in (*_OTHERS, *_older_audit(folder)) if (path := folder / name).is_file()}
    files = {_STATE: state, **{name: content for name, content in others.items() if content is not None}}
    for name in _NEEDED:
        if name not in files:
            raise RunDirError(f"{folder}: there is no {name}: this is not the state folder of a peer")
    version, about = _version(state), json.loads(files["peer.json"])
    replace_file(target, lambda path: _write(path, files))
    return Backup(target, about["name"], version, target.stat().st_size)


def _older_audit(folder: Path) -> list[str]:
    """The audit log with its older files."""
    return sorted(path.name for path in folder.glob("audit.jsonl*"))


def _read(path: Path) -> bytes | None:
    """The content of a file at one moment; None where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunDirError(f"{path}: cannot be read: {error.strerror}: run this as the user of the peer") from None


def _write(path: Path, files: Mapping[str, bytes]) -> None:
    path.touch(mode=0o600)
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size, about.mode = len(content), 0o600
            archive.addfile(about, io.BytesIO(content))


def _version(state: bytes) -> int:
    """The version of the model in a state, which must be whole."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / _STATE
        path.write_bytes(state)
        found = Checkpoint(path, ": no backup was made: see whether the disk is sound").load()
    assert found
    return int(found[0]["learning"]["current"])

# SPDX-License-Identifier: Apache-2.0
"""What a real peer leaves on disk: the state that a restart needs, and the records that tell what it did.

    DIR/lock                     locked by the process that uses the folder
    DIR/revoked.pem              the newest revocation list of each authority
    DIR/membership.json          its incarnation and the others' addresses; written at the start and after every update
    DIR/checkpoint.safetensors   the whole state, after every update: one file, replaced as a whole
    DIR/peer.json                the peer: name, number, settings, sizes of its data, its network
    DIR/preparation.json         the means and deviations of its own inputs, where they were standardised by them
    DIR/history.parquet          its updates; times are seconds since it first started
    DIR/pairs.json               how often it merged, selected and compared the models of each other peer, by name
    DIR/comparisons.parquet      step 1 round by round; only where the peer compared models
    DIR/models.safetensors       the model that it keeps
    DIR/result.json              everything else; `final` in it says whether the peer exited cleanly

The state is on disk when `save` returns: a peer that is killed loses no more than the update in progress. Each file of
records is complete at any moment, too, but a power failure may lose the newest ones.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.torch import save_file
from torch import Tensor

from pens.data.samples import Array
from pens.errors import RunDirError, TemporaryError
from pens.network.node.saved_state import check_membership, check_saved
from pens.storage.checkpoint import Checkpoint, encode_state
from pens.storage.files import DISK, Disk, not_written, read_json, remove_file, remove_strays, replace_file, write_json

REMEDY = (
    "restore a backup of this folder, set peer.state to another folder, or delete this folder to begin anew "
    "(docs/deploy.md, section 8)"
)
_DELETE = "delete it to go on"
_LONGEST = 300  # letters of an error


@dataclass(frozen=True)
class Records:
    """What a peer did so far, for others to read."""

    result: Mapping[str, Any]
    pairs: Mapping[str, Mapping[str, int]]
    history: Mapping[str, Array]
    comparisons: Mapping[str, Array] | None
    models: Mapping[str, Tensor]


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock the folder while the block lasts, however the process ends; TemporaryError if another process uses it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise not_written(folder, error) from None
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TemporaryError(
            f"{folder}: another process uses this state folder: stop it, or set peer.state to another folder"
        ) from None
    except OSError as error:
        raise RunDirError(f"{folder}: cannot be locked: {error.strerror or error}") from None


class PeerFolder:
    """The state folder of one real peer."""

    def __init__(self, folder: Path, disk: Disk = DISK) -> None:
        self.folder, self._disk = folder, disk
        path = folder / "checkpoint.safetensors"
        self._checkpoint = Checkpoint(path, f": {REMEDY}", disk)

    def create(self, about: Mapping[str, Any]) -> None:
        """Make the folder, or take over that of an earlier life of the same peer."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_strays(self.folder, self._disk)
        except OSError as error:
            raise not_written(self.folder, error) from None
        known = self._read("peer.json")
        for key in ("name", "seed"):
            if known and known.get(key) != about[key]:
                raise RunDirError(
                    f"{self.folder} is the state folder of a peer with {key} {known.get(key)!r}, not {about[key]!r}: "
                    "set peer.state to another folder, or delete that one"
                )
        started = {"started": known["started"]} if known and "started" in known else {}
        write_json(self.folder / "peer.json", {**about, **started}, disk=self._disk)

    def keep_preparation(self, data: Mapping[str, Any] | None) -> None:
        """Keep what the peer's own inputs were standardised by, in a file apart from what it may show to others."""
        path = self.folder / "preparation.json"
        if data is None:
            remove_file(path, self._disk)
        else:
            write_json(path, data, disk=self._disk)

    def save(self, state: bytes, tensors: Mapping[str, Tensor]) -> None:
        """Replace the state. One that no peer could go on from is not written, but is an error."""
        check_saved(state, tensors)
        self._checkpoint.save(state, tensors)

    def load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The state that an earlier life saved; None if there is none."""
        found = self._checkpoint.load()
        if found:
            with self.reading_state():
                check_saved(encode_state(found[0]), found[1])
        return found

    def reading_state(self) -> AbstractContextManager[None]:
        """Within this context, an error of whoever goes on from the state becomes one that names the file."""
        return _written_by_this_peer(self._checkpoint.path, REMEDY)

    def save_membership(self, state: Mapping[str, Any]) -> None:
        """Save the incarnation, so that the next life takes a higher one, and the others' addresses."""
        write_json(self.folder / "membership.json", state, disk=self._disk)

    def load_membership(self) -> dict[str, Any] | None:
        """What an earlier life saved; None if there is none."""
        found = self._read("membership.json")
        if found is not None:
            with _written_by_this_peer(self.folder / "membership.json", _DELETE):
                check_membership(encode_state(found))
        return found

    def write(self, records: Records) -> None:
        """Replace the records."""
        self._write_table("history.parquet", records.history)
        if records.comparisons:
            self._write_table("comparisons.parquet", records.comparisons)
        models = {name: t.detach().cpu().contiguous() for name, t in records.models.items()}
        replace_file(self.folder / "models.safetensors", lambda p: save_file(models, p), durable=False, disk=self._disk)
        write_json(self.folder / "pairs.json", records.pairs, durable=False, disk=self._disk)
        write_json(self.folder / "result.json", records.result, durable=False, disk=self._disk)

    def _write_table(self, name: str, columns: Mapping[str, Array]) -> None:
        table = pa.table({column: pa.array(values) for column, values in columns.items()})
        replace_file(self.folder / name, lambda p: pq.write_table(table, p.absolute()), durable=False, disk=self._disk)

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        return read_json(path, f": {_DELETE}") if path.is_file() else None


@contextmanager
def _written_by_this_peer(path: Path, remedy: str) -> Iterator[None]:
    """Turn the errors of reading a file that this peer would not have written into one that names the remedy."""
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise RunDirError(
            f"{path}: this was saved with other settings, or by another version of pens, or is damaged "
            f"({_shown(error)}): {remedy}"
        ) from error


def _shown(error: Exception) -> str:
    """An error in words, cut where it repeats what a file says."""
    return f"{type(error).__name__}: {str(error)[:_LONGEST]}"

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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.torch import save_file
from torch import Tensor

from pens.data.samples import Array
from pens.errors import RunDirError
from pens.learning.jobs import decode_blend, decode_update, encode_blend, encode_update
from pens.protocol.messages import (
    Ask,
    Blend,
    Compare,
    Counts,
    Distances,
    Drop,
    Losses,
    ModelRef,
    PeerId,
    Query,
    Update,
    Verdicts,
)
from pens.storage.files import read_json, replace_file, write_json
from pens.storage.runlog import RunDir

PeerJob = Compare | Ask | Blend | Update | Drop
"""Something that a peer wants computed; `Drop` of a model that it made, once that is computed and used."""


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
    """Lock the folder while the block lasts, however the process ends; RunDirError if another process uses it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RunDirError(f"{folder}: cannot be written: {error.strerror or error}") from None
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunDirError(
            f"{folder}: another process uses this state folder: stop it, or set peer.state to another folder"
        ) from None
    except OSError as error:
        raise RunDirError(f"{folder}: cannot be locked: {error.strerror or error}") from None


class PeerFolder:
    """The state folder of one real peer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state = RunDir(folder)

    def create(self, about: Mapping[str, Any]) -> None:
        """Make the folder, or take over that of an earlier life of the same peer."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirError(f"{self.folder}: cannot be written: {error.strerror or error}") from None
        known = self._read("peer.json")
        for key in ("name", "seed"):
            if known and known.get(key) != about[key]:
                raise RunDirError(
                    f"{self.folder} is the state folder of a peer with {key} {known.get(key)!r}, not {about[key]!r}: "
                    "set peer.state to another folder, or delete that one"
                )
        started = {"started": known["started"]} if known and "started" in known else {}
        write_json(self.folder / "peer.json", {**about, **started}, durable=True)

    def keep_preparation(self, data: Mapping[str, Any] | None) -> None:
        """Keep what the peer's own inputs were standardised by, in a file apart from what it may show to others."""
        path = self.folder / "preparation.json"
        if data is None:
            path.unlink(missing_ok=True)
        else:
            write_json(path, data, durable=True)

    def save(self, data: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Replace the state."""
        self._state.save_checkpoint(data, tensors)

    def load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The state that an earlier life saved; None if there is none."""
        return self._state.load_checkpoint()

    def save_membership(self, state: Mapping[str, Any]) -> None:
        """Save the incarnation, so that the next life takes a higher one, and the others' addresses."""
        write_json(self.folder / "membership.json", state, durable=True)

    def load_membership(self) -> dict[str, Any] | None:
        """What an earlier life saved; None if there is none."""
        return self._read("membership.json")

    def write(self, records: Records) -> None:
        """Replace the records."""
        self._write_table("history.parquet", records.history)
        if records.comparisons:
            self._write_table("comparisons.parquet", records.comparisons)
        models = {name: t.detach().cpu().contiguous() for name, t in records.models.items()}
        replace_file(self.folder / "models.safetensors", lambda p: save_file(models, p), durable=False)
        write_json(self.folder / "pairs.json", records.pairs, durable=False)
        write_json(self.folder / "result.json", records.result, durable=False)

    def _write_table(self, name: str, columns: Mapping[str, Array]) -> None:
        table = pa.table({column: pa.array(values) for column, values in columns.items()})
        replace_file(self.folder / name, lambda p: pq.write_table(table, p.absolute()), durable=False)

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        return read_json(path, ": delete it to go on") if path.is_file() else None


def encode_job(job: PeerJob) -> list[Any]:
    """A job as plain data."""
    match job:
        case Compare(models, m):
            return ["compare", _plain(models), m]
        case Ask(name, Counts(), when):
            return ["ask", name, when]
        case Ask(name, Verdicts(), when):
            return ["ask", name, when, "verdicts"]
        case Ask(name, Losses(models, beside, on, own), when):
            return ["ask", name, when, _plain(models), _plain(beside), on, own]
        case Blend():
            return ["blend", *encode_blend(job)]
        case Drop(model, why):
            return ["drop", list(model), why]
        case Ask(name, Distances(models, by), when):
            return ["ask", name, when, _plain(models), by]
        case Update():
            return ["update", *encode_update(job)]
        case _:
            raise AssertionError(f"{job} is not a job")


def decode_job(data: list[Any]) -> PeerJob:
    """The job that `encode_job` turned into plain data."""
    what, *values = data
    if what == "compare":
        return Compare(_refs(values[0]), values[1])
    if what == "update":
        return decode_update(values)
    if what == "blend":
        return decode_blend(values)
    if what == "drop":
        (model,) = _refs(values[:1])
        return Drop(model, values[1])
    name, when, *query = values
    return Ask(name, _query(query), when)


def _query(data: list[Any]) -> Query:
    match data:
        case []:
            return Counts()
        case ["verdicts"]:
            return Verdicts()
        case [models, by]:
            return Distances(_refs(models), by)
        case _:
            models, beside, *how = data
            return Losses(_refs(models), _refs(beside), *how)


def _plain(models: tuple[ModelRef, ...]) -> list[list[int]]:
    return [[ref.owner, ref.version] for ref in models]


def _refs(models: list[list[int]]) -> tuple[ModelRef, ...]:
    return tuple(ModelRef(PeerId(owner), version) for owner, version in models)

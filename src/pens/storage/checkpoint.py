# SPDX-License-Identifier: Apache-2.0
"""A checkpoint: the whole state of a run or of a real peer, as one file that is replaced as a whole.

The file has tensors, the other state as JSON among them, and in its metadata the version of this form and a checksum of
everything else. So a file that is torn, or in which a single bit has changed, is refused: nobody goes on with a model
that a disk has damaged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

from pens.errors import RunDirError
from pens.storage.files import DISK, Disk, replace_file

CHECKPOINT_FORMAT = 7
STATE = "state as JSON"
_UNREADABLE = (OSError, safetensors.SafetensorError, ValueError, TypeError, LookupError, AttributeError, RuntimeError)
"""What reading a damaged file of tensors raises."""


class Checkpoint:
    """The checkpoint in one place."""

    def __init__(self, path: Path, remedy: str, disk: Disk = DISK) -> None:
        """`remedy`: the end of the message for a file that cannot be used, which says what to do."""
        self.path, self._remedy, self._disk = path, remedy, disk

    def save(self, state: bytes, tensors: Mapping[str, Tensor]) -> None:
        """Replace the file. `state`: JSON, as `encode_state` makes it."""
        contents = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
        contents[STATE] = torch.from_numpy(np.frombuffer(state, np.uint8).copy())  # metadata has a bounded size
        about = {"format": str(CHECKPOINT_FORMAT), "sum": _sum_of(contents)}
        replace_file(self.path, lambda path: save_file(contents, path, about), disk=self._disk)

    def load(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The state and its tensors; None where there is no file."""
        if not self.path.is_file():
            return None
        tensors, about = self._read()
        if about.get("format") != str(CHECKPOINT_FORMAT):
            raise self._refused(
                f"its form is {about.get('format', 'not told')!r}, and this version of pens reads form "
                f"{CHECKPOINT_FORMAT}: it was written by another version of pens, or is damaged"
            )
        if about.get("sum") != _sum_of(tensors):
            raise self._refused("it is damaged: its checksum is not that of its content")
        try:
            state = json.loads(tensors.pop(STATE).numpy().tobytes())
        except (KeyError, ValueError, RecursionError) as error:
            raise self._refused(f"holds no state: {error!r}") from None
        if not isinstance(state, dict):
            raise self._refused("holds no state")
        return state, tensors

    def seconds_spent(self) -> float:
        """The number "seconds" of the state, without reading the tensors; 0 where there is no file."""
        if not self.path.is_file():
            return 0.0
        try:
            with opened(self.path, self._remedy) as file:
                state = json.loads(file.get_tensor(STATE).numpy().tobytes())
            return float(state["seconds"])
        except (LookupError, ValueError, TypeError, safetensors.SafetensorError) as error:
            raise self._refused(f"holds no state: {error!r}") from None

    def forget(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        with opened(self.path, self._remedy) as file:
            try:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return tensors, dict(file.metadata() or {})
            except _UNREADABLE as error:
                raise self._refused(f"cannot be read: {error!r}") from None

    def _refused(self, why: str) -> RunDirError:
        return RunDirError(f"{self.path}: {why}{self._remedy}")


def encode_state(data: Mapping[str, Any]) -> bytes:
    """The state of this moment as JSON: what it was made from may change afterwards."""
    return json.dumps(data).encode()


@contextmanager
def opened(path: Path, remedy: str) -> Iterator[Any]:
    """A file of tensors, to be read. `remedy`: the end of the message for a file that cannot be."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            yield file
    except (OSError, safetensors.SafetensorError) as error:
        raise RunDirError(f"{path}: cannot be read: {error}{remedy}") from None


def _sum_of(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of the names, types, shapes and bytes of tensors."""
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()

# SPDX-License-Identifier: Apache-2.0
"""Atomic files: each is written beside its place and then moved there. Among them are JSON objects.

Theory of operation. A file is replaced in four steps: write beside its place, bring that to the disk, move it to its
place, bring the folder to the disk. A process that ends before the move leaves the old file and a stray one; after the
move it leaves the new file. The steps are those of a `Disk`, so that tests can end a process, fill the disk or cut the
power at each of them.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import safetensors

from pens.errors import DiskError, RunDirError, may_pass


class Disk:
    """The steps in which files are replaced, carried out by the operating system."""

    def write(self, path: Path, write: Callable[[Path], object]) -> None:
        """Let `write` make the file."""
        write(path)

    def sync(self, path: Path) -> None:
        """Bring a file, or the names in a folder, to the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def move(self, path: Path, target: Path) -> None:
        """Move a file to its place, in which another one may be."""
        path.replace(target)

    def remove(self, path: Path) -> None:
        """Delete a file if it is there."""
        path.unlink(missing_ok=True)


DISK = Disk()


def replace_file(path: Path, write: Callable[[Path], object], *, durable: bool = True, disk: Disk = DISK) -> None:
    """Write a file beside its place and move it there. `durable`: on return, the file is on disk under its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        for stray in path.parent.glob(f".{path.name}.*"):  # left by a process that was killed while writing
            disk.remove(stray)
        try:
            disk.write(temporary, write)
            if durable:
                disk.sync(temporary)
            disk.move(temporary, path)
            if durable:
                disk.sync(path.parent)
        finally:
            disk.remove(temporary)
    except (OSError, safetensors.SafetensorError, pa.ArrowException) as error:
        raise not_written(path, error) from None


def remove_file(path: Path, disk: Disk = DISK) -> None:
    """Delete a file if it is there."""
    try:
        disk.remove(path)
    except OSError as error:
        raise not_written(path, error) from None


def remove_strays(folder: Path, disk: Disk = DISK) -> None:
    """Delete what killed processes left beside files of this folder; only for a process that has it for itself.

    On a full disk these may take the room that the first file of the next process needs.
    """
    for stray in folder.glob(".*.*"):
        if re.fullmatch(r"\..+\.\d+", stray.name) and stray.is_file():
            disk.remove(stray)


def not_written(path: Path, error: Exception) -> RunDirError:
    """The error for a file or folder that cannot be written: a `DiskError` where that may pass by itself."""
    text = str(error)
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (told := re.search(r"os error (\d+)", text)):  # safetensors writes in Rust
        number = int(told[1])
    if not may_pass(number):
        return RunDirError(f"{path}: cannot be written: {text}")
    remedy = "make room on that disk" if number in (errno.ENOSPC, errno.EDQUOT) else "see that the disk works"
    return DiskError(f"{path}: cannot be written: {text}: {remedy}, and start again: what was written before is whole")


def write_json(path: Path, data: Mapping[str, Any], *, durable: bool = True, disk: Disk = DISK) -> None:
    """Write a JSON object, indented for human readers."""
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    replace_file(path, lambda p: p.write_text(text, encoding="utf-8"), durable=durable, disk=disk)


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read a JSON object. `remedy`: the end of the message for a damaged file, which says what to do."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("not a JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise RunDirError(f"{path}: cannot be read: {error}{remedy}") from None
    return data

# SPDX-License-Identifier: Apache-2.0
"""Disks on which something goes wrong at a step of a write: the process ends, the disk is full, or the power goes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pens.storage.files import Disk

Fault = Literal["killed", "torn", "full", "power cut"]
FAULTS: tuple[Fault, ...] = ("killed", "torn", "full", "power cut")


class Killed(BaseException):
    """The process is no more."""


class FaultyDisk(Disk):
    """Something goes wrong before the step of one number, or, with "torn", in the middle of it.

    After a power cut, what was not brought to the disk is lost: a name whose folder was not synced is the old file
    again, and a file whose content was not synced is cut in half, however long ago it was moved to its place.
    """

    def __init__(self, at: int | None = None, fault: Fault = "killed") -> None:
        """`at`: None, nothing ever goes wrong, and steps are counted."""
        self.at, self.fault, self.steps = at, fault, 0
        self.told: list[str] = []
        self._dead = False
        self._synced: set[Path] = set()
        self._pending: dict[Path, tuple[bytes | None, bool]] = {}
        """Files that the power may take: what was there before, and whether the new content is on the disk."""

    def write(self, path: Path, write: Callable[[Path], object]) -> None:
        self._synced.discard(path)
        if self._is_due(f"write {path.name}"):
            write(path)
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            self._fail()
        super().write(path, write)

    def sync(self, path: Path) -> None:
        if self._is_due(f"sync {path.name}"):
            self._fail()
        super().sync(path)
        if path.is_dir():
            self._pending = {file: kept for file, kept in self._pending.items() if not kept[1]}
        else:
            self._synced.add(path)

    def move(self, path: Path, target: Path) -> None:
        if self._is_due(f"move {target.name}"):
            if self.fault == "torn":
                super().move(path, target)
            self._fail()
        before = target.read_bytes() if target.exists() else None
        super().move(path, target)
        self._pending[target] = before, path in self._synced

    def remove(self, path: Path) -> None:
        if self._dead:
            raise Killed
        super().remove(path)

    def _is_due(self, step: str) -> bool:
        if self._dead:
            raise Killed
        self.told.append(step)
        self.steps += 1
        return self.steps - 1 == self.at

    def _fail(self) -> None:
        if self.fault == "full":
            self.at = None
            raise OSError(errno.ENOSPC, "No space left on device")
        self._dead = True
        if self.fault == "power cut":
            for path, (before, synced) in self._pending.items():
                if not synced:
                    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
                elif before is None:
                    path.unlink()
                else:
                    path.write_bytes(before)
        raise Killed

# SPDX-License-Identifier: Apache-2.0
"""Notices that files have changed: by looking, so that it works on every file system and in every container."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_Seen = tuple[tuple[int, int, int] | None, ...]


class FileWatch:
    """Several files that belong together. A change counts once they have stayed as they are from one look to the next,
    so that nobody reads them while they are being copied."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._used = self._last = self._look()

    def has_changed(self) -> bool:
        """Whether the files are others than when this last said so."""
        now = self._look()
        is_settled, self._last = now == self._last, now
        if not is_settled or now == self._used:
            return False
        self._used = now
        return True

    def _look(self) -> _Seen:
        return tuple(map(_stat, self._paths))


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino

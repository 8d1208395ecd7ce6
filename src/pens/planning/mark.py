# SPDX-License-Identifier: Apache-2.0
"""The mark of a folder: a small file that says which command made it, so that no command writes into another's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pens.errors import RunDirError


@dataclass(frozen=True)
class Mark:
    """The mark of one command."""

    folder: Path
    command: str

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.command}.json"

    @property
    def is_there(self) -> bool:
        """Whether the folder was made by the command."""
        return self._file.is_file()

    def check(self) -> None:
        """Refuse a folder that holds something else. Writes nothing."""
        if self.folder.exists() and not self.folder.is_dir():
            raise RunDirError(f"{self.folder} is a file: choose another --out")
        if self.folder.is_dir() and any(self.folder.iterdir()) and not self.is_there:
            raise RunDirError(
                f"{self.folder} is not empty and was not made by pens {self.command}: choose another --out"
            )

    def write(self) -> None:
        """Make the folder, and mark it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps({"format": 1, "made_by": f"pens {self.command}"}) + "\n")
        except OSError as error:
            raise RunDirError(f"{self.folder}: cannot be written: {error.strerror or error}") from None

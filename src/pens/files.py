"""Files that are whole at any moment: written beside their place, and then moved there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import safetensors

from pens.errors import RunDirError


def replace_file(path: Path, write: Callable[[Path], object], *, durable: bool = True) -> None:
    """Write a file beside its place and move it there. `durable`: it is on disk, under its name, when this returns."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    for stray in path.parent.glob(f".{path.name}.*"):  # of a process that was killed while it wrote
        stray.unlink(missing_ok=True)
    try:
        write(temporary)
        if durable:
            _sync(temporary)
        temporary.replace(path)
        if durable:
            _sync(path.parent)
    except (OSError, safetensors.SafetensorError, pa.ArrowException) as error:
        raise RunDirError(f"{path}: cannot be written: {error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

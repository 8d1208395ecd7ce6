# SPDX-License-Identifier: Apache-2.0
"""Atomic files: each is written beside its place and then moved there. Among them are JSON objects."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import safetensors

from pens.errors import RunDirError


def replace_file(path: Path, write: Callable[[Path], object], *, durable: bool = True) -> None:
    """Write a file beside its place and move it there. `durable`: on return, the file is on disk under its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    for stray in path.parent.glob(f".{path.name}.*"):  # left by a process that was killed while writing
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


def write_json(path: Path, data: Mapping[str, Any], *, durable: bool = True) -> None:
    """Write a JSON object, indented for human readers."""
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    replace_file(path, lambda p: p.write_text(text, encoding="utf-8"), durable=durable)


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Read a JSON object. `remedy`: the end of the message for a damaged file, which says what to do."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("not a JSON object")
    except (OSError, ValueError) as error:
        raise RunDirError(f"{path}: cannot be read: {error}{remedy}") from None
    return data


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

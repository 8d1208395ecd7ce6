# SPDX-License-Identifier: Apache-2.0
"""Reads the two file formats: idx (Fashion-MNIST) and CIFAR-10's binary batches, plain or packed with gzip or xz.

A file is read whole and checked before it is used. Its header (idx) or its record size (CIFAR-10) says how long it
should be, so a truncated file is always noticed. The packed forms carry checksums of their own, and a file of exactly
the published length is compared with the published content.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import struct
import zlib
from pathlib import Path

import numpy as np

from pens.data.samples import Array, Samples
from pens.errors import DataCorrupt

SUFFIXES = ("", ".gz", ".xz")


def read_unpacked(path: Path) -> bytes:
    """Read a file, and unpack it if its name ends in .gz or .xz."""
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            return gzip.decompress(raw)
        if path.suffix == ".xz":
            return lzma.decompress(raw)
        return raw
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataCorrupt(f"{path}: cannot be unpacked ({error}): delete it and fetch it again") from None


def check_published(path: Path, content: bytes, size: int, sha256: str) -> None:
    """Refuse a file that has the published length, but not the published content."""
    if len(content) == size and hashlib.sha256(content).hexdigest() != sha256:
        raise DataCorrupt(f"{path}: its content is damaged (SHA-256 differs): delete it and fetch it again")


def parse_idx(path: Path, content: bytes, dimensions: int) -> Array:
    """Parse an array of unsigned bytes in idx format: magic number, sizes (big-endian), data."""
    header = 4 + 4 * dimensions
    if len(content) < header or content[:4] != bytes([0, 0, 8, dimensions]):
        raise DataCorrupt(
            f"{path}: not an idx file of unsigned bytes with {dimensions} dimension{'s' if dimensions > 1 else ''}: "
            "delete it and fetch it again"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    expected = header + int(np.prod(shape, dtype=np.int64))
    if len(content) != expected:
        raise DataCorrupt(
            f"{path}: {len(content):,} bytes, but its header promises {expected:,}: "
            "the file is truncated or damaged, delete it and fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def parse_cifar_batch(path: Path, content: bytes) -> Samples:
    """Parse a file of CIFAR-10's binary version: records of one label byte and 3 × 32 × 32 image bytes."""
    record = 1 + 3 * 32 * 32
    if not content or len(content) % record:
        raise DataCorrupt(
            f"{path}: {len(content):,} bytes is not a whole number of {record}-byte records: "
            "the file is truncated or damaged, delete it and fetch it again"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, record)
    return Samples(records[:, 1:].reshape(-1, 3, 32, 32), checked_labels(path, records[:, 0]))


def checked_labels(path: Path, labels: Array) -> Array:
    """Convert labels to int64, and refuse any that is not one of the ten classes."""
    if labels.size and labels.max() > 9:
        raise DataCorrupt(f"{path}: label {labels.max()} is not one of the ten classes 0 to 9: the file is damaged")
    return labels.astype(np.int64)

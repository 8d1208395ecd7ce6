# SPDX-License-Identifier: Apache-2.0
"""Files that peers of other organisations wrote, read within bounds: a small file must not fill the memory.

A few kilobytes of Parquet can stand for billions of equal rows, and one text for a text in each of them; JSON can nest
without end, and a file of any size can be all holes. So each file is measured before it is read, a table by what its
metadata say: rows, columns, types, and a compression that cannot make much of little (Snappy at most some twentyfold).
Columns of texts stay a list of different texts and an index for each row. All texts are made printable.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.torch import load_file
from torch import Tensor

from pens.data.samples import Array
from pens.printable import printable, printable_tree

_JSON_BYTES = 32 << 20
_TABLE_BYTES = 64 << 20
_UNPACKED_BYTES = 512 << 20
_ROWS = 2_000_000
_COLUMNS = 64
_ROW_GROUPS = 4096
_MODEL_BYTES = 2 << 30
_MODEL_HEADER_BYTES = 4 << 20
_LONGEST_TEXT = 1000  # characters
_CODECS = ("UNCOMPRESSED", "SNAPPY")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; ValueError if it is not one, or too large."""
    _check_size(path, _JSON_BYTES)
    try:
        data = printable_tree(json.loads(path.read_text(encoding="utf-8")), _LONGEST_TEXT)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data


def read_model(path: Path) -> dict[str, Tensor]:
    """The tensors in a safetensors file; ValueError if the file, or its header, is too large."""
    size = _check_size(path, _MODEL_BYTES)
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
    if header > min(size, _MODEL_HEADER_BYTES):
        raise ValueError(f"its header has {header} bytes, but at most {_MODEL_HEADER_BYTES} are read")
    return load_file(path)


def read_table(path: Path) -> dict[str, Array]:
    """The columns of a Parquet file; ValueError if they would take too much memory, or are no numbers and texts."""
    _check_size(path, _TABLE_BYTES)
    data = pa.BufferReader(path.read_bytes())  # at once: a running peer replaces the file
    found = pq.ParquetFile(data, thrift_string_size_limit=_JSON_BYTES, thrift_container_size_limit=1_000_000)
    _check_table(found.metadata)
    texts = [field.name for field in found.schema_arrow if _is_text(field.type)]
    others = [field for field in found.schema_arrow if field.name not in texts and not _is_number(field.type)]
    if others:
        raise ValueError(f"column {printable(others[0].name)} is of type {printable(others[0].type)}")
    table = pq.ParquetFile(data, read_dictionary=texts).read(use_threads=False)
    return {printable(name): _values(table[name]) for name in table.column_names}


def _check_size(path: Path, most: int) -> int:
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise ValueError("not a file")
    if about.st_size > most:
        raise ValueError(f"it has {about.st_size} bytes, but at most {most} are read")
    return about.st_size


def _check_table(about: pq.FileMetaData) -> None:
    """Refuse what would take too much memory, by the metadata and those of each part, which may contradict them."""
    if about.num_columns > _COLUMNS or about.num_row_groups > _ROW_GROUPS:
        raise ValueError(
            f"it has {about.num_columns} columns in {about.num_row_groups} parts, "
            f"but at most {_COLUMNS} in {_ROW_GROUPS} are read"
        )
    for column in map(about.schema.column, range(about.num_columns)):
        if column.max_repetition_level or column.max_definition_level > 1:
            raise ValueError(f"column {printable(column.name)} nests")
    groups = [about.row_group(n) for n in range(about.num_row_groups)]
    rows = max(about.num_rows, sum(group.num_rows for group in groups))
    if rows > _ROWS:
        raise ValueError(f"it has {rows} rows, but at most {_ROWS} are read")
    columns = [group.column(n) for group in groups for n in range(about.num_columns)]
    unpacked = sum(column.total_uncompressed_size for column in columns)
    if unpacked > _UNPACKED_BYTES or sum(column.num_values for column in columns) > rows * about.num_columns:
        raise ValueError(f"it has {unpacked} bytes when unpacked, but at most {_UNPACKED_BYTES} are read")
    for column in columns:
        if column.compression not in _CODECS:
            raise ValueError(f"it is compressed by {printable(column.compression)}, but peers write {_CODECS[1]}")


def _is_text(type_: pa.DataType) -> bool:
    value = type_.value_type if pa.types.is_dictionary(type_) else type_
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value))


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_))


def _values(column: pa.ChunkedArray) -> Array:
    if column.null_count:
        raise ValueError("it has rows without a value")
    if not pa.types.is_dictionary(column.type):
        return np.asarray(column.to_numpy())
    rows = [_texts(chunk) for chunk in column.chunks]
    return np.concatenate(rows) if rows else np.array([], object)


def _texts(chunk: pa.DictionaryArray) -> Array:
    """The texts of some rows. All rows with the same text share it."""
    if max(map(len, different := chunk.dictionary.to_pylist()), default=0) > _LONGEST_TEXT:
        raise ValueError(f"it has a text of more than {_LONGEST_TEXT} characters")
    shown = np.array([printable(text, _LONGEST_TEXT) for text in different], object)
    rows: Array = np.take(shown, chunk.indices.to_numpy())
    return rows

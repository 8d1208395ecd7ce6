# SPDX-License-Identifier: Apache-2.0
"""Tables of own data: tables of files and DataFrames, a row for each sample, a column that names its peer.

All columns are features but those that name the peer, the target, the part (`split`: train, val or test) and the
cluster, and those that are to be ignored. Features are numbers or truth values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pens.data.reading import Parts, Raw, Reading, numbered
from pens.data.samples import Array
from pens.errors import DataError, suggest

SPLIT_COLUMN, CLUSTER_COLUMN = "split", "cluster"
_NAMELESS = re.compile(r"Unnamed: \d+")
_NUMBERS = (pa.types.is_floating, pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal)
_PARTS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def as_arrow(table: Any) -> pa.Table:
    """A pyarrow Table of any table of columns, each with a name of its own."""
    if type(table).__name__ == "LazyFrame":  # of polars
        table = table.collect()
    found = table if isinstance(table, pa.Table) else table.to_arrow() if hasattr(table, "to_arrow") else None
    names = list(map(str, table.columns)) if found is None else found.column_names
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"the table has {names.count(twice[0])} columns {twice[0]!r}: give each a name of its own")
    return _of_pandas(table) if found is None else found


def _of_pandas(frame: Any) -> pa.Table:
    """A DataFrame, whose columns of values of several types become columns of texts."""
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except pa.ArrowException:
        objects = [name for name in frame.columns if frame[name].dtype == object]
        texts = {
            name: frame[name].map(lambda value: value if value is None else str(value), na_action="ignore")
            for name in objects
        }
        return pa.Table.from_pandas(frame.assign(**texts), preserve_index=False)


def peers_of_table(table: Any, reading: Reading, whose: str | None = None) -> Iterator[tuple[str, Parts]]:
    """The peers of a table in the order in which they come first. `whose`: the peer of all rows, where no column says
    it."""
    table = as_arrow(table)
    if whose is None:
        _require(table, reading.peer, "peers", "peer_column")
        codes, names = _codes(table, reading.peer)
    else:
        codes, names = np.zeros(table.num_rows, np.int64), [whose]
    raw = _columns(table, reading)
    parts = _parts_of_rows(table)
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names) + 1))
    for number, name in enumerate(names):
        rows = order[ends[number] : ends[number + 1]]
        yield name, {part: raw.take(some) for part, some in _divided(parts, rows) if len(some)}


def columns_of_table(table: Any, reading: Reading, name: str) -> Raw:
    """Features and targets of one peer's table; a column that names the peer is no feature."""
    return _columns(as_arrow(table), reading, name)


def features_of_table(table: Any, columns: Sequence[str]) -> Array:
    """The features of new samples, found by the names that they have in the training data; other columns do not matter.
    [row, feature]"""
    table = as_arrow(table)
    if missing := [name for name in columns if name not in table.column_names]:
        raise DataError(
            f"the table has no column {missing[0]!r}, on which the network was trained ({len(missing)} of "
            f"{len(columns)} features are missing): its columns are {_listed(table)}. Add what is missing"
            f"{suggest(missing[0], table.column_names)}"
        )
    return _stacked(table, columns, None)


def clusters_of_table(table: pa.Table, reading: Reading) -> dict[str, str | None] | None:
    """The cluster of each peer, where a column says it."""
    if CLUSTER_COLUMN not in table.column_names:
        return None
    found: dict[str, str | None] = {}
    pairs = table.select([reading.peer, CLUSTER_COLUMN]).group_by([reading.peer, CLUSTER_COLUMN]).aggregate([])
    for peer, cluster in zip(*(pairs[name].to_pylist() for name in (reading.peer, CLUSTER_COLUMN)), strict=True):
        if str(peer) in found:
            raise DataError(f"peer {peer} is in the clusters {found[str(peer)]} and {cluster}: give each peer one")
        found[str(peer)] = None if cluster is None or cluster == "" else str(cluster)
    return found


# --- columns ----------------------------------------------------------------------------------------------------------


def _require(table: pa.Table, column: str, what: str, setting: str) -> None:
    if column not in table.column_names:
        raise DataError(
            f"the table has no column {column!r} of {what}: its columns are {_listed(table)}. Set {setting} "
            f"to the right one{suggest(column, table.column_names)}"
        )


def _listed(table: pa.Table) -> str:
    return ", ".join(table.column_names[:12]) + (" …" if len(table.column_names) > 12 else "")


def _codes(table: pa.Table, column: str) -> tuple[Array, list[str]]:
    """A number for each row, and what the numbers mean, in the order of rows."""
    encoded = table[column].combine_chunks().dictionary_encode()
    if (row := _first_empty(table[column])) is not None:
        raise DataError(f"row {row + 1} has no {column}: fill it in, or leave the row out")
    return encoded.indices.to_numpy(), [str(one) for one in encoded.dictionary.to_pylist()]


def _columns(table: pa.Table, reading: Reading, whose: str = "") -> Raw:
    targets = (reading.target,) if isinstance(reading.target, str) else reading.target
    for target in targets:
        _require(table, target, "targets", "target_column")
    for ignored in reading.ignore:
        _require(table, ignored, "no use", "ignore_columns")
    apart = {reading.peer, SPLIT_COLUMN, CLUSTER_COLUMN, *targets, *reading.ignore}
    features = [name for name in table.column_names if name not in apart]
    if not features:
        raise DataError(f"the table has the columns {', '.join(table.column_names)}, and none is left as a feature")
    x = _stacked(table, [] if reading.places else features, reading, whose)
    y = [_target(table, name, reading, whose) for name in targets]
    whole = y[0] if isinstance(reading.target, str) else np.stack(y, 1)
    raw = Raw(x, whole, np.arange(table.num_rows), tuple(features))
    return numbered(raw) if reading.places else raw


def _stacked(table: pa.Table, features: Sequence[str], reading: Reading | None, whose: str = "") -> Array:
    """Columns as features.  [row, feature]"""
    x = np.empty((table.num_rows, len(features)), np.float32)
    for place, name in enumerate(features):
        x[:, place] = _feature(table, name, reading, whose)
    return x


def _feature(table: pa.Table, name: str, reading: Reading | None, whose: str) -> Array:
    """A column of numbers. `reading`: None where a network was trained on the column, so that it cannot be left out."""
    if _NAMELESS.fullmatch(name):
        raise DataError(
            f"column {1 + table.column_names.index(name)} has no name, as pandas writes its index unless index=False: "
            f"name it, or set ignore_columns='{name}'"
        )
    column = table[name]
    if not any(of(column.type) for of in _NUMBERS):
        row, value = _first_odd(column)
        names_peers = reading and not whose and reading.peer not in table.column_names
        further = f"; if it names the peers, set peer_column={name}" if names_peers else ""
        remedy = f", or set ignore_columns={name}{further}" if reading else ""
        raise DataError(
            f"column {name!r} is a feature, but holds {_shown(value)} in {_where(table, row, reading, whose)}: "
            f"features are numbers; turn the column into numbers{remedy}"
        )
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise DataError(
            f"column {name!r} is empty in {_where(table, row, reading, whose)} ({_rows(column.null_count)} "
            "in all): fill them in, for instance with the column's mean, or leave the rows out"
        )
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    values: Array = column.to_numpy()
    wrong = ~(np.abs(values) <= np.finfo(np.float32).max) if values.dtype.kind == "f" else np.zeros(0, bool)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"column {name!r} holds {values[row]} in {_where(table, row, reading, whose)} ({_rows(int(wrong.sum()))} "
            "in all): replace it by a finite number, for instance the column's mean, or leave the rows out"
        )
    return values


def _target(table: pa.Table, name: str, reading: Reading, whose: str) -> Array:
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if (row := _first_empty(column)) is not None:
        raise DataError(
            f"{_where(table, row, reading, whose)} has no {name}, the target: fill it in, or leave the row out"
        )
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        if reading.numbers:
            row, value = _first_odd(column)
            raise DataError(
                f"column {name!r} is the target, a number, but holds {_shown(value)} in "
                f"{_where(table, row, reading, whose)}: turn it into numbers, or set task = 'classification'"
            )
        return np.asarray(column.to_pylist(), str)
    values: Array = column.to_numpy()
    return values


def _first_empty(column: pa.ChunkedArray) -> int | None:
    """The first row in which a column holds nothing, or an empty text; None: there is none."""
    empty = pc.is_null(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        empty = pc.or_(empty, pc.fill_null(pc.equal(column, ""), False))
    row: int = pc.index(empty, True).as_py()
    return None if row < 0 else row


def _first_odd(column: pa.ChunkedArray) -> tuple[int, Any]:
    """The first row of a column that holds no number, and what it holds."""
    for row, value in enumerate(column.to_pylist()):
        try:
            float(value)
        except (TypeError, ValueError):
            return row, value
    return 0, column[0].as_py()


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _shown(value: Any) -> str:
    return repr(value if isinstance(value, str) else str(value))[:60]


def _where(table: pa.Table, row: int, reading: Reading | None, whose: str) -> str:
    """row 17 (peer clinic-a): rows are counted from 1, below the header."""
    column = reading.peer if reading and reading.peer in table.column_names else ""
    peer = whose or (str(table[column][row].as_py()) if column else "")
    return f"row {row + 1}{f' (peer {peer})' if peer else ''}"


# --- parts ------------------------------------------------------------------------------------------------------------


def _parts_of_rows(table: pa.Table) -> Array | None:
    """The part of each row, where a column says it."""
    if SPLIT_COLUMN not in table.column_names:
        return None
    codes, names = _codes(table, SPLIT_COLUMN)
    if unknown := [number for number, name in enumerate(names) if name.strip().lower() not in _PARTS]:
        row = int((codes == unknown[0]).argmax())
        raise DataError(
            f"column {SPLIT_COLUMN!r} holds {names[unknown[0]]!r} in row {row + 1}: parts are train, val and test; "
            "name the column otherwise if it is a feature"
        )
    parts: Array = np.array([_PARTS[name.strip().lower()] for name in names])[codes]
    return parts


def _divided(parts: Array | None, rows: Array) -> Sequence[tuple[str, Array]]:
    if parts is None:
        return [("train", rows)]
    return [(part, rows[parts[rows] == part]) for part in ("train", "val", "test")]

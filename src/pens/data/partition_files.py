# SPDX-License-Identifier: Apache-2.0
"""Files that say which samples each peer holds, so that splits go from one program to another.

split.json       {"clinic-a": [0, 7, 4], …}, or {"clinic-a": {"train": [0, 7], "val": [4], "test": [9], "cluster": "x"}}
split.parquet    columns peer and index, and split (train, val, test) and cluster where they are known

Indices count the samples of the source from 0: the rows of a table, the entries of an archive, or the training images
and then the test images of a data set.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from pens.data.reading import PART_NAMES, Parts, Raw
from pens.data.samples import Array
from pens.errors import DataCorrupt, DataError, DataNotFound

_SUFFIXES = (".json", ".parquet")
_COLUMNS = ("peer", "index", "split", "cluster")


class Share(NamedTuple):
    """Which samples a peer holds, and its cluster where it is known."""

    parts: dict[str, Array]
    """Indices of train, and of val and test where they are given."""
    cluster: str | None = None


def hand_out(path: Path, whole: Raw) -> tuple[dict[str, Parts], dict[str, str | None] | None]:
    """Each peer's samples by a file, and its cluster; None: no cluster is known."""
    shares = read_shares(path)
    given: dict[str, Parts] = {}
    for name, share in shares.items():
        _check_indices(path, name, share, len(whole.y))
        given[name] = {part: whole.take(index) for part, index in share.parts.items()}
    clusters = {name: share.cluster for name, share in shares.items()}
    return given, clusters if any(of is not None for of in clusters.values()) else None


def _check_indices(path: Path, name: str, share: Share, total: int) -> None:
    """Refuse indices of samples that are not there, and samples that a peer would both train and be tested on."""
    index = np.concatenate([np.zeros(0, np.int64), *share.parts.values()])
    if len(wrong := index[(index < 0) | (index >= total)]):
        raise DataError(
            f"{path}: peer {name} has the index {wrong[0]}, but the source has {total:,} samples, numbered from 0: "
            "name the source that this file belongs to"
        )
    values, counts = np.unique(index, return_counts=True)
    if (counts > 1).any():
        raise DataError(f"{path}: peer {name} has the index {values[counts > 1][0]} twice: leave it out once")


# --- read -------------------------------------------------------------------------------------------------------------


def read_shares(path: Path) -> dict[str, Share]:
    """What a file says, by the peers' names."""
    if path.suffix.lower() not in _SUFFIXES:
        raise DataError(f"{path}: a file of indices ends in {' or '.join(_SUFFIXES)}")
    if not path.is_file():
        raise DataNotFound(f"{path}: there is no such file")
    try:
        found = _from_parquet(path) if path.suffix.lower() == ".parquet" else _from_json(path)
    except (pa.ArrowException, OSError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataCorrupt(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
    if not found:
        raise DataError(f"{path}: names no peer")
    return found


def _from_json(path: Path) -> dict[str, Share]:
    tree = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(tree, list):
        tree = {f"peer-{i}": indices for i, indices in enumerate(tree)}
    if not isinstance(tree, Mapping):
        raise DataError(f"{path}: holds a {type(tree).__name__}: expected peers by name, {{peer: [indices]}}")
    return {name: _share(path, name, of) for name, of in tree.items()}


def _share(path: Path, name: str, of: Any) -> Share:
    if not isinstance(of, Mapping):
        return Share({"train": _indices(path, name, of)})
    if unknown := [key for key in of if key not in (*PART_NAMES, "cluster")]:
        raise DataError(f"{path}: peer {name} has {unknown[0]!r}: expected {', '.join(PART_NAMES)} or cluster")
    cluster = of.get("cluster")
    parts = {part: _indices(path, name, of[part]) for part in PART_NAMES if of.get(part) is not None}
    return Share(parts, None if cluster is None else str(cluster))


def _indices(path: Path, name: str, of: Any) -> Array:
    """Whole numbers in a list."""
    index = np.asarray(of if isinstance(of, list) and not any(isinstance(one, list) for one in of) else [str(of)])
    if len(index) and index.dtype.kind not in "iu":
        raise DataError(
            f"{path}: peer {name} has {str(of)[:60]}: expected a list of whole numbers, the samples' indices"
        )
    return index.astype(np.int64)


def _from_parquet(path: Path) -> dict[str, Share]:
    table = pyarrow.parquet.read_table(path)
    if missing := [name for name in ("peer", "index") if name not in table.column_names]:
        raise DataError(f"{path}: has no column {missing[0]!r}: its columns are {', '.join(table.column_names)}")
    columns = {name: table[name].to_pylist() for name in _COLUMNS if name in table.column_names}
    tree: dict[str, dict[str, Any]] = {}
    for row, peer in enumerate(columns["peer"]):
        of = tree.setdefault(str(peer), {})
        of.setdefault(columns["split"][row] if "split" in columns else "train", []).append(columns["index"][row])
        if "cluster" in columns:
            of["cluster"] = columns["cluster"][row]
    return {name: _share(path, name, of) for name, of in tree.items()}


# --- write ------------------------------------------------------------------------------------------------------------


def write_shares(path: Path, shares: Mapping[str, Share]) -> None:
    """Write a file that `read_shares` reads."""
    if path.suffix.lower() not in _SUFFIXES:
        raise DataError(f"{path}: a file of indices ends in {' or '.join(_SUFFIXES)}")
    try:
        if path.suffix.lower() == ".parquet":
            pyarrow.parquet.write_table(_as_table(shares), path)
        else:
            lines = (
                f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(_as_tree(of))}" for name, of in shares.items()
            )
            path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror}") from None


def _as_tree(share: Share) -> dict[str, Any]:
    cluster = {} if share.cluster is None else {"cluster": share.cluster}
    return {**{part: index.tolist() for part, index in share.parts.items()}, **cluster}


def _as_table(shares: Mapping[str, Share]) -> pa.Table:
    rows: Iterable[tuple[str, int, str, str | None]] = (
        (name, number, part, of.cluster)
        for name, of in shares.items()
        for part, index in of.parts.items()
        for number in index.tolist()
    )
    columns = list(zip(*rows, strict=True))
    table = pa.table(dict(zip(_COLUMNS, columns, strict=True)))
    return table if any(of.cluster is not None for of in shares.values()) else table.drop_columns(["cluster"])

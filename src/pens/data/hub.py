# SPDX-License-Identifier: Apache-2.0
"""Data sets of the Hugging Face hub, by the library `datasets` (extra `hf`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pens.data.reading import SourceRules
from pens.errors import DataError, DataNotFound, SettingsError

_PARTS = {"train": "train", "validation": "val", "valid": "val", "val": "val", "test": "test"}


def read_hub(name: str, rules: SourceRules) -> Any:
    """A data set's parts as one table, or, where its inputs are arrays or images, as arrays, by peer if a column names
    peers."""
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise SettingsError(f"source = 'hf:{name}' needs the library datasets: pip install 'pens-fl[hf]'") from None
    try:
        found = datasets.load_from_disk(name) if Path(name).is_dir() else datasets.load_dataset(name)
    except Exception as error:  # the library raises what its many readers raise
        raise DataNotFound(f"source = 'hf:{name}': {type(error).__name__}: {str(error).splitlines()[0]}") from None
    splits = dict(found) if isinstance(found, dict) else {"train": found}
    known = {part: data for split, data in splits.items() if (part := _PARTS.get(split))}
    if not known:
        raise DataError(
            f"source = 'hf:{name}' has the parts {', '.join(splits)}, and none of train, validation and test"
        )
    arrays = [column for column in next(iter(known.values())).column_names if _is_array(known, column)]
    if arrays:
        return _of_arrays(known, arrays[0], rules)
    tables = [
        data.with_format("arrow")[:].append_column("split", pa.array([part] * len(data)))
        for part, data in known.items()
    ]
    whole = pa.concat_tables(tables)
    return whole if len(known) > 1 else whole.drop_columns(["split"])


def _is_array(parts: dict[str, Any], column: str) -> bool:
    """Whether a column holds images or arrays."""
    value = next(iter(parts.values()))[0][column]
    return hasattr(value, "convert") or (isinstance(value, list) and bool(value))


def _of_arrays(parts: dict[str, Any], column: str, rules: SourceRules) -> Any:
    """Peers by name, with their parts; the parts alone, where no column names the peer."""
    target = rules.reading.target if isinstance(rules.reading.target, str) else rules.reading.target[0]
    read = {part: _arrays(data, column, target) for part, data in parts.items()}
    first = next(iter(parts.values()))
    if rules.reading.peer not in first.column_names:
        return read
    peers: dict[str, dict[str, Any]] = {}
    for part, data in parts.items():
        names = np.array([str(one) for one in data[rules.reading.peer]])
        for name in dict.fromkeys(names.tolist()):
            peers.setdefault(name, {})[part] = tuple(of[names == name] for of in read[part])
    return peers


def _arrays(data: Any, column: str, target: str) -> tuple[Any, Any]:
    if target not in data.column_names:
        raise DataError(
            f"the data set has no column {target!r} of targets: its columns are {', '.join(data.column_names)}. Set "
            "target_column to the right one"
        )
    values = [np.asarray(value.convert("RGB") if hasattr(value, "convert") else value) for value in data[column]]
    x = np.stack(values)
    if x.ndim == 4 and x.dtype == np.uint8:
        x = (x.transpose(0, 3, 1, 2) / np.float32(255)).astype(np.float32)
    return x, np.asarray(data[target])

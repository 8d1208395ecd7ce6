# SPDX-License-Identifier: Apache-2.0
"""Results as columns: Arrow tables, pandas frames, and a representation of one line in place of all numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from pens.data.samples import Array
from pens.errors import MissingPackage

if TYPE_CHECKING:
    import pandas as pd


class Tabular:
    """What consists of columns of equal length."""

    column_types: ClassVar[Mapping[str, pa.DataType]] = {}
    """Of columns in which nothing may be known, so that their values do not tell their type."""

    def columns(self) -> Mapping[str, Any]:
        """The columns by name: arrays, or lists in which None stands for what is not known."""
        return {name: values for name, values in vars(self).items() if values is not None}

    def to_table(self) -> pa.Table:
        """The columns as a pyarrow Table."""
        return pa.table({name: pa.array(v, self.column_types.get(name)) for name, v in self.columns().items()})

    def to_frame(self) -> pd.DataFrame:
        """The columns as a pandas DataFrame, which needs pandas: pip install 'pens-fl[pandas]'."""
        return frame_of(self.to_table())

    def __repr__(self) -> str:
        columns = self.columns()
        rows = len(next(iter(columns.values()), ()))
        return f"{type(self).__name__}({rows:,} row{'' if rows == 1 else 's'}: {', '.join(columns)})"


def frame_of(table: pa.Table) -> pd.DataFrame:
    """A table as a pandas DataFrame; whole numbers stay whole where some are not known."""
    try:
        import pandas as pd
    except ImportError:
        raise MissingPackage(
            "to_frame needs pandas, which is not installed: pip install 'pens-fl[pandas]', or take to_table(), a "
            "pyarrow Table with the same columns"
        ) from None
    columns = {}
    for name in table.column_names:
        column = table[name]
        partly_known = column.null_count and pa.types.is_integer(column.type)
        columns[name] = pd.array(column.to_pylist(), dtype="Int64") if partly_known else column.to_pandas()
    return pd.DataFrame(columns)


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The rows of several parts one after the other. A part that lacks a column has None there."""
    names = dict.fromkeys(name for part in parts for name in part)
    lengths = [len(next(iter(part.values()), ())) for part in parts]
    return {
        name: [value for part, length in zip(parts, lengths, strict=True) for value in _values(part.get(name), length)]
        for name in names
    }


def _values(column: Array | Sequence[Any] | None, length: int) -> Sequence[Any]:
    if column is None:
        return [None] * length
    values: Sequence[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    return values

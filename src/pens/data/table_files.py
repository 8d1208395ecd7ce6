# SPDX-License-Identifier: Apache-2.0
"""Reads files of tables, CSV and Parquet, as other programs write them, and says in which row a file is broken."""

from __future__ import annotations

import codecs
import gzip
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from pens.data.tables import as_arrow
from pens.errors import DataCorrupt, DataError, DataNotFound

SUFFIXES = (".csv", ".tsv", ".parquet")
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)")


def is_table_file(path: Path) -> bool:
    """Whether a file's name is that of a table, compressed or not."""
    return _form(path) in SUFFIXES


def _form(path: Path) -> str:
    """.csv of TABLE.CSV and of table.csv.gz"""
    name = path.name.lower()
    return Path(name.removesuffix(".gz")).suffix


def read_table(path: Path) -> pa.Table:
    """A CSV, TSV or Parquet file."""
    if not path.is_file():
        raise DataNotFound(f"{path}: there is no such file")
    try:
        table = pyarrow.parquet.read_table(path) if _form(path) == ".parquet" else _read_text(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataCorrupt(f"{path}: cannot be read as a table: {_why(error)}") from None
    return _named_columns(path, table)


def _why(error: Exception) -> str:
    """What is wrong with a file, and what to do."""
    said = (str(error).splitlines() or [type(error).__name__])[0].removeprefix("CSV parse error: ")
    if not (found := _RAGGED.match(said)):
        return said
    row, expected, got, text = found.groups()
    return (
        f"row {int(row) - 1} has {got} fields, but the first line names {expected} columns: {text[:80]!r}. Correct the "
        "row, or put texts that hold the dividing sign into quotes"
    )


def _named_columns(path: Path, table: pa.Table) -> pa.Table:
    """A file's columns, each with a name, and some rows. A column without a name gets the one that pandas gives."""
    stripped = [name.strip().removeprefix("\ufeff") for name in table.column_names]
    names = [name or f"Unnamed: {place}" for place, name in enumerate(stripped)]
    if not table.num_rows:
        raise DataError(f"{path}: has the columns {', '.join(names[:8])}, but no rows")
    return as_arrow(table.rename_columns(names))


def _read_text(path: Path) -> pa.Table:
    """A CSV or TSV file. Spaces around texts are no part of them; where semicolons divide the columns, numbers may have
    a decimal comma."""
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        begin = file.read(1 << 16)
    encoding = "utf-16" if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    delimiter = "\t" if _form(path) == ".tsv" else _delimiter(begin.decode(encoding, "replace"))
    tables = [_parsed(path, encoding, delimiter, point) for point in (".," if delimiter == ";" else ".")]
    table = max(tables, key=lambda one: sum(map(pa.types.is_floating, one.schema.types)))
    for name in (
        name for name, of in zip(table.column_names, table.schema.types, strict=True) if pa.types.is_binary(of)
    ):
        raise DataCorrupt(f"{path}: column {name!r} is no text in UTF-8: save the file with the encoding UTF-8")
    for place, of in enumerate(table.schema):
        if pa.types.is_string(of.type):
            table = table.set_column(place, of.name, pc.utf8_trim_whitespace(table.column(place)))
    return table


def _parsed(path: Path, encoding: str, delimiter: str, decimal_point: str, counts_rows: bool = False) -> pa.Table:
    """`counts_rows`: errors say in which row, which takes longer."""
    try:
        return pyarrow.csv.read_csv(
            path,
            pyarrow.csv.ReadOptions(encoding=encoding, use_threads=not counts_rows),
            pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(decimal_point=decimal_point),
        )
    except pa.ArrowInvalid:
        if counts_rows:
            raise
        return _parsed(path, encoding, delimiter, decimal_point, counts_rows=True)


def _delimiter(begin: str) -> str:
    """The sign that divides the names of columns in the first line most often, outside of quotes."""
    first = re.sub(r'"[^"]*"', "", (begin.splitlines() or [""])[0])
    return max((",", ";", "\t", "|"), key=first.count)

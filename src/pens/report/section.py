# SPDX-License-Identifier: Apache-2.0
"""A section of a report: a reader's question, its answer, and the evidence.

A section without data says so, and says how to obtain the data.
"""

from __future__ import annotations

from dataclasses import dataclass

from pens.report.panel import Chart

OLDER = "these runs are of an older version, which did not record it; run them again"


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first cell of each row names the row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    narrow: bool = False
    """Whether the table fits on a phone as it is; otherwise its rows become cards there."""
    wordy: tuple[str, ...] = ()
    """Columns of text, which are aligned to the left."""


@dataclass(frozen=True)
class ReportSection:
    """A question, its answer, and the evidence."""

    name: str
    question: str
    answer: str
    charts: tuple[Chart, ...] = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()
    code: str = ""
    settings: tuple[tuple[str, tuple[tuple[str, str, bool], ...]], ...] = ()
    """(section, ((key, value, whether it differs from the nearest preset), …))"""

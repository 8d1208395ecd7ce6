# SPDX-License-Identifier: Apache-2.0
"""A section of a report: a reader's question, its answer, and what that rests on.

A section that has nothing to show says so, and what would fill it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pens.report.panel import Chart

OLDER = "these runs are older than that record; run them again to have it"


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first of each row names it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    narrow: bool = False
    """Whether it fits on a phone as it is; else its rows become cards there."""
    wordy: tuple[str, ...] = ()
    """Columns of words, which are read from the left."""


@dataclass(frozen=True)
class ReportSection:
    """A question, its answer, and what it rests on."""

    name: str
    question: str
    answer: str
    charts: tuple[Chart, ...] = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()
    code: str = ""
    settings: tuple[tuple[str, tuple[tuple[str, str, bool], ...]], ...] = ()
    """(section, ((key, value, whether it differs from the nearest preset), …))"""

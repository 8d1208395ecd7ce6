"""A section of a report: a reader's question, its answer, and what that rests on. And how numbers are put in words.

A section that has nothing to show says so, and what would fill it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pens.metrics import Interval
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
class Section:
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


# --- words ----------------------------------------------------------------------------------------------------------


def points(value: Interval) -> str:
    """7.0 ± 3.8"""
    half = "" if value.half_width is None else f" ± {100 * value.half_width:.1f}"
    return f"{100 * value.mean:.1f}{half}"


def p_value(value: float | None) -> str:
    """0.031, or < 0.001"""
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def size(amount: float) -> str:
    """320 B, 37.0 kB, 16.7 MB, 1.4 GB"""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= one:
            return f"{amount / one:,.1f} {unit}"
    return f"{amount:.0f} B"


def count(number: int, noun: str) -> str:
    """1 seed, 4 seeds"""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """local, random and pens"""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def low_to_high(values: Sequence[float]) -> str:
    """Fractions as 67.2 to 81.8, in per cent."""
    return f"{100 * min(values):.1f} to {100 * max(values):.1f}"


def setting_text(value: object) -> str:
    """A setting's value, as a reader would write it."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def overlaps(ours: Interval, paper: Interval) -> bool:
    """Whether two intervals overlap or touch; one seed has a point for an interval."""
    return abs(ours.mean - paper.mean) <= (ours.half_width or 0) + (paper.half_width or 0) + 1e-9


def points_apart(ours: Interval, paper: Interval) -> str:
    """How far our mean is from the paper's."""
    return f"{100 * abs(ours.mean - paper.mean):.1f} points {'higher' if ours.mean > paper.mean else 'lower'}"


def agreement_words(ours: Interval, paper: Interval) -> str:
    """Whether they overlap, in words."""
    off = points_apart(ours, paper)
    if ours.half_width is None:
        return f"one seed, {'inside' if overlaps(ours, paper) else f'{off}, outside'} the paper's interval"
    return "the intervals overlap" if overlaps(ours, paper) else f"the intervals do not overlap, {off}"

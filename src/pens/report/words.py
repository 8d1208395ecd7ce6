# SPDX-License-Identifier: Apache-2.0
"""Numbers, times and lists in words, for tables and reports."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pens.measuring.metrics import Interval
from pens.measuring.results import RunResult
from pens.tasks.metric import ACCURACY, Measure


def points(value: Interval) -> str:
    """A difference in points: 7.0 ± 3.8; for two seeds 7.0 (2 seeds: 6.1, 7.9)"""
    return value.percent().replace("-", "−")


def p_value(value: float | None) -> str:
    """A p-value: 0.031, or < 0.001"""
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def size(amount: float) -> str:
    """A number of bytes with its unit: 320 B, 37.0 kB, 16.7 MB, 1.4 GB"""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= one:
            return f"{amount / one:,.1f} {unit}"
    return f"{amount:.0f} B"


def thousands(passes: float | None) -> str:
    """Forward passes in thousands: 12, 3.4, 0.27; – where they are not known"""
    if passes is None:
        return "–"
    value = passes / 1e3
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 or not value else f"{value:.2g}"


def count(number: int, noun: str) -> str:
    """A number with its noun: 1 seed, 4 seeds"""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Names as a list in words: local, random and pens"""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def low_to_high(values: Sequence[float], measure: Measure = ACCURACY) -> str:
    """The range of values, of fractions in per cent: 67.2 to 81.8"""
    return f"{measure.number(min(values))} to {measure.number(max(values))}"


def server_words(runs: Sequence[RunResult]) -> str | None:
    """What the servers of a method received and sent, on average over its runs; None for a method without servers."""
    told = [run.servers for run in runs if run.servers]
    if not told:
        return None
    received, sent = (
        float(np.mean([of.sum() for of in column]))
        for column in ([one.received for one in told], [one.sent for one in told])
    )
    who = "the server" if len(told[0].sent) == 1 else f"the {len(told[0].sent)} servers"
    weight = told[0].model_bytes
    return (
        f"{runs[0].method}: {who} received {received:,.0f} models and sent {sent:,.0f} "
        f"({size(received * weight)} and {size(sent * weight)})"
    )


def setting_text(value: object) -> str:
    """The value of a setting, as a reader would write it."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def duration(seconds: float) -> str:
    """A duration in words: 3.2 s, 4 min 05 s, 2 h 10 min"""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"

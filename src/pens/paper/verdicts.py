# SPDX-License-Identifier: Apache-2.0
"""The one rule that decides whether a number of ours agrees with the paper's.

Tables, files, pictures and reports all use it: a Welch test of two means at 5 %, from mean, half-width and number of
seeds on both sides. A difference that is not significant is no proof of equality, so every verdict comes with the
half-width of the difference's interval: a smaller difference could not have been detected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtrit

from pens.measuring.metrics import FEWEST_SEEDS, Interval

PAPER_SEEDS = 4
"""Section 5.4: 4 experiments for each algorithm."""

Outcome = Literal["not run", "not in the paper", "too few seeds", "does not differ", "above", "below"]


@dataclass(frozen=True)
class PaperVerdict:
    """The verdict on a mean of ours and one of the paper's."""

    outcome: Outcome
    difference: Interval | None = None
    """Ours minus the paper's, with Welch's 95 % interval where there are enough seeds."""

    @property
    def agrees(self) -> bool:
        """Whether the test was possible and detected no difference."""
        return self.outcome == "does not differ"

    @property
    def detectable(self) -> float | None:
        """The smallest difference of the means that the test detects; None without a test."""
        return self.difference.half_width if self.difference else None

    def __str__(self) -> str:
        """The verdict in words: does not differ, above by 0.9, too few seeds, …"""
        if self.outcome == "not in the paper":
            return "–"
        if self.outcome in ("above", "below") and self.difference:
            return f"{self.outcome} by {100 * abs(self.difference.mean):.1f}"
        return self.outcome


RULE = (
    "Verdicts are Welch tests of the two means at 5 %, from the spread over seeds on both sides. Not differing is not "
    "the same as being equal: a difference smaller than half its 95 % interval could not have been detected. With "
    f"fewer than {FEWEST_SEEDS} seeds there is no interval and no test. Of many cells about one in twenty differs by "
    "chance."
)


def compare_with_paper(ours: Interval | None, seeds: int, paper: Interval | None) -> PaperVerdict:
    """Compare a mean of ours with one of the paper's by the rule that tables, files, pictures and reports share."""
    if ours is None or not seeds:
        return PaperVerdict("not run")
    if paper is None:
        return PaperVerdict("not in the paper")
    apart = less_paper(ours, seeds, paper)
    if apart.half_width is None:
        return PaperVerdict("too few seeds", apart)
    if abs(apart.mean) <= apart.half_width:
        return PaperVerdict("does not differ", apart)
    return PaperVerdict("above" if apart.mean > 0 else "below", apart)


def less_paper(ours: Interval, seeds: int, paper: Interval) -> Interval:
    """Ours minus the paper's, with Welch's 95 % interval. Fewer than `FEWEST_SEEDS` seeds give no interval."""
    mean = ours.mean - paper.mean
    if seeds < FEWEST_SEEDS or ours.half_width is None or paper.half_width is None:
        return Interval(mean, None)
    sides = [(ours.half_width, seeds - 1), (paper.half_width, PAPER_SEEDS - 1)]
    variances = [(half / stdtrit(freedom, 0.975)) ** 2 for half, freedom in sides]
    if not (variance := sum(variances)):
        return Interval(mean, 0.0)
    freedom = variance**2 / sum(each**2 / n for each, (_, n) in zip(variances, sides, strict=True))
    return Interval(mean, float(stdtrit(freedom, 0.975)) * math.sqrt(variance))

# SPDX-License-Identifier: Apache-2.0
"""The section on significance: paired tests of the differences between methods."""

from __future__ import annotations

from collections.abc import Sequence

from pens.measuring.metrics import FEWEST_SEEDS
from pens.report.analysis import FEWEST_FOR_WILCOXON, Difference, differences
from pens.report.charts.differences import differences_chart
from pens.report.section import ReportSection, Table
from pens.report.study import Study
from pens.report.words import count, p_value, points


def significance_section(study: Study) -> ReportSection:
    """Paired tests between methods over seeds."""
    pairs = differences(study)
    question = "Are the differences significant?"
    if not pairs:
        return ReportSection(
            "tests", question, "There is only one method, or no seed in common, so there is nothing to compare."
        )
    most = max(len(d.seeds) for d in pairs)
    shown = (differences_chart(pairs),)
    if most < FEWEST_SEEDS:
        return ReportSection(
            "tests",
            question,
            f"Significance cannot be tested with {count(most, 'seed')}: intervals and tests need at least "
            f"{FEWEST_SEEDS} seeds. Run at least four (--seeds 4).",
            shown,
        )
    columns = (
        "pair",
        study.metric.gap_unit,
        "paired t: p",
        "after Holm",
        *(("Wilcoxon: p",) if most >= FEWEST_FOR_WILCOXON else ()),
    )
    rows = tuple(
        (f"{d.better} − {d.other}", points(d.mean), *map(p_value, (d.p_t, d.p_holm, d.p_wilcoxon)))[: len(columns)]
        for d in pairs
    )
    corrected = f" and corrected for {len(pairs)} comparisons" if len(pairs) > 1 else ""
    answer = f"Over {most} seeds, paired by seed{corrected}: {_significance_words(pairs)}"
    notes = [
        f"Differences of the mean {study.metric.name} over peers with the same seed, which means the same data and "
        "first models. "
        "The t test assumes a normal distribution, which so few seeds cannot confirm."
    ]
    if min(len(d.seeds) for d in pairs) < most:
        notes.append("Some pairs have fewer seeds in common than others, because runs are missing.")
    if most < FEWEST_FOR_WILCOXON:
        notes.append(
            f"Wilcoxon's test is left out: with {most} seeds its p-value is at least {2 / 2**most:.3f}, "
            f"whatever the data; it needs {FEWEST_FOR_WILCOXON} seeds."
        )
    return ReportSection("tests", question, answer, shown, Table(columns, rows, narrow=True), tuple(notes))


def _significance_words(pairs: Sequence[Difference]) -> str:
    """The smallest of the significant differences, and all that are not significant."""
    clear = [(d, d.p_holm or 0.0) for d in pairs if d.is_significant]
    unclear = [f"{d.better} and {d.other} ({points(d.mean)})" for d in pairs if not d.is_significant]
    words = []
    if clear:
        least, _ = min(clear, key=lambda each: each[0].mean.mean)
        many = "the only difference" if len(pairs) == 1 else f"{'all' if not unclear else len(clear)} differences"
        small = f", the smallest {least.better} over {least.other} by" if len(clear) > 1 else ","
        words.append(
            f"{many} {'is' if len(clear) == 1 else 'are'} significant{small} {points(least.mean)} "
            f"{least.mean.measure.gap_unit}"
        )
        highest = p_value(max(p for _, p in clear))
        words[-1] += f" (p {highest if highest.startswith('<') else f'at most {highest}'})"
    if unclear:
        words.append(f"{'not significant' if clear else 'no difference is significant'}: {'; '.join(unclear)}")
    return ". ".join(word[0].upper() + word[1:] if number else word for number, word in enumerate(words)) + "."

# SPDX-License-Identifier: Apache-2.0
"""Could the differences be luck?"""

from __future__ import annotations

from collections.abc import Sequence

from pens.measuring.metrics import FEWEST_SEEDS
from pens.report.analysis import FEWEST_FOR_WILCOXON, Difference, differences
from pens.report.charts.differences import differences_chart
from pens.report.section import ReportSection, Table
from pens.report.study import Study
from pens.report.words import count, p_value, points


def luck_section(study: Study) -> ReportSection:
    """Paired tests between methods over seeds."""
    found = differences(study)
    question = "Could the differences be luck?"
    if not found:
        return ReportSection("tests", question, "There is one method only, or no seed in common: nothing to compare.")
    most = max(len(d.seeds) for d in found)
    shown = (differences_chart(found),)
    if most < FEWEST_SEEDS:
        return ReportSection(
            "tests",
            question,
            f"With {count(most, 'seed')} nobody can know: there is no interval and no test below {FEWEST_SEEDS} seeds. "
            "Run at least four (--seeds 4).",
            shown,
        )
    columns = (
        "pair",
        "points",
        "paired t: p",
        "after Holm",
        *(("Wilcoxon: p",) if most >= FEWEST_FOR_WILCOXON else ()),
    )
    rows = tuple(
        (f"{d.better} − {d.other}", points(d.mean), *map(p_value, (d.p_t, d.p_holm, d.p_wilcoxon)))[: len(columns)]
        for d in found
    )
    corrected = f" and corrected for {len(found)} comparisons" if len(found) > 1 else ""
    answer = f"Over {most} seeds, paired by seed{corrected}: {_luck_words(found)}"
    notes = [
        "Differences of the mean accuracy over peers with the same seed, which means the same data and first models. "
        "The t test takes them for normal, which so few cannot show."
    ]
    if min(len(d.seeds) for d in found) < most:
        notes.append("Some pairs have fewer seeds in common than others, because runs are missing.")
    if most < FEWEST_FOR_WILCOXON:
        notes.append(
            f"Wilcoxon's test is left out: with {most} seeds it cannot give less than {2 / 2**most:.3f}, "
            f"whatever the data; it takes {FEWEST_FOR_WILCOXON}."
        )
    return ReportSection("tests", question, answer, shown, Table(columns, rows, narrow=True), tuple(notes))


def _luck_words(found: Sequence[Difference]) -> str:
    """The smallest of those that are hardly luck, and all that may be."""
    clear = [(d, p) for d in found if (p := d.p_holm) is not None and p < 0.05]
    unclear = [f"{d.better} and {d.other} ({points(d.mean)})" for d in found if d.p_holm is None or d.p_holm >= 0.05]
    words = []
    if clear:
        least, _ = min(clear, key=lambda each: each[0].mean.mean)
        many = "the one difference" if len(found) == 1 else f"{'all' if not unclear else len(clear)} differences"
        small = f", the smallest {least.better} over {least.other} by" if len(clear) > 1 else ","
        words.append(f"{many} {'is' if len(clear) == 1 else 'are'} hardly luck{small} {points(least.mean)} points")
        highest = p_value(max(p for _, p in clear))
        words[-1] += f" (p {highest if highest.startswith('<') else f'at most {highest}'})"
    if unclear:
        words.append(f"{'may be luck' if clear else 'all may be luck'}: {'; '.join(unclear)}")
    return ". ".join(word[0].upper() + word[1:] if number else word for number, word in enumerate(words)) + "."

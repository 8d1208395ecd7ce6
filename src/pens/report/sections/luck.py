"""Could the differences be luck?"""

from __future__ import annotations

from pens.report.analysis import FEWEST_FOR_WILCOXON, differences
from pens.report.charts.differences import differences_chart
from pens.report.section import Section, Table, p_value, points
from pens.report.study import Study


def luck_section(study: Study) -> Section:
    """Paired tests between methods over seeds."""
    found = differences(study)
    question = "Could the differences be luck?"
    if not found:
        return Section("tests", question, "There is one method only, or no seed in common: nothing to compare.")
    most = max(len(d.seeds) for d in found)
    shown = (differences_chart(found),)
    if most == 1:
        return Section(
            "tests",
            question,
            "With one seed nobody can know: run at least four (--seeds 4) for intervals and tests.",
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
    clear = [
        f"{d.better} over {d.other} by {points(d.mean)}" for d in found if d.p_holm is not None and d.p_holm < 0.05
    ]
    unclear = [f"{d.better} and {d.other}" for d in found if d.p_holm is None or d.p_holm >= 0.05]
    answer = f"Over {most} seeds, paired and corrected for {len(found)} comparisons, hardly luck (p < 0.05): " + (
        f"{'; '.join(clear)} points." if clear else "nothing."
    )
    answer += f" May be luck: {'; '.join(unclear)}." if unclear else ""
    notes = ["Differences of the mean accuracy over peers with the same seed, which means the same data."]
    if min(len(d.seeds) for d in found) < most:
        notes.append("Some pairs have fewer seeds in common than others, because runs are missing.")
    if most < FEWEST_FOR_WILCOXON:
        notes.append(
            f"Wilcoxon's test is left out: with {most} seeds it cannot give less than {2 / 2**most:.3f}, "
            f"whatever the data; it takes {FEWEST_FOR_WILCOXON}."
        )
    if most < 4:
        notes.append(f"{most} seeds are few: the t test then rests on the assumption of normal differences.")
    return Section("tests", question, answer, shown, Table(columns, rows, narrow=True), tuple(notes))

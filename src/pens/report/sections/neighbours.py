"""Does PENS find the right neighbours, and when?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pens.config import SELECTING
from pens.report.charts.neighbours import neighbours_chart
from pens.report.course import Selecting, selecting
from pens.report.paper import paper_agreement
from pens.report.section import OLDER, Section, agreement_words, count
from pens.report.study import Study
from pens.results import summarise


def neighbours_section(study: Study) -> Section:
    """Precision and recall over the rounds of step 1."""
    question = "Does PENS find the right neighbours, and when?"
    runs = next((some for name in SELECTING if (some := study.of(name))), ())
    if not runs:
        return Section("neighbours", question, "pens was not run here, and no other method chooses neighbours.")
    summary = summarise(runs)
    if not summary.precision or not summary.recall:
        return Section(
            "neighbours", question, "No peer chose a neighbour that could be judged: each is alone of its kind."
        )
    method = "" if runs[0].method == "pens" else f" of {runs[0].method}"
    ended = f"precision {summary.precision.percent()} % and recall {summary.recall.percent()} %"
    paper = None if study.record.own_parts or method else paper_agreement(study.settings)
    notes = [
        "Precision: the share of the chosen neighbours that are of the peer's own kind. Recall: the share of its kind "
        "that was chosen. Mean over peers. The picture applies the rule of the end of step 1 to the counts so far."
    ]
    if paper:
        precision, recall = paper
        notes.append(
            f"The paper's table 5: precision {precision.value.percent()} % ("
            f"{agreement_words(summary.precision, precision.value)}), recall {recall.value.percent()} % ("
            f"{agreement_words(summary.recall, recall.value)})."
        )
    found = [s for run in runs if (s := selecting(study, run))]
    if len(found) < len(runs) or not found:
        notes.append(f"There is no picture over the rounds: {OLDER}.")
        return Section("neighbours", question, f"Step 1{method} ends with {ended}.", notes=tuple(notes))
    last = max(len(s.rounds) for s in found)
    earlier = f"; had it ended after {last // 2}, it would have been {_halfway(found, last // 2)}" if last > 1 else ""
    answer = f"After {count(last, 'round')} step 1{method} ends with {ended}{earlier}."
    return Section("neighbours", question, answer, (neighbours_chart(found, paper),), notes=tuple(notes))


def _halfway(found: Sequence[Selecting], round_: int) -> str:
    places = [min(round_, len(s.rounds)) - 1 for s in found]
    precision, recall = (
        float(np.mean([values[place] for values, place in zip(each, places, strict=True)]))
        for each in ([s.precision for s in found], [s.recall for s in found])
    )
    return f"{100 * precision:.1f} % and {100 * recall:.1f} %"

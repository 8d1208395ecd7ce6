# SPDX-License-Identifier: Apache-2.0
"""Does PENS find the right neighbours, and when?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pens.measuring.metrics import Interval
from pens.measuring.results import summarise
from pens.methods.spec import RunSpec
from pens.paper.cells import PaperValue, paper_agreement
from pens.paper.verdicts import compare_with_paper
from pens.report.charts.neighbours import neighbours_chart
from pens.report.section import OLDER, ReportSection
from pens.report.selection_curves import SelectionCurve, selecting
from pens.report.study import Study
from pens.report.words import count, listed
from pens.settings.tree import MethodName
from pens.topologies.topology import topology_of


@dataclass(frozen=True)
class _Chosen:
    """How well a method's peers chose."""

    method: MethodName
    seeds: int
    precision: Interval
    recall: Interval
    course: tuple[SelectionCurve, ...]
    """Round by round, one for each seed; empty where that is not on record."""
    paper: tuple[PaperValue, PaperValue] | None

    @property
    def lowest(self) -> float:
        """That a picture of it shows."""
        lines = [values for each in self.course for values in (each.precision, each.recall)]
        return min([float(np.nanmin(line)) for line in lines] + [cell.value.mean for cell in self.paper or ()])


def neighbours_section(study: Study) -> ReportSection:
    """Precision and recall over the rounds of step 1, for each method that selects."""
    question = "Does PENS find the right neighbours, and when?"
    if not study.selecting:
        return ReportSection("neighbours", question, "pens was not run here, and no other method chooses neighbours.")
    if not study.clusters_known:
        return ReportSection(
            "neighbours",
            question,
            "The clusters of these peers are not known, so nobody can say which neighbours are right: there is no "
            "precision and no recall. Which peers chose each other stands above.",
        )
    found = [chosen for method in study.selecting if (chosen := _chosen(study, method))]
    if not found:
        return ReportSection("neighbours", question, "No peer chose a neighbour, so there is nothing to judge.")
    drawn = [each for each in found if each.course]
    lowest = min((each.lowest for each in drawn), default=0.0)
    charts = [neighbours_chart(each.method, each.course, each.paper, lowest) for each in drawn]
    notes = tuple(_notes(study, found))
    return ReportSection("neighbours", question, " ".join(map(_ended, found)), tuple(charts), notes=notes)


def _chosen(study: Study, method: MethodName) -> _Chosen | None:
    runs = study.of(method)
    summary = summarise(runs) if runs else None
    if summary is None or summary.precision is None or summary.recall is None:
        return None
    course = [each for run in runs if (each := selecting(study, run))]
    paper = paper_agreement(study.settings, method) if not study.record.own_parts else None
    whole = tuple(course) if len(course) == len(runs) else ()
    return _Chosen(method, len(runs), summary.precision, summary.recall, whole, paper)


def _ended(chosen: _Chosen) -> str:
    ended = f"ends with precision {chosen.precision.percent()} % and recall {chosen.recall.percent()} %"
    if not chosen.course:
        return f"Step 1 of {chosen.method} {ended}."
    last = max(len(s.rounds) for s in chosen.course)
    return f"After {count(last, 'round')} step 1 of {chosen.method} {ended}.{_when(chosen.course)}"


def _when(course: Sequence[SelectionCurve]) -> str:
    """From which round on nearly all neighbours are right, and when half of the own cluster is found, in every seed."""
    shortest = min(len(s.rounds) for s in course)
    wrong = [np.flatnonzero(~(s.precision[:shortest] >= 0.95)) for s in course]
    right_from = max((int(places[-1]) + 2 for places in wrong if len(places)), default=1)
    half = [np.flatnonzero(s.recall[:shortest] >= 0.5) for s in course]
    words = [f"95 % of its neighbours are right from round {right_from} on"] if right_from <= shortest else []
    if all(len(places) for places in half):
        words.append(f"half of the own cluster is found by round {max(int(places[0]) for places in half) + 1}")
    return f" {'; '.join(words)}." if words else ""


def _notes(study: Study, found: Sequence[_Chosen]) -> list[str]:
    notes = [
        "Precision: the share of the chosen neighbours that are of the peer's own cluster. Recall: the share of its "
        "cluster that was chosen. Mean over peers. A picture applies the rule of the end of step 1 to the counts so "
        "far."
    ]
    if found_steps := _steps(study):
        method, steps = found_steps
        notes.append(
            f"The rule of {method} counts in whole numbers: recall falls where the number of selections that chance "
            f"would bring passes one, after {listed([str(round_) for round_ in steps])} rounds."
        )
    for each in found:
        if each.paper:
            precision, recall = each.paper
            notes.append(
                f"The paper's table 5: precision {precision.value.percent()} % ("
                f"ours {compare_with_paper(each.precision, each.seeds, precision.value)}), recall "
                f"{recall.value.percent()} % (ours {compare_with_paper(each.recall, each.seeds, recall.value)})."
            )
        if not each.course:
            notes.append(f"There is no picture of {each.method} over the rounds: {OLDER}.")
    return notes


def _steps(study: Study) -> tuple[MethodName, list[int]] | None:
    """The method that counts in whole numbers, and the rounds after which a neighbour must have been selected once
    more; None where that differs between peers, or is nearly every round."""
    for method in study.selecting:
        steps = _whole_steps(study.spec_of(method), study.num_peers)
        if any(run.comparisons for run in study.of(method)) and steps:
            return method, steps
    return None


def _whole_steps(spec: RunSpec, num_peers: int) -> list[int]:
    rule, pens = spec.selection(num_peers), spec.settings.pens
    if rule is None or rule.by != "expected" or rule.expected != "uniform":
        return []
    if not topology_of(spec.settings).is_complete:
        return []
    needed = [rule.m * round_ * pens.step1_samplings // rule.num_others for round_ in range(pens.step1_rounds + 1)]
    steps = [round_ for round_ in range(1, len(needed)) if needed[round_] > needed[round_ - 1]]
    return steps if 2 * len(steps) <= pens.step1_rounds else []

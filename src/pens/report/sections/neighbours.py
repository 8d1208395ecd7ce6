# SPDX-License-Identifier: Apache-2.0
"""The section on neighbours: whether peers select the right ones, and when."""

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
from pens.report.selection_curves import SelectionCurve, is_by_counts, selection_curve
from pens.report.study import Study
from pens.report.words import count, listed
from pens.settings.tree import MethodName
from pens.topologies.topology import is_complete


@dataclass(frozen=True)
class _Selection:
    """How well the peers of a method selected their neighbours."""

    method: MethodName
    seeds: int
    precision: Interval
    recall: Interval
    curves: tuple[SelectionCurve, ...]
    """The curve of each seed over the rounds of step 1; empty where a seed lacks it."""
    paper: tuple[PaperValue, PaperValue] | None

    @property
    def lowest(self) -> float:
        """The lowest value that a picture of the curves shows."""
        lines = [values for each in self.curves for values in (each.precision, each.recall)]
        return min([float(np.nanmin(line)) for line in lines] + [cell.value.mean for cell in self.paper or ()])


def neighbours_section(study: Study) -> ReportSection:
    """Precision and recall over the rounds of step 1, for each method that selects."""
    question = "Does PENS find the right neighbours, and when?"
    if not study.selecting:
        return ReportSection("neighbours", question, "No method that selects neighbours, such as pens, was run here.")
    if not study.clusters_known:
        return ReportSection(
            "neighbours",
            question,
            "The clusters of these peers are not known, so the neighbours have no precision and no recall. The section "
            "on merged models shows which peers selected each other.",
        )
    selections = [selection for method in study.selecting if (selection := _selection(study, method))]
    if not selections:
        return ReportSection(
            "neighbours", question, "No peer selected neighbours, so there is no precision and no recall."
        )
    drawn = [each for each in selections if each.curves]
    lowest = min((each.lowest for each in drawn), default=0.0)
    charts = [neighbours_chart(each.method, each.curves, each.paper, lowest) for each in drawn]
    notes = tuple(_notes(study, selections))
    return ReportSection("neighbours", question, " ".join(map(_ended, selections)), tuple(charts), notes=notes)


def _selection(study: Study, method: MethodName) -> _Selection | None:
    runs = study.of(method)
    summary = summarise(runs) if runs else None
    if summary is None or summary.precision is None or summary.recall is None:
        return None
    curves = [each for run in runs if (each := selection_curve(study, run))]
    paper = paper_agreement(study.settings, method) if not study.record.own_parts else None
    whole = tuple(curves) if len(curves) == len(runs) else ()
    return _Selection(method, len(runs), summary.precision, summary.recall, whole, paper)


def _ended(selection: _Selection) -> str:
    ended = f"ends with precision {selection.precision.percent()} % and recall {selection.recall.percent()} %"
    if not selection.curves:
        return f"Step 1 of {selection.method} {ended}."
    last = max(len(s.rounds) for s in selection.curves)
    return f"After {count(last, 'round')}, step 1 of {selection.method} {ended}.{_when(selection.curves)}"


def _when(curves: Sequence[SelectionCurve]) -> str:
    """The rounds from which precision is at least 95 % and by which recall reaches 50 %, in every seed."""
    shortest = min(len(s.rounds) for s in curves)
    wrong = [np.flatnonzero(~(s.precision[:shortest] >= 0.95)) for s in curves]
    right_from = max((int(places[-1]) + 2 for places in wrong if len(places)), default=1)
    half = [np.flatnonzero(s.recall[:shortest] >= 0.5) for s in curves]
    words = [f"precision is at least 95 % from round {right_from} on"] if right_from <= shortest else []
    if all(len(places) for places in half):
        words.append(f"recall reaches 50 % by round {max(int(places[0]) for places in half) + 1}")
    return f" In every seed, {' and '.join(words)}." if words else ""


def _notes(study: Study, selections: Sequence[_Selection]) -> list[str]:
    notes = [
        "Precision: the share of the selected neighbours that are in the peer's own cluster. Recall: the share of its "
        "cluster that was selected. Both are means over peers. The pictures apply the rule for the end of step 1 to "
        "the counts so far."
    ]
    if whole_steps := _steps(study):
        method, steps = whole_steps
        notes.append(
            f"The rule of {method} counts whole selections: recall falls where the number of selections expected by "
            f"chance reaches a whole number, after {listed([str(round_) for round_ in steps])} rounds."
        )
    for each in selections:
        if each.paper:
            precision, recall = each.paper
            notes.append(
                f"The paper's table 5: precision {precision.value.percent()} % ("
                f"ours {compare_with_paper(each.precision, each.seeds, precision.value)}), recall "
                f"{recall.value.percent()} % (ours {compare_with_paper(each.recall, each.seeds, recall.value)})."
            )
        if not each.curves:
            notes.append(f"There is no picture of {each.method} over the rounds: {_why_none(study, each.method)}.")
    return notes


def _why_none(study: Study, method: MethodName) -> str:
    rule = study.spec_of(method).selection(study.num_peers)
    return OLDER if rule is None or is_by_counts(rule) else "its rule needs losses, and the record has counts alone"


def _steps(study: Study) -> tuple[MethodName, list[int]] | None:
    """The method that counts whole selections, and the rounds after which a neighbour must have been selected once
    more; None where these rounds differ between peers, or are nearly all rounds."""
    for method in study.selecting:
        steps = _whole_steps(study.spec_of(method), study.num_peers)
        if any(run.comparisons for run in study.of(method)) and steps:
            return method, steps
    return None


def _whole_steps(spec: RunSpec, num_peers: int) -> list[int]:
    rule, pens = spec.selection(num_peers), spec.settings.pens
    if rule is None or rule.by != "expected" or rule.expected != "uniform":
        return []
    if not is_complete(spec.settings):
        return []
    needed = [rule.m * round_ * pens.step1_samplings // rule.num_others for round_ in range(pens.step1_rounds + 1)]
    steps = [round_ for round_ in range(1, len(needed)) if needed[round_] > needed[round_ - 1]]
    return steps if 2 * len(steps) <= pens.step1_rounds else []

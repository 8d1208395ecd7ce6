# SPDX-License-Identifier: Apache-2.0
"""The section on accuracy: that of each method, and the paper's where it has the same settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pens.learning.learner import FORMS
from pens.measuring.fairness import fair_words
from pens.measuring.metrics import FEWEST_SEEDS, Interval
from pens.measuring.results import Summary
from pens.paper.cells import PAPER_PARTITION, PaperValue
from pens.paper.departures import departures
from pens.paper.verdicts import PAPER_SEEDS, RULE, PaperVerdict, compare_with_paper
from pens.report.analysis import paper_cells, summary_of
from pens.report.charts.accuracy import accuracy_chart
from pens.report.section import ReportSection, Table
from pens.report.study import Study
from pens.report.words import count, listed, thousands
from pens.settings.tree import MethodName
from pens.tasks.metric import ACCURACY, Measure


def accuracy_section(study: Study) -> ReportSection:
    """The accuracy of each method, its cost, and the paper's accuracy."""
    table = [summary_of(study, method) for method in study.methods]
    cells, measure = paper_cells(study), study.metric
    named = ", ".join(
        f"{row.method} {row.score.words()}" for row in sorted(table, key=lambda r: -measure.goodness(r.score.mean))
    )
    seeds = max(row.seeds for row in table)
    how = f"95 % interval over {seeds} seeds" if seeds >= FEWEST_SEEDS else f"{count(seeds, 'seed')}, so no interval"
    untested = study.num_untested
    columns: tuple[str, ...] = (
        "method",
        measure.label("" if untested else "test"),
        Measure("worst tenth of peers", measure.unit).label(),
        *_evenness_columns(table[0]),
        *(of.measure.label() for of in table[0].further),
        "models received by a peer",
        "work of a peer, thousand forward passes",
    )
    rows = tuple(_accuracy_row(row) for row in table)
    if cells:
        columns += ("paper %", "ours − paper", "verdict")
        rows = tuple((*row, *_paper_row(ours, cells.get(ours.method))) for row, ours in zip(rows, table, strict=True))
    notes = [
        f"{measure.title} is each peer's on its own distribution{_direction(measure)}; the worst tenth is the mean "
        f"of the {'least accurate' if measure == ACCURACY else 'worst'} peers. "
        "A forward pass looks at one sample; training on a sample counts as three."
    ]
    if untested:
        notes.append(
            f"{untested} of {study.num_peers} peers had no test data. Their {measure.name} is the last one on their "
            "validation data, on which their model was chosen, so it is an overestimate."
        )
    if table[0].gap:
        notes.append(fair_words(measure))
    notes += [words for method in study.methods if (words := _forms_words(study, method))]
    return ReportSection(
        "accuracy",
        "How accurate is each method?" if measure == ACCURACY else "How good is each method?",
        f"Mean over peers, {how}: {named}.{_paper_answer(table, cells)}",
        (accuracy_chart(table, cells, tested=not untested),),
        Table(columns, rows, wordy=("verdict",)),
        (*notes, *_paper_notes(study, cells)),
    )


def _forms_words(study: Study, method: MethodName) -> str:
    """Which forms of their models the peers of a method tested; empty where they do not choose."""
    forms = Counter(form for run in study.of(method) for form in run.tested_forms)
    if not forms:
        return ""
    total = forms.total()
    shares = listed([f"{FORMS[form]} for {100 * number / total:.0f} %" for form, number in forms.most_common()])
    return f"Which model {method} tests is each peer's choice, by its own validation data: {shares} of the peers."


def _accuracy_row(row: Summary) -> tuple[str, ...]:
    cost = f"{row.models_received:,.0f}", thousands(row.work)
    further = (of.text() for of in (*_evenness(row), *row.further))
    return (row.method, row.score.text(), row.worst_tenth.text(), *further, *cost)


def _evenness(row: Summary) -> list[Interval]:
    """How evenly a method serves the clusters, as far as that is known."""
    return [of for of in (row.worst_cluster, row.gap, row.fair) if of]


def _evenness_columns(row: Summary) -> list[str]:
    measure = row.score.measure
    names = [Measure("worst cluster", measure.unit).label(), f"gap between clusters, {measure.gap_unit}"]
    return (names if row.gap else []) + ([row.fair.measure.label()] if row.fair else [])


def _direction(measure: Measure) -> str:
    return "" if measure.higher_is_better else ", and lower is better"


def _paper_row(row: Summary, cell: PaperValue | None) -> tuple[str, ...]:
    if not cell:
        return "–", "–", "not in the paper"
    verdict = _verdict(row, cell)
    apart = verdict.difference.signed() if verdict.difference else "–"
    return cell.value.percent(), apart, f"{verdict} ({cell.where})"


def _verdict(row: Summary, cell: PaperValue) -> PaperVerdict:
    return compare_with_paper(row.score, row.seeds, cell.value)


def _paper_answer(table: Sequence[Summary], cells: dict[MethodName, PaperValue]) -> str:
    judged = [(row, cells[row.method], _verdict(row, cells[row.method])) for row in table if row.method in cells]
    if not judged:
        return ""
    same = [row.method for row, _, verdict in judged if verdict.agrees]
    apart = [f"{row.method} ({verdict})" for row, _, verdict in judged if verdict.outcome in ("above", "below")]
    few = [row.method for row, _, verdict in judged if verdict.outcome == "too few seeds"]
    words = [f"no significant difference for {listed(same)}"] if same else []
    words += [f"a significant difference for {listed(apart)}"] if apart else []
    words += [f"too few seeds to test {listed(few)}"] if few else []
    text = f" Compared with the paper by Welch's test at 5 %: {'; '.join(words)}."
    return text + (_order_words(judged) if len(judged) > 1 else "")


def _order_words(judged: Sequence[tuple[Summary, PaperValue, PaperVerdict]]) -> str:
    """Whether the methods rank as in the paper."""
    turned = [
        f"{a.method} is above {b.method}"
        for a, paper, _ in judged
        for b, papers, _ in judged
        if a.score.mean > b.score.mean and paper.value.mean < papers.value.mean
    ]
    return f" Unlike in the paper, {listed(turned)}." if turned else " The methods rank as in the paper."


def _paper_notes(study: Study, cells: dict[MethodName, PaperValue]) -> list[str]:
    if not cells:
        why = (
            "your own data or network" if study.record.own_parts else "different data, peers, samples or initialisation"
        )
        is_paper_task = study.metric == ACCURACY
        why = why if is_paper_task else "another task"
        if is_paper_task and not study.record.own_parts and study.settings.scenario.partition != PAPER_PARTITION:
            why = departures(study.settings)[0]
        return [f"The paper has no number for these settings ({why}), so there is nothing to compare with."]
    changed = departures(study.settings, study.methods)
    notes = [
        f"{RULE} The paper has {PAPER_SEEDS} seeds; ours − paper is shown with its 95 % interval.",
        "The paper's text says SGD with a rate of 0.001, which does not learn here; pens uses Adam, as the authors' "
        "code does.",
    ]
    if changed:
        notes.append(
            "Compare with care, because these settings differ from those that reproduce the paper: "
            f"{'; '.join(changed)}."
        )
    return notes

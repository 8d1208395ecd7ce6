"""How accurate is each method? Beside the paper, where it has the same settings."""

from __future__ import annotations

from collections.abc import Sequence

from pens.config import Method
from pens.metrics import Interval
from pens.report.analysis import paper_cells
from pens.report.charts.accuracy import accuracy_chart
from pens.report.paper import Cell, departures, less_paper
from pens.report.section import Section, Table, agreement_words, listed, overlaps, points_apart
from pens.report.study import Study
from pens.results import Summary, summarise


def accuracy_section(study: Study) -> Section:
    """Accuracy per method, and the paper's."""
    table = [summarise(study.of(method)) for method in study.methods]
    cells = paper_cells(study)
    named = ", ".join(
        f"{row.method} {row.accuracy.percent()} %" for row in sorted(table, key=lambda r: -r.accuracy.mean)
    )
    seeds = max(row.seeds for row in table)
    how = f"95 % interval over {seeds} seeds" if seeds > 1 else "one seed, so no interval"
    rows = tuple(_accuracy_row(row, cells.get(row.method)) for row in table)
    columns = ("method", "test accuracy %", "worst tenth of peers %")
    shown = Table(columns, tuple(row[:3] for row in rows), narrow=True)
    if cells:
        shown = Table((*columns, "paper %", "ours − paper", "in words"), rows, wordy=("in words",))
    notes = ["Each peer is tested on its own distribution; the worst tenth is the mean of the least accurate peers."]
    return Section(
        "accuracy",
        "How accurate is each method?",
        f"Mean over peers, {how}: {named}.{_paper_answer(table, cells)}",
        (accuracy_chart(table, cells),),
        shown,
        (*notes, *_paper_notes(study, cells)),
    )


def _accuracy_row(row: Summary, cell: Cell | None) -> tuple[str, ...]:
    ours = (row.method, row.accuracy.percent(), row.worst_tenth.percent())
    if not cell:
        return (*ours, "–", "–", "not in the paper")
    apart = less_paper(row.accuracy, row.seeds, cell.value).signed()
    return (*ours, cell.value.percent(), apart, f"{cell.where}: {agreement_words(row.accuracy, cell.value)}")


def _paper_answer(table: Sequence[Summary], cells: dict[Method, Cell]) -> str:
    if not cells:
        return ""
    judged = [(row.method, row.accuracy, cells[row.method].value) for row in table if row.method in cells]
    agree = [method for method, ours, paper in judged if overlaps(ours, paper)]
    differ = listed([f"{m} ({points_apart(ours, paper)})" for m, ours, paper in judged if m not in agree])
    if agree:
        verdict = f"overlap for {listed(agree)}{f'; not for {differ}' if differ else ''}"
    else:
        verdict = f"do not overlap for {differ}"
    return f" Our intervals and the paper's {verdict}.{_order_words(judged) if len(judged) > 1 else ''}"


def _order_words(judged: Sequence[tuple[Method, Interval, Interval]]) -> str:
    """Whether the methods stand in the paper's order."""
    turned = [
        f"{a} is above {b}"
        for a, ours, paper in judged
        for b, their, papers in judged
        if ours.mean > their.mean and paper.mean < papers.mean
    ]
    return f" Unlike in the paper, {listed(turned)}." if turned else " The methods stand in the paper's order."


def _paper_notes(study: Study, cells: dict[Method, Cell]) -> list[str]:
    if not cells:
        why = "own data or an own network" if study.record.own_parts else "other data, peers, samples or initialisation"
        return [f"The paper has no number for these settings ({why}), so there is nothing to set beside them."]
    changed = departures(study.settings)
    notes = [
        "Ours − paper has Welch's 95 % interval, from the spread over seeds on both sides. Where it leaves out zero "
        "the two differ, even if their own intervals overlap; of many cells a few will by chance.",
        "The paper's text says SGD with a rate of 0.001, which does not learn here; pens uses Adam, as its code does.",
    ]
    if changed:
        notes.append(f"Compare with care, these settings are not the paper's: {'; '.join(changed)}.")
    return notes

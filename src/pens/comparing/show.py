# SPDX-License-Identifier: Apache-2.0
"""The findings of a comparison as one table, for a terminal and in Markdown, with notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from pens.comparing.results import Findings, Measured, MethodFindings, ScenarioFindings
from pens.measuring.fairness import fair_words
from pens.measuring.metrics import FEWEST_SEEDS, Interval
from pens.planning.show import plain_table
from pens.planning.versions import computed_lines
from pens.report.analysis import SIGNIFICANT
from pens.report.words import count, listed, thousands
from pens.settings.tree import MethodName

_FIRST_TO_GO = ("MB", "worst\ntenth", "gap", "tested", "fair", "work", "received", "worst\ncluster")
"""The columns that a narrow terminal leaves out."""


class Column(NamedTuple):
    """One column of the table, with a cell for each scenario and method."""

    heading: str
    cells: list[str]

    @property
    def width(self) -> int:
        return max(map(len, (*self.heading.split("\n"), *self.cells)))


def findings_table(found: Findings, width: int = 80) -> Table:
    """A row for each method below the name of its scenario. Columns that do not fit a narrow terminal are left out."""
    columns = [column for column in _columns(found) if column.heading != _BETTER]
    names = [f"  {each.method}" for _, each in _rows(found)]
    first = max(map(len, (*names, *map(_heading, found.scenarios))))

    def is_too_wide(gap: int) -> bool:
        return first + sum(gap + column.width for column in columns) > width

    for one in [column for heading in _FIRST_TO_GO for column in columns if column.heading == heading]:
        if is_too_wide(1):
            columns.remove(one)
    table = plain_table(pad=0 if is_too_wide(2) else 1)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column.heading, justify="left" if column.heading == "tested" else "right", no_wrap=True)
    place = 0
    for scenario in found.scenarios:
        table.add_row(escape(_heading(scenario)), style="bold")
        for _ in scenario.methods:
            table.add_row(escape(names[place]), *(escape(column.cells[place]) for column in columns))
            place += 1
    return table


def findings_markdown(found: Findings) -> str:
    """The same in Markdown, with all columns."""
    columns, rows = _columns(found), _rows(found)
    scenarios = [_heading(scenario) if scenario.methods[0] is each else "" for scenario, each in rows]
    wordy = ("tested", _BETTER)
    heads = ["scenario", "method", *(column.heading.replace("\n", " ") for column in columns)]
    sides = ["---", "---", *("---" if column.heading in wordy else "---:" for column in columns)]
    cells = zip(scenarios, [each.method for _, each in rows], *(column.cells for column in columns), strict=True)
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, sides, *cells))


def findings_notes(found: Findings) -> list[str]:
    """Who is better than whom, what is missing, and what the numbers mean."""
    notes = [words for scenario in found.scenarios for words in _scenario_notes(found, scenario)]
    most = max((len(each.seeds) for _, each in _rows(found)), default=0)
    if most < FEWEST_SEEDS:
        notes.append(f"With fewer than {FEWEST_SEEDS} seeds there is no interval and no verdict.")
    else:
        notes.append(
            f"Better: a paired t test over seeds at {100 * SIGNIFICANT:.0f} % of the mean over peers, where Holm's "
            "correction counts all pairs of methods of a scenario. What is not named did not differ significantly, "
            "which does not mean that it is equal."
        )
    notes += dict.fromkeys(fair_words(scenario.measure) for scenario in found.scenarios if scenario.clusters)
    notes.append(
        "Means over peers ± 95 % interval over seeds. Received, MB and work are those of one peer; work in thousand "
        "forward passes of a sample, where training on a sample counts as three."
    )
    if any(each.forms for _, each in _rows(found)):
        notes.append(
            "Tested: the form of its model that each peer's own validation data preferred, and for which share of "
            "the peers that is the most common one."
        )
    return [*notes, *computed_lines(found.devices, found.versions)]


def left_out_lines(left_out: Mapping[str, Mapping[MethodName, str]]) -> list[str]:
    """Which methods a scenario cannot have, and why: dirichlet: left out oracle, because its clusters are not known."""
    lines = []
    for scenario, reasons in left_out.items():
        for why in dict.fromkeys(reasons.values()):
            lines.append(
                f"{scenario}: left out {listed([m for m, of in reasons.items() if of == why])}, because {why}."
            )
    return lines


def _scenario_notes(found: Findings, scenario: ScenarioFindings) -> list[str]:
    notes = []
    if pairs := len([d for d in scenario.differences if d.p_holm is not None]):
        better = [
            f"{m} > {', '.join(worse)}" for each in scenario.methods if (worse := scenario.worse_than(m := each.method))
        ]
        notes.append(
            f"{scenario.name}: significantly better, of {count(pairs, 'pair')}: {'; '.join(better) or 'none'}."
        )
    notes += left_out_lines({scenario.name: scenario.left_out})
    planned = len(found.planned_seeds)
    missing = [f"{each.method} ({planned - len(each.seeds)})" for each in scenario.methods if len(each.seeds) < planned]
    if missing:
        notes.append(f"{scenario.name}: not complete: {', '.join(missing)} of {count(planned, 'seed')} each.")
    return notes


def _heading(scenario: ScenarioFindings) -> str:
    """Its name, its peers and, where it is not accuracy, its metric: 17:3: 20 peers, 0° (17), 180° (3)"""
    sizes = ", ".join(f"{name} ({size})" for name, size in scenario.clusters.items())
    words = f"{scenario.name}: {scenario.num_peers:,} peers{', ' if sizes else ''}{sizes}"
    measure = scenario.measure
    if measure.name in ("accuracy", "score"):
        return words
    return f"{words}; {measure.label()}{'' if measure.higher_is_better else ', lower is better'}"


def _rows(found: Findings) -> list[tuple[ScenarioFindings, MethodFindings]]:
    return [(scenario, each) for scenario in found.scenarios for each in scenario.methods]


_BETTER = "significantly better than"


def _columns(found: Findings) -> list[Column]:
    """All columns of which something is known."""
    rows = _rows(found)

    def scores(heading: str, quantity: Measured) -> Column:
        return Column(heading, [_score(each.over_seeds(quantity, scenario.measure)) for scenario, each in rows])

    def costs(heading: str, quantity: Measured, form: Callable[[float | None], str]) -> Column:
        return Column(heading, [form(each.mean(quantity)) for _, each in rows])

    names = {scenario.measure.label() for scenario in found.scenarios if scenario.methods}
    columns = [
        scores(names.pop() if len(names) == 1 else "score", "score"),
        scores("worst\ntenth", "worst_tenth"),
        scores("worst\ncluster", "worst_cluster"),
        scores("gap", "gap"),
        scores("fair", "fair"),
        costs("received", "models_received", lambda value: "–" if value is None else f"{value:,.0f}"),
        costs("MB", "bytes_received", lambda value: "–" if value is None else f"{value / 1e6:,.1f}"),
        costs("work", "forward_passes", thousands),
        Column("tested", [each.form or "–" for _, each in rows]),
        Column(_BETTER, [", ".join(scenario.worse_than(each.method)) or "–" for scenario, each in rows]),
    ]
    return columns[:1] + [column for column in columns[1:] if set(column.cells) != {"–"}]


def _score(value: Interval | None) -> str:
    return value.brief() if value else "–"

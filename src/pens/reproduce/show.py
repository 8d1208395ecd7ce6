# SPDX-License-Identifier: Apache-2.0
"""Plans and comparisons as tables, for a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from pens.measuring.metrics import Interval
from pens.paper.exhibits import PAPER_ORDER, PLUS
from pens.paper.verdicts import PAPER_SEEDS, RULE, PaperVerdict
from pens.planning.show import plain_table, plan_table
from pens.planning.versions import computed_lines
from pens.report.words import count, thousands
from pens.reproduce.compare import Beside, ColumnFindings, Comparison, Finding, agreement_counts, name_of_rules
from pens.reproduce.keep import outdated
from pens.reproduce.run import Reproduction
from pens.settings.schema import EngineSettings


def plan_tables(plan: Reproduction) -> Iterator[tuple[str, Table]]:
    """The runs that each table or figure needs, and how many of them are complete.  (title, table)"""
    for exhibit in plan.request.exhibits:
        asked = {m for c in exhibit.columns for m in plan.request.methods_of(c)}
        if methods := [m for m in (*PAPER_ORDER, *PLUS) if m in asked]:
            yield exhibit.title, plan_table(plan, exhibit.name, methods)


_VERDICT_STYLES = {"does not differ": "green", "above": "yellow", "below": "yellow"}
_FIRST_TO_GO = ("detect-\nable", "seeds", "received", "work")
"""The columns that a narrow terminal leaves out."""


class _Column(NamedTuple):
    """One column of a comparison, with a cell for each number."""

    heading: str
    source: str
    """The source of its cells: the paper, ours, or the results beside ours."""
    cells: list[str | PaperVerdict]

    @property
    def width(self) -> int:
        return max(map(len, (*self.heading.split("\n"), *map(str, self.cells))))


def comparison_table(comparison: Comparison, beside: Beside | None = None, width: int = 80) -> Table:
    """Every cell: ours, the paper's, the verdict, and what ours cost; no wider than `width`, where leaving out some
    columns achieves that."""
    names = [_row_name(column, finding) for column in comparison.columns for finding in column.findings]
    headings = [column.label for column in comparison.columns if column.has_heading]
    first = max(map(len, (*names, *headings)))
    columns = _columns(comparison, beside)

    def is_too_wide(gap: int) -> bool:
        return first + sum(gap + column.width for column in columns) > width

    table = plain_table(pad=0 if is_too_wide(2) else 1)
    for one in [column for heading in _FIRST_TO_GO for column in columns if column.heading == heading]:
        if is_too_wide(1):
            columns.remove(one)
    if is_too_wide(1):
        columns = [column._replace(cells=list(map(_shortened, column.cells))) for column in columns]
    table.add_column("", no_wrap=True)
    for heading, _, _ in columns:
        table.add_column(heading, justify="left" if heading == "verdict" else "right", no_wrap=True)
    at = 0
    for group in comparison.columns:
        if group.has_heading:
            table.add_row(group.label, style="bold")
        for _ in group.findings:
            table.add_row(names[at], *(_styled(column.cells[at]) for column in columns))
            at += 1
    return table


def comparison_markdown(comparison: Comparison, beside: Beside | None = None) -> str:
    """A comparison as a table in Markdown, with all columns."""
    columns = _columns(comparison, beside)
    labels = [c.label if i == 0 else "" for c in comparison.columns for i, _ in enumerate(c.findings)]
    names = [finding.name for _, finding in comparison.findings]
    headings = ["setting", "of pens" if _is_agreement(comparison) else "method"]
    for heading, source, _ in columns:
        name = heading.replace("-\n", "").replace("\n", " ")
        headings.append(f"{name} ({source})" if beside and not heading.endswith("%") else name)
    sides = ["---", "---", *("---" if column.heading == "verdict" else "---:" for column in columns)]
    rows = zip(labels, names, *([str(cell) for cell in column.cells] for column in columns), strict=True)
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, sides, *rows))


def comparison_notes(comparison: Comparison, beside: Beside | None = None) -> list[str]:
    """Notes that explain the numbers of a comparison."""
    notes = []
    changed = [f"{key} = {value}" for key, value in comparison.changed.items() if not _is_of_engine(key)]
    if changed:
        whose = name_of_rules(comparison.changed)
        what = f"By the {whose}' rules" if whose else "A trial with other settings than the paper's"
        notes.append(f"{what}: {', '.join(changed)}.")
    if any(finding.quantity == "own cluster" for _, finding in comparison.findings):
        notes.append("The share of merged models that came from a peer of the receiver's own cluster.")
    if any(finding.paper for _, finding in comparison.findings):
        notes.append(_counted("Ours", comparison))
        if beside:
            notes.append(_counted(f"By the {beside.label}", beside.comparison))
        notes.append(
            f"{RULE} Detectable (where there is room): the smallest difference that the test detects, in points."
        )
    if any(finding.cost for _, finding in comparison.findings):
        notes.append(
            "Received and work are those of one peer: models, and thousand forward passes of a sample, where training "
            "on a sample counts as three; – where a file was kept before pens recorded them."
        )
    return [*notes, *computed_lines(comparison.devices, comparison.versions)]


def _counted(whose: str, comparison: Comparison) -> str:
    """How many cells agree with the paper: Ours, over 4 seeds: 6 of 10 cells do not differ from the paper's, 4
    differ."""
    same, differ, open_ = agreement_counts([finding for _, finding in comparison.findings])
    rest = f", {open_} cannot be compared (not run, or too few seeds)" if open_ else ""
    seeds = f"{whose}, over {'up to ' if open_ else ''}{count(len(comparison.planned_seeds), 'seed')}"
    total, verb = same + differ + open_, "differs" if differ == 1 else "differ"
    return f"{seeds}: {same} of {total} cells do not differ from the paper's, {differ} {verb}{rest}."


def outdated_lines(kept: Comparison, folder: Path) -> list[str]:
    """The kept results that would differ if they were run today, and the command that runs them; empty where there are
    none."""
    if not (reasons := outdated(kept)):
        return []
    methods = ",".join(dict.fromkeys(f.method for _, f in kept.findings if f.values))
    seeds = f" --seeds {len(kept.planned_seeds)}" if len(kept.planned_seeds) != PAPER_SEEDS else ""
    same = " with the same --set" if kept.changed else ""
    again = f"pens reproduce {kept.name} --methods {methods}{seeds} --keep {folder} --fill{same} runs it again"
    return ["outdated:", *reasons, again]


def _is_of_engine(key: str) -> bool:
    """Whether a setting only says how numbers are computed."""
    return key.rpartition(".")[2] in EngineSettings.model_fields


def _is_agreement(comparison: Comparison) -> bool:
    return all(finding.quantity in ("precision", "recall") for _, finding in comparison.findings)


def _columns(comparison: Comparison, beside: Beside | None) -> list[_Column]:
    """The columns of a comparison. With results beside ours, the paper's come first."""
    cells = comparison.findings
    paper = _Column("paper %", "paper", [finding.paper.short() if finding.paper else "–" for _, finding in cells])
    if not beside:
        ours = _source("ours", [finding for _, finding in cells], comparison, Interval.brief)
        return [ours[0], paper, *ours[1:]]
    others = [beside.finding(label, finding) for label, finding in cells]
    return [
        paper,
        *_source(beside.label, others, beside.comparison, Interval.short),
        *_source("ours", [finding for _, finding in cells], comparison, Interval.short),
    ]


def _source(
    name: str, findings: Sequence[Finding | None], whose: Comparison, form: Callable[[Interval], str]
) -> list[_Column]:
    """The columns of one source of numbers."""
    costs = [finding.cost if finding else None for finding in findings]
    columns: list[tuple[str, list[str | PaperVerdict]]] = [
        (name.replace(" ", "\n") + " %", [form(f.ours) if f and f.ours else "–" for f in findings]),
        ("verdict", [finding.verdict if finding else "–" for finding in findings]),
        ("detect-\nable", [_points(finding.verdict.detectable) if finding else "–" for finding in findings]),
    ]
    if any(costs):
        columns.append(("received", [f"{cost.models_received:,.0f}" if cost else "–" for cost in costs]))
        columns.append(("work", [thousands(cost.work) if cost else "–" for cost in costs]))
    if any(finding and len(finding.seeds) < len(whose.planned_seeds) for finding in findings):
        columns.append(("seeds", [_seeds(finding, whose) if finding else "–" for finding in findings]))
    return [_Column(heading, name, cells) for heading, cells in columns]


def _points(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _seeds(finding: Finding, comparison: Comparison) -> str:
    planned = len(comparison.planned_seeds)
    return str(planned) if len(finding.seeds) == planned else f"{len(finding.seeds)} of {planned}"


def _styled(cell: str | PaperVerdict) -> str:
    if isinstance(cell, str):
        return escape(cell)
    style = _VERDICT_STYLES.get(cell.outcome, "dim")
    return f"[{style}]{cell}[/]"


def _shortened(cell: str | PaperVerdict) -> str | PaperVerdict:
    return "no diff. seen" if isinstance(cell, PaperVerdict) and cell.agrees else cell


def _row_name(column: ColumnFindings, finding: Finding) -> str:
    return f"  {finding.name}" if column.has_heading else column.label

"""Plans and comparisons as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from pens.config import PLUS, EngineSettings, Method
from pens.report.paper import PAPER_SEEDS
from pens.report.section import count
from pens.report.tables import duration
from pens.reproduce.compare import Comparison, Finding
from pens.reproduce.keep import outdated
from pens.reproduce.plan import PAPER_ORDER, Column, Exhibit
from pens.reproduce.run import Reproduction, Work


def plan_tables(plan: Reproduction) -> Iterator[tuple[str, Table]]:
    """Which runs each table or figure needs, and how many of them are there.  (title, table)"""
    works = {(work.exhibit, work.label): work for work in plan.works()}
    for exhibit in plan.request.exhibits:
        asked = {m for c in exhibit.columns for m in plan.request.methods_of(c)}
        methods = [m for m in (*PAPER_ORDER, *PLUS) if m in asked]
        if not methods:
            continue
        table = _plain_table()
        table.add_column("setting", no_wrap=True)
        for method in methods:
            table.add_column(method, justify="right", no_wrap=True)
        table.add_column("to run", justify="right")
        for column in exhibit.columns:
            cells = [_complete(plan, exhibit, column, method) for method in methods]
            own = works.get((exhibit.name, column.label))
            table.add_row(column.label, *cells, _to_run(plan, exhibit, column, own))
        yield exhibit.title, table


def plan_words(plan: Reproduction) -> str:
    """60 runs, 12 of them complete; 48 to run, about 1 h 05 min."""
    works, needed = plan.works(), set()
    for exhibit in plan.request.exhibits:
        for column in exhibit.columns:
            settings = column.settings(plan.request.changed)
            needed |= {(settings, *run) for run in plan.wanted(exhibit, column)}
    missing = sum(len(work.missing) for work in works)
    told = f"{count(len(needed), 'run')} in all, each counted once; {len(needed) - missing} complete, {missing} to run"
    return f"{told}: {_time(plan, works)}." if missing else f"{told}."


def comparison_table(comparison: Comparison) -> Table:
    """Every cell: ours, the paper's, and whether the intervals overlap."""
    table = _plain_table()
    table.add_column("setting", no_wrap=True)
    table.add_column("of pens" if _is_agreement(comparison) else "method", no_wrap=True)
    for heading in ("ours %", "paper %"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("intervals", no_wrap=True)
    table.add_column("seeds", justify="right", no_wrap=True)
    before = ""
    for label, finding in comparison.findings:
        table.add_row("" if label == before else label, *_finding_cells(comparison, finding))
        before = label
    return table


def comparison_notes(comparison: Comparison) -> list[str]:
    """What a reader must know of the numbers."""
    notes = []
    changed = [f"{key} = {value}" for key, value in comparison.changed.items() if not _is_of_engine(key)]
    if changed:
        notes.append(f"A trial, not the paper's settings: {', '.join(changed)}.")
    if any(finding.quantity == "own kind" for _, finding in comparison.findings):
        notes.append("The share of merged models that came from a peer of the receiver's own kind.")
    if any(len(finding.seeds) == 1 and finding.paper for _, finding in comparison.findings):
        notes.append("With one seed there is no interval: its value is compared as a point.")
    if comparison.devices:
        versions = ", ".join(f"{name} {version}" for name, version in comparison.versions.items())
        notes.append(f"On {', '.join(comparison.devices)}; {versions}.")
    return notes


def not_run_lines(plan: Reproduction) -> list[str]:
    """Which runs are missing, and how to go on; nothing where none is."""
    works = plan.works()
    if not works:
        return []
    missing = sum(len(work.missing) for work in works)
    lines = [f"{count(missing, 'run')} not run; the same command goes on with them:"]
    return lines + [f"  {work.exhibit}, {work.label}: {_missing_words(plan, work)}" for work in works]


def outdated_lines(kept: Comparison, folder: Path) -> list[str]:
    """What of a kept file would come out otherwise today, and the command that runs it; nothing where nothing would."""
    if not (found := outdated(kept)):
        return []
    methods = ",".join(dict.fromkeys(f.method for _, f in kept.findings if f.values))
    seeds = f" --seeds {len(kept.planned_seeds)}" if len(kept.planned_seeds) != PAPER_SEEDS else ""
    same = " with the same --set" if kept.changed else ""
    again = f"pens reproduce {kept.name} --methods {methods}{seeds} --keep {folder} --fill{same} runs it again"
    return ["outdated:", *found, again]


def _missing_words(plan: Reproduction, work: Work) -> str:
    """pens, local: seed 0 1 2 3; random: seed 3; begun and saved: pens seed 0"""
    words = [f"{', '.join(methods)}: seed {' '.join(map(str, seeds))}" for methods, seeds in work.stacks]
    place = plan.store.find(work.settings)
    begun = [f"{m} seed {seed}" for m, seed in work.missing if place and place.run(m, seed).seconds_spent()]
    return "; ".join(words + ([f"begun and saved: {', '.join(begun)}"] if begun else []))


def _plain_table() -> Table:
    """Narrow enough for all columns to fit on 80."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)


def _is_of_engine(key: str) -> bool:
    """Whether a setting only says how numbers are computed."""
    return key.rpartition(".")[2] in EngineSettings.model_fields


def _is_agreement(comparison: Comparison) -> bool:
    return all(finding.quantity in ("precision", "recall") for _, finding in comparison.findings)


def _finding_cells(comparison: Comparison, finding: Finding) -> tuple[str, ...]:
    name = finding.quantity if _is_agreement(comparison) else finding.method
    ours = finding.ours.percent() if finding.ours else "–"
    paper = finding.paper.percent() if finding.paper else "–"
    verdict = finding.verdict
    colour = {"overlap": "green", "not run": "dim"}.get(verdict, "yellow" if finding.paper else "")
    planned = len(comparison.planned_seeds)
    seeds = str(planned) if len(finding.seeds) == planned else f"{len(finding.seeds)} of {planned}"
    return name, ours, paper, f"[{colour}]{verdict}[/]" if colour else verdict, seeds


def _complete(plan: Reproduction, exhibit: Exhibit, column: Column, method: str) -> str:
    wanted = [run for run in plan.wanted(exhibit, column) if run[0] == method]
    return f"{_count_complete(plan, column, wanted)}/{len(wanted)}" if wanted else ""


def _count_complete(plan: Reproduction, column: Column, runs: Sequence[tuple[Method, int]]) -> int:
    return sum(plan.is_there(column, method, seed) for method, seed in runs)


def _to_run(plan: Reproduction, exhibit: Exhibit, column: Column, work: Work | None) -> str:
    """The column's own missing runs; those that stand above already are not counted again."""
    if work:
        return f"{len(work.missing)}, {_time(plan, [work])}"
    wanted = plan.wanted(exhibit, column)
    return "nothing" if _count_complete(plan, column, wanted) == len(wanted) else "as above"


def _time(plan: Reproduction, works: list[Work]) -> str:
    seconds = [s for work in works for s in plan.seconds(work)]
    known = [s for s in seconds if s is not None]
    if not known:
        return "time unknown"
    unknown = len(seconds) - len(known)
    return f"about {duration(sum(known))}" + (f" and {count(unknown, 'run')} of unknown time" if unknown else "")

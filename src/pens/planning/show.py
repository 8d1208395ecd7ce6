# SPDX-License-Identifier: Apache-2.0
"""Plans as tables and in words, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from pens.planning.identity import identity
from pens.planning.plan import MissingRuns, Plan, Wanted
from pens.report.words import count, duration
from pens.settings.tree import MethodName


def plan_table(plan: Plan, group: str, methods: Sequence[MethodName]) -> Table:
    """The runs that each setting of a group needs, and how many of them are complete."""
    table = plain_table()
    table.add_column("setting", no_wrap=True)
    for method in methods:
        table.add_column(method, justify="right", no_wrap=True)
    table.add_column("to run", justify="right")
    works, by_label = plan.works(), dict[str, list[Wanted]]()
    for wanted in (each for each in plan.wanted if each.group == group):
        by_label.setdefault(wanted.label, []).append(wanted)
    for label, parts in by_label.items():
        cells = [_complete(plan, parts, method) for method in methods]
        table.add_row(label, *cells, _to_run(plan, parts, [w for w in works if (w.group, w.label) == (group, label)]))
    return table


def plan_words(plan: Plan) -> str:
    """The plan in a sentence: 60 runs in all, each counted once; 12 complete, 48 to run, about 1 h 05 min."""
    works = plan.works()
    needed = {(identity(wanted.settings), *run) for wanted in plan.wanted for run in wanted.runs}
    missing = sum(len(work.runs) for work in works)
    told = f"{count(len(needed), 'run')} in all, each counted once; {len(needed) - missing} complete, {missing} to run"
    return f"{told}: {_time(plan, works)}." if missing else f"{told}."


def not_run_lines(plan: Plan) -> list[str]:
    """The missing runs, and how to continue; empty where none is missing."""
    works = plan.works()
    if not works:
        return []
    missing = sum(len(work.runs) for work in works)
    lines = [f"{count(missing, 'run')} missing; repeat the same command to continue:"]
    return lines + [f"  {work.place}: {plan.missing_words(work)}" for work in works]


def plain_table(pad: int = 1) -> Table:
    """A table without borders, so that all columns fit on 80: `pad` and one space between columns."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, pad, 0, 0), pad_edge=False, show_edge=False)


def _complete(plan: Plan, parts: Sequence[Wanted], method: MethodName) -> str:
    wanted = [(part, seed) for part in parts for m, seed in part.runs if m == method]
    return f"{sum(plan.is_there(part, method, seed) for part, seed in wanted)}/{len(wanted)}" if wanted else ""


def _to_run(plan: Plan, parts: Sequence[Wanted], works: Sequence[MissingRuns]) -> str:
    """The missing runs of a setting. Those that an earlier row lists are not counted again."""
    if works:
        return f"{sum(len(work.runs) for work in works)}, {_time(plan, works)}"
    there = all(plan.is_there(part, *run) for part in parts for run in part.runs)
    return "nothing" if there else "as above"


def _time(plan: Plan, works: Sequence[MissingRuns]) -> str:
    seconds = [s for work in works for s in plan.seconds(work)]
    known = [s for s in seconds if s is not None]
    if not known:
        return "time unknown"
    unknown = len(seconds) - len(known)
    return f"about {duration(sum(known))}" + (f" and {count(unknown, 'run')} of unknown time" if unknown else "")

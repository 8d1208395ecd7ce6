# SPDX-License-Identifier: Apache-2.0
"""The tables that `pens run` and `pens bench` print."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pens.engine.bench import BenchResult
from pens.measuring.fairness import fair_measure, fair_words
from pens.measuring.metrics import FEWEST_SEEDS, Interval
from pens.measuring.results import ExperimentResult, RunResult, Summary
from pens.methods.names import selecting
from pens.report.discovered import discover
from pens.report.words import duration, server_words, size
from pens.settings.tree import MethodName
from pens.tasks.metric import ACCURACY, Measure

_LAST_TO_GO = ("recall\n%", "precision\n%")

_MOST_GROUPS, _MOST_NAMES = 12, 12


def results_table(rows: Sequence[Summary], title: str, width: int) -> Table:
    """One row per method: the main metric, mean over peers ± half the 95 % confidence interval over seeds, and the
    cost of a peer.

    A table that would be wider than `width` leaves out some columns, so that no number is cut short.
    """
    measure = rows[0].score.measure
    worst = f"worst\ntenth {measure.unit}".rstrip()
    evenly = {
        f"worst\ncluster {measure.unit}".rstrip(): [_optional(row.worst_cluster) for row in rows],
        "gap of\nclusters": [_optional(row.gap) for row in rows],
        _heading(fair_measure(measure)): [_optional(row.fair) for row in rows],
    }
    shared = [of.measure for of in rows[0].further]
    further = {_heading(of): [row.further[i].brief() for row in rows] for i, of in enumerate(shared)}
    columns: dict[str, list[str]] = {
        "method": [row.method for row in rows],
        _heading(measure): [row.score.brief() for row in rows],
        worst: [row.worst_tenth.brief() for row in rows],
        **{heading: cells for heading, cells in evenly.items() if set(cells) != {"–"}},
        **further,
        "precision\n%": [_optional(row.precision) for row in rows],
        "recall\n%": [_optional(row.recall) for row in rows],
        "models\nreceived": [f"{row.models_received:,.0f}" for row in rows],
        "MB\nreceived": [f"{row.bytes_received / 1e6:,.1f}" for row in rows],
        "work,\nk passes": ["–" if row.work is None else f"{row.work / 1e3:,.0f}" for row in rows],
        "models\nmerged": [f"{row.models_merged:,.0f}" for row in rows],
        "mean\nbatch": [f"{row.mean_batch:.1f}" for row in rows],
        "time": [duration(row.seconds) for row in rows],
    }
    if not any(row.precision or row.recall for row in rows):
        del columns["precision\n%"], columns["recall\n%"]
    first_to_go = (
        "mean\nbatch",
        *reversed(evenly),
        "models\nmerged",
        "MB\nreceived",
        "time",
        *reversed(further),
        worst,
        *_LAST_TO_GO,
    )
    return narrow_table(columns, title, width, first_to_go)


def _heading(measure: Measure) -> str:
    """A metric over its unit, of two words one over the other."""
    return f"{measure.name}\n{measure.unit}".rstrip() if measure.unit else measure.name.replace(" ", "\n", 1)


def narrow_table(
    columns: Mapping[str, Sequence[str]],
    title: str,
    width: int,
    first_to_go: Sequence[str],
    words: Collection[str] = ("method",),
    styles: Sequence[str] | None = None,
) -> Table:
    """Columns as a table that is no wider than `width`, where leaving out some columns achieves that.

    `words`: headings of columns that hold no numbers. `styles`: one for each row.
    """
    shown = dict(columns)
    for heading in (heading for heading in first_to_go if heading in shown):
        if _width(shown) > width:
            del shown[heading]
    table = Table(title=title, title_justify="left")
    for heading in shown:
        table.add_column(heading, justify="left" if heading in words else "right", no_wrap=True)
    rows = list(zip(*shown.values(), strict=True))
    for cells, style in zip(rows, styles or [""] * len(rows), strict=True):
        table.add_row(*cells, style=style)
    return table


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    """The width of a table with borders."""
    return 1 + sum(3 + max(map(len, (*heading.split("\n"), *cells))) for heading, cells in columns.items())


def print_results(
    console: Console, result: ExperimentResult, name: str, told: Collection[tuple[MethodName, int]] = ()
) -> None:
    """The table of an experiment on the data set `name`, what its columns mean, and what the runs warn of, without
    those of which that was told already."""
    seeds = len({run.seed for run in result.runs})
    title = f"{name}: {_peers_words(result.runs[0])}, {seeds} seed{'s' if seeds > 1 else ''}"
    table = results_table(result.table, escape(title), console.width)
    console.print(table)
    selected = any(row.precision for row in result.table)
    console.print(
        f"{legend(result.runs[0].metric)}{' precision, recall: of the selected neighbours.' if selected else ''}",
        style="dim",
    )
    if any("cluster" in str(column.header) for column in table.columns):
        console.print(fair_words(result.runs[0].metric), style="dim")
    if seeds < FEWEST_SEEDS:
        console.print(
            f"With fewer than {FEWEST_SEEDS} seeds there is no interval; the values of two seeds are in brackets.",
            style="dim",
        )
    for words in filter(None, map(server_words, result.by_method())):
        console.print(words, style="dim", markup=False)
    for line in group_lines(result):
        console.print(line, style="dim", markup=False, soft_wrap=True)
    peak = max(result.runs, key=lambda run: run.peak_memory_bytes)
    console.print(
        f"peak memory: {size(peak.peak_memory_bytes)} ({peak.method} seed {peak.seed}, {peak.device})", style="dim"
    )
    for run in (run for run in result.runs if (run.method, run.seed) not in told):
        for message in run.warnings[:3]:
            console.print(f"[yellow]note[/yellow] {run.method} seed {run.seed}: {message}", soft_wrap=True)
        if len(run.warnings) > 3:
            console.print(
                f"[yellow]note[/yellow] {run.method} seed {run.seed}: … {len(run.warnings) - 3} more in result.json"
            )


def _peers_words(run: RunResult) -> str:
    """The peers and their clusters: 20 peers, clusters 0°, 180°; with unequal sizes, clusters 0° (16), 180° (4)"""
    sizes = run.cluster_sizes
    if not sizes:
        return f"{run.num_peers} peers"
    alike = len(set(sizes.values())) == 1
    names = [name if alike else f"{name} ({number})" for name, number in sizes.items()]
    return f"{run.num_peers} peers, clusters {', '.join(names)}"


def group_lines(result: ExperimentResult) -> list[str]:
    """Groups of peers found from their neighbour selections, when clusters are unknown."""
    if result.runs[0].clusters_known:
        return []
    lines = []
    for method in selecting(run.method for run in result.runs):
        runs = result.of(method)
        if (discovered := discover(runs)) is None:
            continue
        lines.append(f"clusters are not known; groups discovered from the neighbour selections of {method}:")
        for number, group in enumerate(discovered.groups[:_MOST_GROUPS], 1):
            names = ", ".join(runs[0].peer_label(peer) for peer in group[:_MOST_NAMES])
            lines.append(f"  group {number}: {names}{' …' if len(group) > _MOST_NAMES else ''}")
        if len(discovered.groups) > _MOST_GROUPS:
            lines.append(f"  … and {len(discovered.groups) - _MOST_GROUPS} more")
    return lines


def layers_table(result: BenchResult) -> Table:
    """The path that each layer of a network took, and its share of all layers' time in a training step."""
    table = Table(title=f"{result.network}, {result.num_parameters:,} numbers", title_justify="left")
    for heading in ("layer", "kind", "path", "ms", "share"):
        table.add_column(heading, justify="right" if heading in ("ms", "share") else "left")
    total = sum(result.costs.values())
    for name, kind, path in result.layers:
        cost = result.costs.get(name)
        told = ("", "") if cost is None else (f"{1000 * cost:.3f}", f"{100 * cost / total:.0f} %")
        table.add_row(escape(name or "(all)"), kind, path, *told)
    return table


def bench_table(result: BenchResult, peers: int, batch_size: int) -> Table:
    """The rates of the loop and of the stack, per second."""
    title = f"{result.device}: {peers} peers, batches of {batch_size}, per second"
    table = Table(title=title, title_justify="left")
    for heading in ("operation", "unit", "loop", "stack", "ratio", "TFLOP/s", "of peak"):
        table.add_column(heading, justify="left" if heading in ("operation", "unit") else "right")
    for row in result.rows:
        rates = f"{row.loop:,.0f}", f"{row.stack:,.0f}", f"{row.stack / row.loop:.1f} ×"
        work = (
            ("–", "–")
            if row.tflops is None
            else (f"{row.tflops:.3f}", f"{100 * row.tflops / result.peak_tflops:.1f} %")
        )
        table.add_row(row.operation, row.unit, *rates, *work)
    return table


LEGEND = (
    "accuracy: on each peer's own distribution, mean over peers ± 95 % interval over seeds.\n"
    "worst tenth: mean accuracy of the least accurate tenth of the peers.\n"
    "received, work, merged: per peer; work in thousand forward passes of a sample, training on one counts as three.\n"
    "mean batch: updates computed at once, on average."
)


def legend(measure: Measure) -> str:
    """What the columns of the table mean."""
    better = "" if measure.higher_is_better else " (lower is better)"
    if measure == ACCURACY:
        return LEGEND
    words = LEGEND.replace("mean accuracy of the least accurate tenth", "mean of the worst tenth")
    return words.replace("accuracy:", f"{measure.name}{better}:")


def _optional(value: Interval | None) -> str:
    return value.brief() if value else "–"

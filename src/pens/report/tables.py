"""The table that ends a run."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from pens.bench import BenchResult
from pens.metrics import Interval
from pens.results import Summary


def results_table(rows: Sequence[Summary], title: str) -> Table:
    """One row per method. Accuracy is in per cent: mean over peers, ± half the 95 % confidence interval over seeds."""
    table = Table(title=title, title_justify="left")
    table.add_column("method", no_wrap=True, min_width=7)
    headings = ("accuracy\n%", "worst\ntenth %", "precision\n%", "recall\n%", "models\nmerged", "mean\nbatch", "time")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.method,
            row.accuracy.percent(),
            row.worst_tenth.percent(),
            _optional(row.precision),
            _optional(row.recall),
            f"{row.models_merged:,.0f}",
            f"{row.mean_batch:.1f}",
            duration(row.seconds),
        )
    return table


def layers_table(result: BenchResult) -> Table:
    """Which path each layer of a network took, and its share of all layers' time in a training step."""
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
    """Loop against stack, per second."""
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
    "accuracy: on each peer's own distribution, mean over peers ± 95 % interval over seeds; worst tenth: of peers.\n"
    "precision, recall: of the selected neighbours. models merged: per peer. mean batch: a run's peers at once."
)


def duration(seconds: float) -> str:
    """3.2 s, 4 min 05 s, 2 h 10 min"""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def size(num_bytes: int) -> str:
    """340 MB, 2.9 GB"""
    return f"{num_bytes / 1e6:.0f} MB" if num_bytes < 1e9 else f"{num_bytes / 1e9:.1f} GB"


def _optional(value: Interval | None) -> str:
    return value.percent() if value else "–"

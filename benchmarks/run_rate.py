# SPDX-License-Identifier: Apache-2.0
"""Measures peer-steps a second of whole runs, with merging, validation and bookkeeping: rounds against async.

    python benchmarks/run_rate.py PRESET METHOD SEEDS [KEY=VALUE …]

No peer stops early. A short run goes first. Its end has batches of all small sizes, too, so that all kernels are
compiled (once per machine). The rate is measured from a tenth of the run to its end, so that reading the data does not
count. Recording steps counts, and so do the small batches at the end of an async run.
"""

from __future__ import annotations

import sys
import time

import pens
from pens.experiment.observer import Observer
from pens.experiment.presets import resolve_settings
from pens.settings.reading import parse_assignments
from pens.settings.tree import MethodName


class Clock(Observer):
    """When which share of all updates was done, over all seeds."""

    def __init__(self) -> None:
        self.shares: dict[int, float] = {}
        self.seen: list[tuple[float, float]] = []

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        self.shares[seed] = fraction
        self.seen.append((time.perf_counter(), sum(self.shares.values()) / len(self.shares)))


def rate(preset: str, method: str, seeds: int, overrides: dict[str, object]) -> tuple[float, float, float]:
    """Client-steps a second, mean batch, peak memory in GB."""
    settings = resolve_settings(preset).replace({"patience": 1_000_000, **overrides})
    pens.run(settings.replace({"rounds": 3}), methods=method, seeds=seeds)
    clock = Clock()
    runs = pens.run(settings, methods=method, seeds=seeds, observer=clock).runs
    per_epoch = -(-settings.scenario.train_per_peer // settings.training.batch_size)
    updates = sum(len(run.history.time) for run in runs)
    begin = next(entry for entry in clock.seen if entry[1] >= 0.1)
    seconds, share = clock.seen[-1][0] - begin[0], 1 - begin[1]
    steps = updates * per_epoch * settings.training.epochs * share
    return steps / seconds, sum(r.mean_batch for r in runs) / len(runs), runs[0].peak_memory_bytes / 1e9


def main(preset: str, method: str, seeds: str, *assignments: str) -> None:
    rates = {}
    for schedule in ("rounds", "async"):
        overrides = {**parse_assignments(assignments), "schedule": schedule}
        rates[schedule], batch, memory = rate(preset, method, int(seeds), overrides)
        print(
            f"{preset} {method}, {seeds} seed(s), {schedule}: {rates[schedule]:,.0f} peer-steps a second, "
            f"mean batch {batch:.1f}, peak memory {memory:.1f} GB",
            flush=True,
        )
    print(f"async / rounds: {rates['async'] / rates['rounds']:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])

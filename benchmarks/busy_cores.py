# SPDX-License-Identifier: Apache-2.0
"""Measures short work while other processes keep the cores busy: with PyTorch's number of threads, and with one.

    PYTHONPATH=src python benchmarks/busy_cores.py [BUSY …]

BUSY: how many processes compute beside it, by default 0 and as many as there are cores. The work is a run of six peers
(stack), and an epoch of three peers one after the other (loop). Each figure is the median of three processes. The two
settings take turns, so that other work on the machine affects both alike. Seconds are given by the clock and of the
processor, imports left out. Threads that spin while they wait increase the seconds of the processor.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from contextlib import ExitStack

from pens.processors import usable_cores

_BUSY = "while True: pass"
_STACK = """
import time, pens
small = {"peers": 6, "n_peers": 2, "rounds": 2, "epochs": 1}
wall, used = time.perf_counter(), time.process_time()
pens.run("digits", methods="random", overrides=small, device="cpu")
print(time.perf_counter() - wall, time.process_time() - used)
"""
_LOOP = """
import time, numpy as np, torch
from pens.data.samples import Samples
from pens.engine.training import LoopEngine, Recipe, SampleStack, StackedNetwork
from pens.nets import DigitsCNN
some = np.random.default_rng(0)
holders = [Samples(some.normal(size=(40, 1, 8, 8)).astype(np.float32), some.integers(0, 10, 40)) for _ in range(3)]
data = SampleStack(holders, torch.device("cpu"))
def train():
    LoopEngine(network).train(rows, data, [0, 1, 2], [0, 1, 2], 1, Recipe("adam", 1e-3, 0.0, 0.0, 8))
threads = torch.get_num_threads()
torch.set_num_threads(1)
network = StackedNetwork(DigitsCNN, data.x[0, :3], 10, stacked=False)
rows = torch.stack([network.new_row(seed) for seed in range(3)])
train()  # imports what it needs
torch.set_num_threads(threads)
wall, used = time.perf_counter(), time.process_time()
train()
print(time.perf_counter() - wall, time.process_time() - used)
"""
_LIMIT_S = 120


def seconds(work: str, threads: int | None) -> tuple[float, float]:
    """Seconds that one process takes, by the clock and of the processor; infinite where it exceeds the limit."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    environment |= {"OMP_NUM_THREADS": str(threads)} if threads else {}
    try:
        done = subprocess.run(
            [sys.executable, "-c", work], env=environment, capture_output=True, timeout=_LIMIT_S, check=True
        )
    except subprocess.TimeoutExpired:
        return float("inf"), float("inf")
    wall, used = done.stdout.split()
    return float(wall), float(used)


def medians(runs: list[tuple[float, float]]) -> tuple[float, float]:
    walls, useds = zip(*runs, strict=True)
    return statistics.median(walls), statistics.median(useds)


def compare(work: str) -> str:
    turns = [(seconds(work, None), seconds(work, 1)) for _ in range(3)]
    usual, one = (medians([turn[i] for turn in turns]) for i in range(2))
    return (
        f"{usual[0]:.2f} s ({usual[1]:.2f} of the processor) with PyTorch's threads, "
        f"{one[0]:.2f} s ({one[1]:.2f}) with one: {usual[0] / one[0]:.1f} times as long"
    )


def main(*busy: str) -> None:
    for count in [int(text) for text in busy] or [0, usable_cores()]:
        with ExitStack() as others:
            for _ in range(count):
                others.callback(subprocess.Popen([sys.executable, "-c", _BUSY]).kill)
            for name, work in (("stack", _STACK), ("loop", _LOOP)):
                print(f"{count} busy, {name}: {compare(work)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What a short run costs when other processes keep the cores busy: PyTorch's usual number of threads against one.

    PYTHONPATH=src python benchmarks/busy_cores.py [BUSY …]

BUSY: how many processes compute beside it, by default 0 and as many as there are cores. Each figure is the median of
three runs, which take turns: what else the machine does meets both alike. Wall-clock seconds and seconds of the
processor, without importing. Threads that spin while they wait are seen in the second.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from contextlib import ExitStack

from pens.processors import usable_cores

_BUSY = "while True: pass"
_RUN = """
import sys, time
import pens
small = {"peers": 6, "n_peers": 2, "rounds": 2, "epochs": 1, "backend": sys.argv[1]}
wall, used = time.perf_counter(), time.process_time()
pens.run("digits", methods="random", overrides=small, device="cpu")
print(time.perf_counter() - wall, time.process_time() - used)
"""
_LIMIT_S = 120


def seconds(backend: str, threads: int | None) -> tuple[float, float]:
    """Of one run: by the clock, and of the processor; infinite where it does not end."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    environment |= {"OMP_NUM_THREADS": str(threads)} if threads else {}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _RUN, backend], env=environment, capture_output=True, timeout=_LIMIT_S, check=True
        )
    except subprocess.TimeoutExpired:
        return float("inf"), float("inf")
    wall, used = done.stdout.split()
    return float(wall), float(used)


def medians(runs: list[tuple[float, float]]) -> tuple[float, float]:
    walls, useds = zip(*runs, strict=True)
    return statistics.median(walls), statistics.median(useds)


def compare(backend: str) -> str:
    turns = [(seconds(backend, None), seconds(backend, 1)) for _ in range(3)]
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
            for backend in ("stack", "loop"):
                print(f"{count} busy, {backend}: {compare(backend)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

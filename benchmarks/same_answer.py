# SPDX-License-Identifier: Apache-2.0
"""Compares real peers with the async simulator: accuracy, and precision of the neighbours, over seeds.

PYTHONPATH=src python benchmarks/same_answer.py [--seeds 4] [--minutes 2] [--set KEY=VALUE …] [--out DIR]

Real peers of `pens up` run on loopback, one seed after the other. Then the simulator runs with the same settings and
seeds: the same data, the same rules, the same Δ. Virtual latency and training time are those of loopback, some
milliseconds and a quarter of Δ. Real peers draw from random streams of their certificates' names, simulated peers from
streams of their numbers, so two runs agree no more than two seeds do. The program prints each seed, both means with
their 95 % intervals over seeds, and the mean of the differences, paired by seed, with its interval.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pens
from pens.measuring.metrics import interval
from pens.measuring.results import ExperimentResult, RunResult
from pens.storage.runlog import ExperimentDir


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=2.0, help="of each federation")
    parser.add_argument("--peers", type=int, default=8)
    parser.add_argument("--preset", default="digits")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--out", type=Path, help="keep all folders here")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        compare(chosen, chosen.out or Path(temporary))


def compare(chosen: argparse.Namespace, folder: Path) -> None:
    real = [federation(chosen, folder / f"real-{seed}", seed) for seed in range(chosen.seeds)]
    settings = ExperimentDir(folder / "real-0" / "run").read().settings
    delta = settings.timing.interval
    virtual_times = {"timing.latency": 0.005, "timing.training_time": delta / 4}
    simulated = pens.run(
        settings, methods=["local", "pens"], seeds=chosen.seeds, overrides=virtual_times, out=folder / "simulated"
    )
    report(real, simulated)


def federation(chosen: argparse.Namespace, folder: Path, seed: int) -> RunResult:
    options = ["--peers", str(chosen.peers), "--preset", chosen.preset, "--seed", str(seed), "--out", str(folder)]
    options += ["--minutes", str(chosen.minutes), *(["--set", *chosen.changes] if chosen.changes else [])]
    command = [sys.executable, "-m", "pens", "up", *options]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return ExperimentDir(folder / "run").results()[0]


def report(real: Sequence[RunResult], simulated: ExperimentResult) -> None:
    virtual, alone = simulated.of("pens"), simulated.of("local")
    print("       accuracy %                  precision %")
    print("seed   real  simulated  alone      real  simulated")
    for here, there, local in zip(real, virtual, alone, strict=True):
        accuracies = (
            f"{_percent(here.mean_accuracy)} {_percent(there.mean_accuracy, 10)} {_percent(local.mean_accuracy)}"
        )
        print(f"{here.seed:4} {accuracies}    {_percent(precision(here))} {_percent(precision(there), 10)}")
    _compare("accuracy", [run.mean_accuracy for run in real], [run.mean_accuracy for run in virtual])
    _compare("precision", [precision(run) for run in real], [precision(run) for run in virtual])
    print(f"accuracy alone: {interval([run.mean_accuracy for run in alone]).percent()} %")


def precision(run: RunResult) -> float:
    return run.agreement.precision if run.agreement else float("nan")


def _compare(what: str, here: Sequence[float], there: Sequence[float]) -> None:
    differences = interval([a - b for a, b in zip(here, there, strict=True)])
    means = f"real {interval(here).percent()} %, simulated {interval(there).percent()} %"
    print(f"{what}: {means}, difference {differences.percent()}")


def _percent(value: float, width: int = 6) -> str:
    return f"{100 * value:{width}.1f}"


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Measures how large the batches of `schedule=async` are, and estimates their cost on a GPU, without any training.

    PYTHONPATH=. python benchmarks/async_batches.py cifar-10 40 1

The arguments are a preset, a number of rounds, and how many seeds are computed together; no peer stops early. A step of
K peers is assumed to cost a + b · K. The last column compares peer-steps a second with those of `rounds`, where all
peers of all these seeds are one batch.
"""

from __future__ import annotations

import sys

import numpy as np
from tests.fakes import fake_simulations

from pens.experiment.presets import preset
from pens.settings.tree import MethodName
from pens.simulation.simulator import advance_together

FIXED_MS, PER_PEER_MS = 0.1, 0.008  # of a step of the CIFAR-10 network on an H200


def measure(name: str, rounds: int, seeds: int, method: MethodName) -> None:
    base = preset(name).settings
    values = {"schedule": "async", "rounds": rounds, "patience": 10**6, "step1_epochs": base.step1_epochs}
    simulators, engine = fake_simulations(base.replace(values), method, range(seeds))
    while going := [s for s in simulators if not s.is_over()]:
        advance_together(going)
    peers, epochs = np.array(engine.batches).T
    everybody = seeds * base.scenario.peers
    best = (peers * epochs).sum() * (FIXED_MS / everybody + PER_PEER_MS)
    ratio = best / (epochs * (FIXED_MS + PER_PEER_MS * peers)).sum()
    spread = " ".join(f"{q:3.0f}" for q in np.percentile(peers, [5, 25, 50, 75, 95]))
    print(f"{method:7s} {peers.sum():6d} updates, mean batch {peers.mean():5.1f} ({spread}), {ratio:.2f} of rounds")


if __name__ == "__main__":
    for method in ("random", "oracle", "pens"):
        measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), method)

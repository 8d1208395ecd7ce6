# SPDX-License-Identifier: Apache-2.0
"""What a round costs per peer as peers become many: real training of random images, one method, on one device.

    python benchmarks/many_peers.py cifar-10|digits SAMPLES PEERS [PEERS …]

Peers hold overlapping slices of one array, so that the host's memory stays small; on the device each has its own.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import pens
from pens.data.samples import Samples
from pens.data.scenarios import Federation, PeerData
from pens.engine.bench import SHAPES, builtin_factory
from pens.experiment.observer import Observer
from pens.settings.tree import MethodName

ROUNDS = 3


class Rounds(Observer):
    """When each round was over."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        self.times.append(time.perf_counter())


def federation(network: str, samples: int, peers: int) -> Federation:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(50_000 + samples + 20, *SHAPES[network])).astype(np.float32)
    y = generator.integers(0, 10, len(x))
    starts = generator.integers(0, 50_000, peers)

    def part(start: int, count: int) -> Samples:
        return Samples(x[start : start + count], y[start : start + count])

    return Federation(
        peers=tuple(PeerData(part(s, samples), part(s + samples, 20)) for s in starts),
        clusters=tuple(int(p >= peers // 2) for p in range(peers)),
        tests=(part(0, 100), part(100, 100)),
        cluster_names=("first", "second"),
    )


def main(network: str, samples: str, *counts: str) -> None:
    for peers in map(int, counts):
        begun, rounds = time.perf_counter(), Rounds()
        (run,) = pens.run(
            {"rounds": ROUNDS, "patience": 1000, "n_peers": 20, "epochs": 3, "init": "common"},
            methods="random",
            data=federation(network, int(samples), peers),
            model=builtin_factory(network),
            observer=rounds,
        ).runs
        each = np.diff(rounds.times)[1:] / peers  # the first rounds compile and record
        print(
            f"{network}, {samples} samples: {peers:,} peers: {1e6 * np.median(each):.0f} µs per peer and round, "
            f"peak memory {run.peak_memory_bytes / 1e9:.2f} GB, in all {time.perf_counter() - begun:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])

# SPDX-License-Identifier: Apache-2.0
"""Measures the host's work per update, without any training, for several numbers of peers.

PYTHONPATH=. python benchmarks/host_cost.py random rounds 100 1000 10000
"""

from __future__ import annotations

import gc
import resource
import sys
import time

from tests.fakes import fake_simulation

from pens.experiment.presets import preset
from pens.simulation.simulator import advance_together


def measure(method: str, schedule: str, peers: int) -> None:
    values = {"schedule": schedule, "peers": peers, "rounds": 4, "patience": 10**6, "step1_rounds": 4}
    simulator, _ = fake_simulation(preset("cifar-10").settings.replace(values), method)
    gc.disable()  # as during a run
    begun = time.perf_counter()
    while not simulator.is_over():
        advance_together([simulator])
    per_update = (time.perf_counter() - begun) / simulator.learners.num_updates
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{method} {schedule}, {peers:,} peers: {1e6 * per_update:.0f} µs per update, {memory_mb:,} MB")


if __name__ == "__main__":
    for count in sys.argv[3:]:
        measure(sys.argv[1], sys.argv[2], int(count))

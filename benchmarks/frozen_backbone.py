# SPDX-License-Identifier: Apache-2.0
"""Memory and time of fine-tuning the last layer of a frozen backbone, against training all parameters.

PYTHONPATH=src python benchmarks/frozen_backbone.py
PYTHONPATH=src python benchmarks/frozen_backbone.py --peers 20 --side 32    # for a GPU

The network is ResNet-18 with batch normalisation (`benchmarks/resnet.py`). Each line is a process of its own: an
engine, models of all peers, updates of two epochs, and the most memory that the process ever used. The first update of
a frozen backbone computes the features, which later updates find.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from pens.data.samples import Samples
from pens.engine.batches import SampleStack
from pens.engine.devices import peak_memory_bytes, resolve_device
from pens.engine.optimizers import Recipe
from pens.engine.training import new_engine
from pens.parts import load_function
from pens.settings.schema import EngineSettings

LINES = (
    ("all parameters, loop", "resnet18", "loop"),
    ("all parameters, stack", "resnet18", "stack"),
    ("last layer, loop", "frozen", "loop"),
    ("last layer, stack", "frozen", "stack"),
    ("last layer of 25 million parameters, stack", "frozen_wide", "stack"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--peers", type=int, default=4)
    parser.add_argument("--many", type=int, default=100, help="peers of the last line")
    parser.add_argument("--samples", type=int, default=16, help="of each peer")
    parser.add_argument("--side", type=int, default=16, help="pixels of an image's side")
    parser.add_argument("--line", type=int, help="measure this line alone, in this process")
    given = parser.parse_args()
    if given.line is not None:
        measure(*LINES[given.line], given)
        return
    print("| trained | peers | numbers sent | first update, s | later updates, s | most memory, MB |")
    print("|---|---|---|---|---|---|", flush=True)
    for line in range(len(LINES)):
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--line", str(line)], check=True)


def measure(name: str, network: str, backend: str, given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    device, generator = resolve_device(given.device), np.random.default_rng(0)
    peers = given.many if network == "frozen_wide" else given.peers
    shape, count = (3, given.side, given.side), given.samples
    samples = [
        Samples(generator.normal(size=(count, *shape)).astype(np.float32), generator.integers(0, 10, count))
        for _ in range(peers)
    ]
    data, slots = SampleStack(samples, device), list(range(peers))
    factory = load_function(f"resnet.py:{network}", "network", Path(__file__).parent)
    engine = new_engine(factory, data.x[0, :3], 10, EngineSettings(backend=backend), 1.0)  # type: ignore[arg-type]
    rows = torch.stack([engine.network.new_row(peer) for peer in slots]).to(device)
    seconds = []
    for update in range(3):
        before = time.perf_counter()
        trained = engine.train(rows, data, slots, [update * peers + s for s in slots], 2, Recipe("adam", 1e-3, 0, 0, 8))
        assert np.isfinite(trained.loss).all()
        seconds.append(time.perf_counter() - before)
    memory = peak_memory_bytes(device) / 1e6
    sent = engine.network.size
    print(f"| {name} | {peers} | {sent:,} | {seconds[0]:.2f} | {min(seconds[1:]):.2f} | {memory:,.0f} |", flush=True)


if __name__ == "__main__":
    main()

"""Client-steps a second: one SGD step of one peer's network on a batch of 8, stack against loop, in one run.

python benchmarks/client_steps.py [--peers 20] [--samples 40] [--device cpu] [--precision tf32]

Absolute figures depend on the machine and on what else it is doing; the ratio is what to compare.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from pens.data.samples import Samples
from pens.engine.batches import SampleStack
from pens.engine.devices import DOTS, lowering_levels, memory_bytes, prepare_device, resolve_device
from pens.engine.network import StackedNetwork
from pens.engine.optimizers import Recipe
from pens.engine.training import Engine, LoopEngine, StackEngine
from pens.nets import net_factory

BATCH = 8
NETWORKS = {"digits": (1, 8, 8), "fashion-mnist": (1, 28, 28), "cifar-10": (3, 32, 32)}


def steps_per_second(engine: Engine, data: SampleStack, peers: int, seconds: float) -> float:
    """Train again and again for a while; the median of the rates."""
    rows = torch.stack([engine.network.new_row(p) for p in range(peers)]).to(data.device)
    recipe = Recipe("adam", 1e-3, 0.0, 0.0, BATCH)
    slots, rates = list(range(peers)), []
    steps = peers * data.longest // BATCH
    engine.train(rows, data, slots, slots, 1, recipe)
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        before = time.perf_counter()
        engine.train(rows, data, slots, slots, 1, recipe)  # ends by reading the losses, so the device is done
        rates.append(steps / (time.perf_counter() - before))
    return float(np.median(rates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=20)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    device = resolve_device(arguments.device)
    prepare_device(device, arguments.precision)
    generator = np.random.default_rng(0)
    print(f"{'network':14} {'loop':>9} {'stack':>9} {'ratio':>6}   client-steps/s, {arguments.peers} peers, {device}")
    for name in arguments.networks.split(","):
        shape, count = NETWORKS[name], arguments.samples
        data = SampleStack(
            [
                Samples(generator.normal(size=(count, *shape)).astype(np.float32), generator.integers(0, 10, count))
                for _ in range(arguments.peers)
            ],
            device,
        )
        factory, example = net_factory("auto", name, shape, 10), data.x[0, :3]
        loop = LoopEngine(StackedNetwork(factory, example, 10, stacked=False))
        levels, dots = lowering_levels(device), DOTS[arguments.precision]
        stack = StackEngine(StackedNetwork(factory, example, 10, True, levels, dots), memory_bytes(device, 0))
        rates = [steps_per_second(e, data, arguments.peers, arguments.seconds) for e in (loop, stack)]
        print(f"{name:14} {rates[0]:9,.0f} {rates[1]:9,.0f} {rates[1] / rates[0]:6.1f}")


if __name__ == "__main__":
    main()

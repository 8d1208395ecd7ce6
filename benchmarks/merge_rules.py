# SPDX-License-Identifier: Apache-2.0
"""What each merge rule costs, beside the plain average: `PYTHONPATH=src python benchmarks/merge_rules.py [cuda]`.

100 merges of 20 models each (the own one and 19 others) of the paper's network for CIFAR-10, 73,418 numbers. Medians
over repetitions in turns, so that others' work on the machine falls on all alike.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch

from pens.engine.layout import Layout
from pens.engine.stack import ModelStack
from pens.merging.merger import RowMerge, merge_rows
from pens.merging.rule import Merge, chosen
from pens.settings.tree import Settings

PEERS, MODELS, NUMBERS, TIMES = 100, 20, 73_418, 9
RULES = ("mean", "weighted", "median", "trimmed", "clipped")


def main(device: torch.device) -> None:
    torch.set_num_threads(1)
    layout = Layout.stored({"w": torch.Size([NUMBERS])}, {})
    stack = ModelStack(NUMBERS, device)
    rows = stack.add(torch.randn(PEERS, NUMBERS, device=device))
    groups = [[rows[(p + i * 7) % PEERS] for i in range(MODELS)] for p in range(PEERS)]
    merges = [RowMerge(g, g[0], Merge(g[0], tuple(g), True, tuple(400 + r for r in g))) for g in groups]
    found: dict[str, list[float]] = {"plain average": [], **{rule: [] for rule in RULES}}
    for _ in range(TIMES):
        for name, times in found.items():
            how = None if name == "plain average" else chosen(Settings().replace({"merge": name}))
            begun = time.perf_counter()
            merged = merge_rows(stack, layout, how, merges) if how else stack.mix(groups)
            merged.sum().item()
            times.append(time.perf_counter() - begun)
    plain = statistics.median(found["plain average"])
    print(f"{PEERS} merges of {MODELS} models of {NUMBERS:,} numbers, {device}")
    for name, times in found.items():
        median = statistics.median(times)
        print(f"{name:14} {median * 1e3:8.1f} ms  {median / plain:5.1f} × (best {min(times) * 1e3:.1f} ms)")


if __name__ == "__main__":
    main(torch.device(sys.argv[1] if len(sys.argv) > 1 else "cpu"))

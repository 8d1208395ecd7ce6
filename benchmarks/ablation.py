"""What each change that `pens+` makes brings, and what others that were tried would bring: one row each, over seeds.

    python benchmarks/ablation.py PRESET SEEDS [KEY=VALUE …]

Differences are paired by seed, with a 95 % interval: peers, data and first models are the same.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

import pens
from pens.config import Method, Settings, parse_assignments
from pens.experiment import resolve_settings
from pens.metrics import Interval, interval
from pens.results import RunResult


def variants(settings: Settings) -> Mapping[str, tuple[Method, dict[str, Any]]]:
    """Name → method and what it changes."""
    rounds, samplings = settings.pens.step1_rounds, settings.pens.step1_samplings
    short = max(1, rounds // 4)
    return {
        "oracle": ("oracle", {}),
        "pens": ("pens", {}),
        "+ groups": ("pens", {"neighbours_by": "groups"}),
        "+ merged": ("pens", {"validated": "merged"}),
        "+ groups + merged = pens+": ("pens+", {}),
        "oracle + merged": ("oracle", {"validated": "merged"}),
        "pens+ + fresh": ("pens+", {"fresh": True}),
        "+ short step 1": ("pens", {"step1_rounds": short, "step1_samplings": -(-rounds * samplings // short)}),
        "+ scored on validation": ("pens", {"score_on": "val"}),
    }


def main(preset: str, seeds: str, *assignments: str) -> None:
    settings = resolve_settings(preset).replace(parse_assignments(assignments))
    print(f"{preset} {' '.join(assignments)}, {seeds} seeds".replace(" ,", ","))
    print(f"{'':<27} {'accuracy':>12} {'precision':>12} {'recall':>12} {'less oracle':>13} {'more than pens':>15}")
    found: dict[str, tuple[RunResult, ...]] = {}
    for name, (method, changes) in variants(settings).items():
        found[name] = pens.run(settings.replace(changes), methods=method, seeds=int(seeds)).runs
        print(_row(name, found), flush=True)


def _row(name: str, found: Mapping[str, tuple[RunResult, ...]]) -> str:
    runs = found[name]
    accuracy = interval([run.mean_accuracy for run in runs])
    agreements = [run.agreement for run in runs if run.agreement]
    precision = interval([a.precision for a in agreements]) if agreements else None
    recall = interval([a.recall for a in agreements]) if agreements else None
    less, more = (_difference(runs, found[other]) if other in found else None for other in ("oracle", "pens"))
    cells = (accuracy, precision, recall, less, more)
    widths = (12, 12, 12, 13, 15)
    texts = ("–" if cell is None else cell.percent() for cell in cells)
    return f"{name:<27} " + " ".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))


def _difference(runs: tuple[RunResult, ...], others: tuple[RunResult, ...]) -> Interval | None:
    if runs is others:
        return None
    return interval(list(np.subtract([r.mean_accuracy for r in runs], [r.mean_accuracy for r in others])))


if __name__ == "__main__":
    main(*sys.argv[1:])

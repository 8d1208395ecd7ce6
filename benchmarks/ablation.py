# SPDX-License-Identifier: Apache-2.0
"""What each change that `pens+` makes brings, and what others that were tried would bring: one row each, over seeds.

    python benchmarks/ablation.py PRESET SEEDS [--first-seed N] [--only "pens,+ groups,…"] [--test] [KEY=VALUE …]

Variants are compared on validation data: what each peer's best round had there, as its early stopping sees it, on
average over peers. Choices are made by that, with other seeds than those that are reported; test accuracy is only
shown with --test. Differences are paired by seed, with a 95 % interval: peers, data and first models are the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import pens
from pens.experiment.presets import resolve_settings
from pens.measuring.metrics import Interval, interval
from pens.measuring.results import RunResult
from pens.settings.reading import parse_assignments
from pens.settings.tree import MethodName, Settings

GROUPS_AND_MERGED = {"neighbours_by": "groups", "validated": "merged"}
_WIDTHS = (12, 12, 12, 13, 13)


def variants(settings: Settings) -> Mapping[str, tuple[MethodName, dict[str, Any]]]:
    """Name → method and what it changes."""
    rounds, samplings = settings.pens.step1_rounds, settings.pens.step1_samplings
    short = max(1, rounds // 4)
    return {
        "oracle+": ("oracle+", {}),
        "pens": ("pens", {}),
        "+ groups": ("pens", {"neighbours_by": "groups"}),
        "+ merged": ("pens", {"validated": "merged"}),
        "+ both": ("pens", {**GROUPS_AND_MERGED}),
        "+ both + first": ("pens", {**GROUPS_AND_MERGED, "step2_model": "first"}),
        "+ both + best": ("pens", {**GROUPS_AND_MERGED, "step2_model": "best"}),
        "pens+": ("pens+", {}),
        "random+": ("random+", {}),
        "random": ("random", {}),
        "local": ("local", {}),
        "oracle": ("oracle", {}),
        "+ short step 1": ("pens", {"step1_rounds": short, "step1_samplings": -(-rounds * samplings // short)}),
        "+ scored on validation": ("pens", {"score_on": "val"}),
    }


def main(preset: str, seeds: Sequence[int], only: Sequence[str], test: bool, assignments: Sequence[str]) -> None:
    settings = resolve_settings(preset).replace(parse_assignments(assignments))
    known = variants(settings)
    if unknown := [name for name in only if name not in known]:
        raise SystemExit(f"no variant {unknown[0]!r}: choose from {', '.join(map(repr, known))}")
    print(f"{preset} {' '.join(assignments)}, seeds {', '.join(map(str, seeds))}".replace(" ,", ","))
    measured = "test" if test else "validation"
    headings = zip((measured, "precision", "recall", "less oracle+", "less pens"), _WIDTHS, strict=True)
    print(f"{'':<23} {' '.join(f'{heading:>{width}}' for heading, width in headings)} {'received':>9}")
    found: dict[str, tuple[RunResult, ...]] = {}
    for name in only or known:
        method, changes = known[name]
        found[name] = pens.run(settings.replace(changes), methods=method, seeds=seeds).runs
        window = settings.stopping.window
        accuracies = {n: [r.mean_accuracy if test else validated(r, window) for r in rs] for n, rs in found.items()}
        print(_row(name, accuracies, found[name]), flush=True)


def validated(run: RunResult, window: int) -> float:
    """The validation accuracy by which each peer keeps its best model, on average over peers."""
    history, best = run.history, []
    gossip = ~history.searching
    for peer in np.unique(history.peer):
        accuracy = history.val_accuracy[(history.peer == peer) & gossip]
        means = [accuracy[max(0, end - window) : end].mean() for end in range(1, len(accuracy) + 1)]
        best.append(max(means))
    return float(np.mean(best))


def _row(name: str, accuracies: Mapping[str, Sequence[float]], runs: Sequence[RunResult]) -> str:
    agreements = [run.agreement for run in runs if run.agreement]
    precision = interval([a.precision for a in agreements]) if agreements else None
    recall = interval([a.recall for a in agreements]) if agreements else None
    less = (_less(accuracies, name, other) for other in ("oracle+", "pens"))
    cells = (interval(accuracies[name]), precision, recall, *less)
    texts = ("–" if cell is None else cell.percent() for cell in cells)
    received = np.mean([run.communication.received.mean() for run in runs])
    words = " ".join(f"{text:>{width}}" for text, width in zip(texts, _WIDTHS, strict=True))
    return f"{name:<23} {words} {received:>9.0f}"


def _less(accuracies: Mapping[str, Sequence[float]], name: str, other: str) -> Interval | None:
    """How much one variant is above another, seed by seed."""
    if other not in accuracies or other == name:
        return None
    return interval([a - b for a, b in zip(accuracies[name], accuracies[other], strict=True)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("seeds", type=int)
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="seeds N, N + 1, …")
    parser.add_argument("--only", default="", metavar="NAME,NAME", help="these variants, in this order")
    parser.add_argument("--test", action="store_true", help="show test accuracy in place of validation accuracy")
    parser.add_argument("assignments", nargs="*", metavar="KEY=VALUE")
    asked = parser.parse_intermixed_args()
    main(
        asked.preset,
        range(asked.first_seed, asked.first_seed + asked.seeds),
        [name.strip() for name in asked.only.split(",") if name.strip()],
        asked.test,
        asked.assignments,
    )

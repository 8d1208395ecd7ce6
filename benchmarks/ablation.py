"""What each change that `pens+` makes brings, and what others that were tried would bring: one row each, over seeds.

    python benchmarks/ablation.py PRESET SEEDS [--only "oracle,oracle + merged,…"] [KEY=VALUE …]

Differences are paired by seed, with a 95 % interval: peers, data and first models are the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import pens
from pens.config import PENS_PLUS, Method, Settings, parse_assignments
from pens.metrics import interval
from pens.presets import resolve_settings
from pens.report.analysis import paired
from pens.results import RunResult


def variants(settings: Settings) -> Mapping[str, tuple[Method, dict[str, Any]]]:
    """Name → method and what it changes."""
    rounds, samplings = settings.pens.step1_rounds, settings.pens.step1_samplings
    short = max(1, rounds // 4)
    return {
        "random": ("random", {}),
        "local": ("local", {}),
        "oracle": ("oracle", {}),
        "pens": ("pens", {}),
        "+ groups": ("pens", {"neighbours_by": "groups"}),
        "+ merged": ("pens", {"validated": "merged"}),
        "+ both": ("pens", {**PENS_PLUS}),
        "+ both + first": ("pens", {**PENS_PLUS, "step2_model": "first"}),
        "+ both + best": ("pens", {**PENS_PLUS, "step2_model": "best"}),
        "pens+": ("pens+", {}),
        "oracle + merged": ("oracle", {"validated": "merged"}),
        "+ short step 1": ("pens", {"step1_rounds": short, "step1_samplings": -(-rounds * samplings // short)}),
        "+ scored on validation": ("pens", {"score_on": "val"}),
    }


def main(preset: str, seeds: int, only: Sequence[str], assignments: Sequence[str]) -> None:
    settings = resolve_settings(preset).replace(parse_assignments(assignments))
    known = variants(settings)
    if unknown := [name for name in only if name not in known]:
        raise SystemExit(f"no variant {unknown[0]!r}: choose from {', '.join(map(repr, known))}")
    print(f"{preset} {' '.join(assignments)}, {seeds} seeds".replace(" ,", ","))
    print(f"{'':<27} {'accuracy':>12} {'precision':>12} {'recall':>12} {'less oracle':>13} {'more than pens':>15}")
    found: dict[str, tuple[RunResult, ...]] = {}
    for name in only or known:
        method, changes = known[name]
        found[name] = pens.run(settings.replace(changes), methods=method, seeds=seeds).runs
        print(_row(name, found), flush=True)


def _row(name: str, found: Mapping[str, tuple[RunResult, ...]]) -> str:
    runs = found[name]
    accuracy = interval([run.mean_accuracy for run in runs])
    agreements = [run.agreement for run in runs if run.agreement]
    precision = interval([a.precision for a in agreements]) if agreements else None
    recall = interval([a.recall for a in agreements]) if agreements else None
    less, more = (
        paired(runs, found[other]) if other in found and other != name else None for other in ("oracle", "pens")
    )
    cells = (accuracy, precision, recall, less, more)
    widths = (12, 12, 12, 13, 15)
    texts = ("–" if cell is None else cell.percent() for cell in cells)
    return f"{name:<27} " + " ".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("seeds", type=int)
    parser.add_argument("--only", default="", metavar="NAME,NAME", help="these variants, in this order")
    parser.add_argument("assignments", nargs="*", metavar="KEY=VALUE")
    asked = parser.parse_intermixed_args()
    main(asked.preset, asked.seeds, [name.strip() for name in asked.only.split(",") if name.strip()], asked.assignments)

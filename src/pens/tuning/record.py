# SPDX-License-Identifier: Apache-2.0
"""The outcome of tuning as files: all trials as JSON, and the comparison with the best settings as TOML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from pens.comparing.file import ComparisonFile, Scenario
from pens.comparing.writing import as_toml
from pens.settings.tree import MethodName
from pens.storage.files import replace_file, write_json
from pens.tuning.search import Tried, best_of
from pens.tuning.wishes import Wishes

RECORD, TUNED = "tuning.json", "tuned.toml"
"""The names of the files in the folder of `pens tune`."""


def by_method(tried: Sequence[Tried]) -> list[list[Tried]]:
    """The trials of each method in each scenario."""
    return [list(alike) for _, alike in groupby(tried, key=lambda each: (each.trial.scenario, each.trial.method))]


def tuned(file: ComparisonFile, tried: Sequence[Tried], wishes: Wishes) -> ComparisonFile:
    """The comparison in which each method has its best settings, as far as all its trials are complete."""
    best = [each for alike in by_method(tried) if (each := best_of(alike))]
    values: dict[str, dict[MethodName, Mapping[str, Any]]] = {}
    for each in best:
        values.setdefault(each.trial.scenario, {})[each.trial.method] = each.trial.values
    scenarios = tuple(_with(scenario, values.get(scenario.name, {})) for scenario in file.scenarios)
    about = {"trials": wishes.trials, "seeds": list(wishes.seeds)}
    return replace(file, scenarios=scenarios, tuning={}, tuned=about)


def _with(scenario: Scenario, values: Mapping[MethodName, Mapping[str, Any]]) -> Scenario:
    methods = dict.fromkeys((*scenario.of_method, *values))
    joined = {method: {**scenario.of_method.get(method, {}), **values.get(method, {})} for method in methods}
    return replace(scenario, of_method=joined)


def write_record(file: ComparisonFile, tried: Sequence[Tried], wishes: Wishes, folder: Path) -> list[Path]:
    """Write both files, and return them."""
    record, toml = folder / RECORD, folder / TUNED
    write_json(
        record,
        {
            "format": 1,
            "made_by": "pens tune",
            "name": file.name,
            "trials_of_each_method": wishes.trials,
            "seeds": list(wishes.seeds),
            "settings_of_trials": dict(wishes.settings),
            "methods": [_method_json(alike) for alike in by_method(tried)],
        },
    )
    text = f"# {file.name}, tuned by pens tune on validation data; {RECORD} beside it has all trials.\n"
    replace_file(toml, lambda path: path.write_text(text + as_toml(tuned(file, tried, wishes)), encoding="utf-8"))
    return [record, toml]


def _method_json(alike: Sequence[Tried]) -> dict[str, Any]:
    first, best = alike[0], best_of(alike)
    return {
        "scenario": first.trial.scenario,
        "method": first.trial.method,
        "measure": vars(first.measure),
        "best": best.trial.number if best else None,
        "trials": [_trial_json(each) for each in alike],
    }


def _trial_json(each: Tried) -> dict[str, Any]:
    return {
        "trial": each.trial.number,
        "values": dict(each.trial.values),
        "refused": each.trial.refused or None,
        "validation": each.score,
        "by_seed": {str(seed): {"score": of.score, "loss": of.loss} for seed, of in each.found.items()},
        "seconds": round(sum(of.seconds for of in each.found.values()), 1),
    }

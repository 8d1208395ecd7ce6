# SPDX-License-Identifier: Apache-2.0
"""The findings of a comparison as files: JSON, from which they can be shown again, and CSV for other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pens.comparing.results import QUANTITIES, Findings, MethodFindings, ScenarioFindings
from pens.errors import ReportError
from pens.measuring.metrics import Interval
from pens.report.analysis import Difference
from pens.report.panel import Row, as_csv
from pens.tasks.metric import Measure

NAME = "comparison"
"""The beginning of the names of all files of a comparison."""
_FORMAT, _MADE_BY = 1, "pens compare"


def load(folder: Path) -> Findings:
    """The findings that a command left in a folder."""
    path = folder / f"{NAME}.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReportError(f"{path}: no such file: pens compare FILE.toml --out {folder} writes it") from None
    except (OSError, ValueError) as error:
        raise ReportError(f"{path}: cannot be read ({error}): delete it, and run pens compare again") from None
    try:
        return from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ReportError(f"{path}: not a comparison of this version of pens ({error!r}): run it again") from None


def to_json(found: Findings) -> dict[str, Any]:
    """Findings as JSON. What is under `over_seeds` and `differences` follows from the values, is for other programs,
    and is not read back."""
    return {
        "format": _FORMAT,
        "made_by": _MADE_BY,
        "name": found.name,
        "rules": found.rules,
        "planned_seeds": list(found.planned_seeds),
        "devices": list(found.devices),
        "versions": dict(found.versions),
        "scenarios": [_scenario_json(scenario) for scenario in found.scenarios],
    }


def from_json(data: Mapping[str, Any]) -> Findings:
    """Findings from their JSON form."""
    if data["format"] != _FORMAT or data["made_by"] != _MADE_BY:
        raise ValueError(f"its format is {data['format']} by {data['made_by']}, not {_FORMAT} by {_MADE_BY}")
    return Findings(
        data["name"],
        tuple(data["planned_seeds"]),
        tuple(_scenario(each) for each in data["scenarios"]),
        tuple(data["devices"]),
        data["versions"],
        data["rules"],
    )


def to_csv(found: Findings) -> str:
    """A row for each scenario, method and seed. Scores in per cent are fractions."""
    rows: list[Row] = [
        (scenario.name, scenario.measure.name, each.method, seed, *(each.values[name][place] for name in QUANTITIES))
        for scenario in found.scenarios
        for each in scenario.methods
        for place, seed in enumerate(each.seeds)
    ]
    return as_csv(("scenario", "metric", "method", "seed", *QUANTITIES), rows)


def _scenario_json(scenario: ScenarioFindings) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "measure": vars(scenario.measure),
        "num_peers": scenario.num_peers,
        "clusters": dict(scenario.clusters),
        "left_out": dict(scenario.left_out),
        "methods": [_method_json(each, scenario) for each in scenario.methods],
        "differences": [_difference_json(each) for each in scenario.differences],
        "settings": dict(scenario.settings),
    }


def _method_json(each: MethodFindings, scenario: ScenarioFindings) -> dict[str, Any]:
    return {
        "method": each.method,
        "own_settings": dict(each.own),
        "seeds": list(each.seeds),
        "values": {name: list(values) for name, values in each.values.items()},
        "over_seeds": {name: _interval_json(each.over_seeds(name, scenario.measure)) for name in QUANTITIES},
        "tested_forms": dict(each.forms),
        "better_than": scenario.worse_than(each.method),
        "seconds": round(each.seconds, 1),
    }


def _interval_json(value: Interval | None) -> dict[str, float | None] | None:
    return {"mean": value.mean, "half_width_95": value.half_width} if value else None


def _difference_json(each: Difference) -> dict[str, Any]:
    return {
        "better": each.better,
        "other": each.other,
        "seeds": list(each.seeds),
        "difference": _interval_json(each.mean),
        "p_paired_t": each.p_t,
        "p_holm": each.p_holm,
        "significant": each.is_significant,
    }


def _scenario(data: Mapping[str, Any]) -> ScenarioFindings:
    return ScenarioFindings(
        data["name"],
        Measure(**data["measure"]),
        data["settings"],
        data["clusters"],
        data["num_peers"],
        tuple(_method(each) for each in data["methods"]),
        data["left_out"],
    )


def _method(data: Mapping[str, Any]) -> MethodFindings:
    values = {name: tuple(data["values"][name]) for name in QUANTITIES}
    return MethodFindings(
        data["method"], tuple(data["seeds"]), values, data["tested_forms"], data["own_settings"], data["seconds"]
    )

# SPDX-License-Identifier: Apache-2.0
"""What a comparison found: of each scenario and method the numbers of each seed, and who is better than whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from pens.comparing.file import ComparisonFile, Values
from pens.comparing.scenes import Scene
from pens.learning.learner import FORMS
from pens.measuring.fairness import fair_measure
from pens.measuring.metrics import Interval, interval
from pens.measuring.results import RunResult, run_row, spec_of, spending
from pens.planning.store import RunStore
from pens.planning.versions import joined_versions
from pens.report.analysis import Difference, SeedScores, all_differences
from pens.settings.keys import flat_values
from pens.settings.tree import MethodName, Settings
from pens.storage.runlog import RULES
from pens.tasks.metric import Measure

Measured = Literal[
    "score", "worst_tenth", "worst_cluster", "gap", "fair", "models_received", "bytes_received", "forward_passes"
]
QUANTITIES: tuple[Measured, ...] = (
    "score", "worst_tenth", "worst_cluster", "gap", "fair", "models_received", "bytes_received", "forward_passes",
)  # fmt: skip
"""What is kept of each run: how good it was, in the unit of the scenario's metric, and what it cost a peer."""


@dataclass(frozen=True)
class MethodFindings:
    """One method in one scenario."""

    method: MethodName
    seeds: tuple[int, ...]
    """The seeds of the runs that are complete."""
    values: Mapping[Measured, tuple[float | None, ...]]
    """None where it is not known.  [seed] each"""
    forms: Mapping[str, float] = field(default_factory=dict)
    """Which share of the peers tested which form of their model; empty where they do not choose."""
    own: Values = field(default_factory=dict)
    """The settings that the method has for itself alone."""
    seconds: float = 0.0
    """The seconds that its runs took together."""

    def over_seeds(self, quantity: Measured, measure: Measure) -> Interval | None:
        """A quantity over seeds; None where it is not known for each of them."""
        known = [value for value in self.values.get(quantity, ()) if value is not None]
        if not known or len(known) < len(self.seeds):
            return None
        return interval(known, fair_measure(measure) if quantity == "fair" else measure)

    def mean(self, quantity: Measured) -> float | None:
        """The mean of a quantity that is a number of something."""
        found = self.over_seeds(quantity, Measure(quantity))
        return found.mean if found else None

    @property
    def scores(self) -> dict[int, float]:
        """The mean score of each seed."""
        scores = zip(self.seeds, self.values.get("score", ()), strict=False)
        return {seed: score for seed, score in scores if score is not None}

    @property
    def form(self) -> str:
        """The form of its model that most peers tested, and for how many: merged 62 %"""
        if not self.forms:
            return ""
        name, share = max(self.forms.items(), key=lambda item: item[1])
        return f"{FORMS.get(name, name)} {100 * share:.0f} %"


@dataclass(frozen=True)
class ScenarioFindings:
    """One scenario with all its methods."""

    name: str
    measure: Measure
    settings: Mapping[str, Any]
    """All settings, flat and resolved."""
    clusters: Mapping[str, int]
    """How many peers each cluster has; empty where clusters are not known."""
    num_peers: int
    methods: tuple[MethodFindings, ...]
    """In the order of the file."""
    left_out: Mapping[MethodName, str] = field(default_factory=dict)

    @cached_property
    def differences(self) -> list[Difference]:
        """The differences of all pairs of methods, paired by seed, corrected by Holm for their number."""
        return all_differences(
            [
                SeedScores(
                    each.method, {s: v for s, v in zip(each.seeds, scores, strict=True) if v is not None}, self.measure
                )
                for each in self.methods
                if (scores := each.values.get("score", ()))
            ]
        )

    def worse_than(self, method: MethodName) -> list[MethodName]:
        """The methods than which this one is significantly better, in the order of the file."""
        beaten = {d.other for d in self.differences if d.better == method and d.is_significant}
        return [each.method for each in self.methods if each.method in beaten]


@dataclass(frozen=True)
class Findings:
    """All that a comparison found."""

    name: str
    planned_seeds: tuple[int, ...]
    scenarios: tuple[ScenarioFindings, ...]
    devices: tuple[str, ...]
    versions: Mapping[str, str]
    rules: int = RULES

    @property
    def is_empty(self) -> bool:
        return not any(each.seeds for scenario in self.scenarios for each in scenario.methods)

    @property
    def methods(self) -> tuple[MethodName, ...]:
        """All methods, those of the first scenario first."""
        return tuple(dict.fromkeys(each.method for scenario in self.scenarios for each in scenario.methods))


def findings(file: ComparisonFile, scenes: Sequence[Scene], store: RunStore) -> Findings:
    """What the complete runs of a comparison found."""
    how: list[tuple[str, Mapping[str, str]]] = []
    found = tuple(_of_scene(scene, store, how) for scene in scenes)
    devices = tuple(dict.fromkeys(device for device, _ in how))
    return Findings(file.name, scenes[0].seeds, found, devices, joined_versions(versions for _, versions in how))


def _of_scene(scene: Scene, store: RunStore, how: list[tuple[str, Mapping[str, str]]]) -> ScenarioFindings:
    """One scenario. `how`: gets the device and the versions of each run. Runs are let go of as soon as they are read,
    because they are large."""
    methods, measure, clusters, peers = [], Measure("score"), dict[str, int](), scene.settings.scenario.peers
    for method, settings in scene.methods.items():
        runs = store.runs(settings, method, scene.seeds)
        how += [(run.device, run.versions) for run in runs]
        methods.append(_of_method(method, runs, settings, scene.own.get(method, {})))
        for run in runs:
            measure, clusters, peers = run.metric, run.cluster_sizes, run.num_peers
    flat = flat_values(scene.settings.explicit)
    return ScenarioFindings(scene.name, measure, flat, clusters, peers, tuple(methods), scene.left_out)


def _of_method(method: MethodName, runs: Sequence[RunResult], settings: Settings, own: Values) -> MethodFindings:
    rows = [run_row(run, spending(run, spec_of(run, settings))) for run in runs]
    names = [run.metric.name for run in runs]
    values: dict[Measured, tuple[float | None, ...]] = {
        quantity: tuple(row[name if quantity == "score" else quantity] for row, name in zip(rows, names, strict=True))
        for quantity in QUANTITIES
    }
    forms = Counter(form for run in runs for form in run.tested_forms)
    return MethodFindings(
        method,
        tuple(run.seed for run in runs),
        values,
        {form: count / forms.total() for form, count in forms.most_common()},
        own,
        sum(run.seconds for run in runs),
    )

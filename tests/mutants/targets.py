# SPDX-License-Identifier: Apache-2.0
"""Where faults are put, and which tests are to notice them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A module, and the tests that are to notice its faults."""

    tests: tuple[str, ...]
    only: frozenset[str] = frozenset()
    """Some functions; none named: all."""


def _tests(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/{name}.py" for name in names)


_EXPERIMENT = _tests("experiment/test_experiment", "test_by_hand", "simulation/test_simulator", "test_recorded_runs")
_LEARNING = _tests(
    "learning/test_scoring",
    "learning/test_updating",
    "test_by_hand",
    "simulation/test_simulator",
    "test_recorded_runs",
    "merging/test_runs",
)
TARGETS: dict[str, Target] = {
    **{
        module: Target(_tests("protocol/test_peer", "test_by_hand", "test_recorded_runs"))
        for module in (
            "protocol.peer",
            "protocol.situation",
            "protocol.behaviour",
            "protocol.starting",
            "protocol.searching",
            "protocol.gossiping",
            "protocol.admission",
            "protocol.alone",
        )
    },
    "protocol.policies": Target(_tests("protocol/test_policies", "test_by_hand")),
    "topologies.views": Target(_tests("topologies/test_views", "protocol/test_peer", "test_by_hand")),
    "simulation.links": Target(_tests("test_by_hand")),
    "simulation.scheduler": Target(_tests("simulation/test_scheduler", "test_by_hand")),
    "learning.jobs": Target(
        _tests("learning/test_jobs", "test_by_hand", "learning/test_updating", "test_recorded_runs")
    ),
    "learning.received": Target(_tests("learning/test_named_models", "simulation/test_simulator")),
    **{
        f"learning.{module}": Target((*tests, *_LEARNING))
        for module, tests in (
            ("rules", ()),
            ("learner", _tests("learning/test_learner")),
            ("named_models", _tests("learning/test_named_models")),
            ("context", ()),
            ("scoring", _tests("learning/test_scoring")),
            ("inputs", _tests("learning/test_inputs")),
            ("updating", _tests("learning/test_updating")),
            ("learners", _tests("learning/test_learners")),
        )
    },
    "simulation.simulator": Target(
        _tests("test_by_hand", "simulation/test_simulator", "experiment/test_experiment", "test_recorded_runs")
    ),
    "simulation.message_counts": Target(_tests("simulation/test_simulator", "test_by_hand", "measuring/test_metrics")),
    "measuring.metrics": Target(_tests("measuring/test_metrics", "test_by_hand")),
    "measuring.records": Target((*_tests("measuring/test_records"), *_EXPERIMENT)),
    "measuring.results": Target(_tests("measuring/test_results", "test_by_hand")),
    "experiment.workplace": Target(_EXPERIMENT, frozenset({"Workplace._first_models", "Workplace._place"})),
    "experiment.wiring": Target(_EXPERIMENT),
    "experiment.outcome": Target(_EXPERIMENT),
    "settings.schema": Target(
        _tests("settings/test_settings", "test_by_hand"),
        frozenset({"SettingsTree.step1_epochs", "SettingsTree.expected"}),
    ),
    "methods.dac": Target(_tests("methods/test_dac", "test_recorded_runs")),
    "methods.dpsgd": Target(_tests("methods/test_in_step", "test_recorded_runs")),
    "methods.el": Target(_tests("methods/test_in_step", "test_recorded_runs")),
    **{
        f"topologies.{name}": Target(_tests("topologies/test_graphs", "topologies/test_sparse_runs"))
        for name in ("topology", "complete", "ring", "regular", "edges")
    },
    "data.scenarios": Target(_tests("data/test_scenarios", "partitions/test_partition", "test_by_hand")),
    "partitions.partition": Target(_tests("partitions/test_partition", "partitions/test_dirichlet")),
    "partitions.rotation": Target(_tests("data/test_scenarios", "partitions/test_partition", "settings/test_settings")),
    "partitions.groups": Target(_tests("partitions/test_groups")),
    "partitions.labels": Target(_tests("partitions/test_labels", "partitions/test_laws", "partitions/test_dirichlet")),
    "partitions.dirichlet": Target(
        _tests("partitions/test_dirichlet", "partitions/test_labels", "partitions/test_laws")
    ),
    "partitions.shards": Target(_tests("partitions/test_shards", "partitions/test_labels", "partitions/test_laws")),
    "partitions.sizes": Target(_tests("partitions/test_laws")),
    "partitions.turning": Target(_tests("partitions/test_turning")),
    "partitions.cells": Target(_tests("partitions/test_labels", "partitions/test_product")),
    "partitions.allotting": Target(_tests("partitions/test_product")),
    "partitions.combination": Target(_tests("partitions/test_product")),
    **{
        f"methods.{name}": Target(
            _tests("experiment/test_experiment", "test_by_hand", "methods/test_settings", "methods/test_traits")
        )
        for name in ("method", "random", "pens", "pens_plus", "local", "oracle", "central", "spec")
    },
    "learning.executor": Target(
        _tests(
            "learning/test_executor",
            "test_by_hand",
            "learning/test_updating",
            "simulation/test_simulator",
            "test_recorded_runs",
        )
    ),
    "engine.stack": Target(_tests("engine/test_stack")),
    **{
        f"merging.{rule}": Target(_tests("merging/test_rules")) for rule in ("weighted", "median", "trimmed", "clipped")
    },
    "merging.ordered": Target(_tests("merging/test_rules")),
    "merging.rule": Target(
        _tests("merging/test_merger", "merging/test_rules", "learning/test_inputs", "learning/test_learners")
    ),
    "merging.merger": Target(_tests("merging/test_merger", "merging/test_rules")),
    "merging.trial": Target(_tests("merging/test_merger")),
    "report.analysis": Target(
        _tests("report/test_analysis"), frozenset({"difference", "paired_test", "paired", "outcomes", "gains", "holm"})
    ),
}

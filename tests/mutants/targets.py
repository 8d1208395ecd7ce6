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


_WIRING = frozenset(
    {
        "Experiment._measure",
        "Experiment._first_models",
        "Experiment._place",
        "new_workshop",
        "build_simulator",
        "reached",
        "first_models",
        "first_model",
        "_schedule",
        "_all_warnings",
        "_pairs",
        "_comparisons",
        "_data_sizes",
        "_history",
    }
)
TARGETS: dict[str, Target] = {
    **{
        module: Target(_tests("test_peer", "test_by_hand", "test_recorded_runs"))
        for module in (
            "peer",
            "protocol.situation",
            "protocol.behaviour",
            "protocol.starting",
            "protocol.searching",
            "protocol.gossiping",
            "protocol.admission",
            "protocol.alone",
        )
    },
    "policies": Target(_tests("test_policies", "test_by_hand")),
    "topology": Target(_tests("test_topology", "test_peer", "test_by_hand")),
    "links": Target(_tests("test_by_hand")),
    "scheduler": Target(_tests("test_scheduler", "test_by_hand")),
    "jobs": Target(_tests("test_jobs", "test_by_hand", "test_learners", "test_recorded_runs")),
    "received": Target(_tests("test_learners", "test_simulator")),
    "learners": Target(
        _tests("test_learners", "test_by_hand", "test_simulator", "test_recorded_runs", "merging/test_runs")
    ),
    "simulator": Target(_tests("test_by_hand", "test_simulator", "test_experiment", "test_recorded_runs")),
    "metrics": Target(_tests("test_metrics", "test_by_hand")),
    "results": Target(_tests("test_results", "test_by_hand")),
    "experiment": Target(_tests("test_experiment", "test_by_hand", "test_simulator", "test_recorded_runs"), _WIRING),
    "config": Target(
        _tests("test_config", "test_by_hand"),
        frozenset({"SettingsTree.step1_epochs", "SettingsTree.expected"}),
    ),
    "methods.dac": Target(_tests("methods/test_dac", "test_recorded_runs")),
    "data.scenarios": Target(_tests("data/test_scenarios", "partitions/test_partition", "test_by_hand")),
    "partitions.partition": Target(_tests("partitions/test_partition", "partitions/test_dirichlet")),
    "partitions.rotation": Target(_tests("data/test_scenarios", "partitions/test_partition", "test_config")),
    "partitions.groups": Target(_tests("partitions/test_groups")),
    "partitions.labels": Target(_tests("partitions/test_labels")),
    "partitions.dirichlet": Target(_tests("partitions/test_dirichlet", "partitions/test_labels")),
    "partitions.shards": Target(_tests("partitions/test_shards", "partitions/test_labels")),
    **{
        f"methods.{name}": Target(
            _tests("test_experiment", "test_by_hand", "methods/test_settings", "methods/test_traits")
        )
        for name in ("method", "random", "pens", "pens_plus", "local", "oracle", "central", "spec")
    },
    "calls": Target(_tests("test_by_hand", "test_learners", "test_simulator", "test_recorded_runs")),
    "engine.stack": Target(_tests("engine/test_stack")),
    **{
        f"merging.{rule}": Target(_tests("merging/test_rules")) for rule in ("weighted", "median", "trimmed", "clipped")
    },
    "merging.ordered": Target(_tests("merging/test_rules")),
    "merging.rule": Target(_tests("merging/test_merger", "merging/test_rules", "test_learners")),
    "merging.merger": Target(_tests("merging/test_merger", "merging/test_rules")),
    "merging.trial": Target(_tests("merging/test_merger")),
    "report.analysis": Target(
        _tests("report/test_analysis"), frozenset({"difference", "paired", "_by_seed", "outcomes", "gains", "holm"})
    ),
}

# SPDX-License-Identifier: Apache-2.0
"""Runs of every method, recorded: what each peer decided, sent, compared and merged must stay as it is, to the bit.

The numbers come from an engine that trains nothing (`tests/fakes.py`), so that they are the same on every processor.
A change that is meant to change them says so, and records them again: `python -m tests.test_recorded_runs`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import pens
from pens.measuring.results import RunResult
from tests.conftest import TINY
from tests.fakes import FakeEngine, fake_federation
from tests.methods.specs import IN_STEP

METHODS = (
    "pens",
    "pens+",
    "random",
    "random+",
    "local",
    "oracle",
    "oracle+",
    "central",
    "dac",
    "dpsgd",
    "el",
    "fedavg",
    "deprl",
    "fedrep",
    "facade",
    "dac-var",
    "fedfomo",
    "ifca",
)
FOLDER = Path(__file__).parent / "recorded"
SETTINGS: dict[str, object] = {
    **TINY, "peers": 10, "rounds": 7, "n_peers": 3, "n_sampled": 5, "m": 2, "step1_rounds": 3, "step1_samplings": 3,
    "step1_epochs": 4, "patience": 4, "window": 2,
}  # fmt: skip
ASYNC: dict[str, object] = {**SETTINGS, "schedule": "async", "latency": 0.3, "training_time": 1.7}
GROUPS: dict[str, object] = {"neighbours_by": "groups", "validated": "merged"}
"""`pens+` as it was first: other neighbours, and merged models."""
RUNS: dict[str, tuple[str, dict[str, object]]] = {
    **{f"{method}-rounds": (method, SETTINGS) for method in METHODS},
    **{f"{method}-async": (method, ASYNC) for method in METHODS if method not in IN_STEP},
    "pens-in-turn": ("pens", {**SETTINGS, "pull_from": "latest"}),
    "pens-authors": (
        "pens",
        {**SETTINGS, "train_first": False, "expected_offset": -1, "nobody_found": "alone", "score": "accuracy"},
    ),
    "pens-admit": ("pens", {**ASYNC, "admit": True, "step1_rounds": 1, "rounds": 20, "admission_trials": 2}),
    "pens-in-vain": ("pens", {**ASYNC, "give_up": 0.4, "latency": 2.0}),
    "pens-groups-rounds": ("pens", {**SETTINGS, **GROUPS, "step2_model": "best"}),
    "pens-groups-async": ("pens", {**ASYNC, **GROUPS, "step2_model": "best"}),
    "pens-groups-common": (
        "pens",
        {**SETTINGS, **GROUPS, "step2_model": "first", "init": "common", "score_samples": 1, "wire": "fp16"},
    ),
    **{f"{method}-merged-rounds": (method, {**SETTINGS, "validated": "merged"}) for method in ("random", "oracle")},
    **{f"{method}-merged-async": (method, {**ASYNC, "validated": "merged"}) for method in ("random", "oracle")},
    "pens-angles-of-updates": ("pens", {**SETTINGS, "score": "cosine-update", "init": "common", "wire": "fp16"}),
    "pens-angles-async": ("pens", {**ASYNC, "score": "cosine-weights", "neighbours_by": "levels"}),
    "pens+-distances": ("pens+", {**SETTINGS, "score": "l2"}),
    "pens+-common": ("pens+", {**SETTINGS, "init": "common", "score_samples": 1, "wire": "fp16"}),
    "random-anyone": ("random", {**ASYNC, "accept": "anyone", "own_in_merge": False}),
    "oracle-last": ("oracle", {**SETTINGS, "tested": "last", "stop_on": "loss"}),
}


def record(name: str, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    method, settings = RUNS[name]
    federation = fake_federation(10)
    patch.setattr("pens.experiment.wiring.new_engine", lambda *_: engine(federation.tested_on))
    run = pens.run(settings, methods=method, data=federation, model=nn.Identity).runs[0]
    return ledger(run)


def engine(clusters: tuple[int, ...]) -> FakeEngine:
    made = FakeEngine(clusters)
    made.network.state = lambda rows: {"numbers": rows}
    return made


def ledger(run: RunResult) -> dict[str, Any]:
    """All that was decided and counted."""
    told: dict[str, Any] = {
        "neighbours": {str(peer): list(found) for peer, found in run.neighbours.items()},
        "warnings": list(run.warnings),
        "rounds": run.rounds,
        "epochs of step 1": run.step1_epochs and list(run.step1_epochs),
        "precision, recall": run.agreement and [run.agreement.precision, run.agreement.recall],
    }
    for part in ("communication", "pairs", "history", "comparisons"):
        columns = vars(getattr(run, part)) if getattr(run, part) is not None else {}
        told[part] = {name: _plain(column) for name, column in columns.items()}
    return told


def _plain(column: Any) -> Any:
    return column.tolist() if hasattr(column, "tolist") else column


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    now = json.loads(json.dumps(record(name, monkeypatch)))
    assert now.keys() == before.keys()
    for part, found in now.items():
        assert found == before[part], part
    assert list(now["neighbours"]) == sorted(before["neighbours"], key=int)


if __name__ == "__main__":
    for recorded in RUNS:
        with pytest.MonkeyPatch.context() as patch:
            text = json.dumps(record(recorded, patch), indent=0).replace(",\n", ",").replace("\n", "")
        (FOLDER / f"{recorded}.json").write_text(text + "\n", encoding="utf-8")

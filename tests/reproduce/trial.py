# SPDX-License-Identifier: Apache-2.0
"""The paper's plan with settings so small that a run takes a tenth of a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pens.paper.exhibits import exhibits
from pens.planning.store import RunStore
from pens.reproduce.compare import Comparison
from pens.reproduce.run import ReproduceRequest, Reproduction
from pens.settings.tree import MethodName

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "peers": 4,
    "train_per_peer": 8,
    "val_per_peer": 4,
    "test_samples": 20,
    "epochs": 1,
    "rounds": 2,
    "n_peers": 2,
    "n_sampled": 2,
    "m": 1,
    "step1_rounds": 1,
    "step1_samplings": 2,
    "step1_epochs": 1,
    "central_rounds": 1,
    "compile": "never",
}


def trial(
    out: Path,
    *names: str,
    seeds: int = 1,
    methods: tuple[MethodName, ...] | None = None,
    budget_s: float | None = None,
    kept: tuple[Comparison, ...] = (),
    **changed: Any,
) -> Reproduction:
    """A plan in small, looked at but not run."""
    wanted = {**SMALL, **changed}
    request = ReproduceRequest(exhibits(names), tuple(range(seeds)), methods, wanted, "cpu", None, budget_s, kept)
    plan = Reproduction(request, RunStore(out))
    plan.prepare()
    return plan

# SPDX-License-Identifier: Apache-2.0
"""Three peers to learn with, whose numbers are worked out by hand: `tests/byhand.py` says what a model's mean."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pens.engine.batches import SampleStack
from pens.engine.optimizers import Recipe
from pens.learning.executor import Executor
from pens.learning.learners import Learners
from pens.learning.rules import LearningRules
from pens.protocol.messages import ModelRef, PeerId, Update
from pens.settings.schema import Keep, StoppingSettings
from tests.byhand import CountingEngine, sample

CPU = torch.device("cpu")
LOSSES = ((0.0, 1.0, 2.0), (2.0, 0.0, 1.0), (1.0, 2.0, 0.0))


def learners(
    first_slot: int = 0,
    peers: Sequence[int] | None = None,
    executor: Executor | None = None,
    first_models: Tensor | None = None,
    **rules: object,
) -> Learners:
    """Three peers, whose numbers are 0, 1, 2 or those given. The slots before `first_slot` belong to somebody else."""
    executor = executor or executor_for(first_slot)
    defaults: dict[str, object] = {
        "recipe": Recipe("sgd", 0.1, 0.0, 0.0, 4),
        "stopping": StoppingSettings(window=1, patience=9, tested="last"),
        "own_in_merge": True,
        "seed": 0,
    }
    rules_ = LearningRules(**{**defaults, **rules})  # type: ignore[arg-type]
    numbers = [PeerId(p) for p in peers] if peers else None
    begin = torch.zeros(3, 3) if first_models is None else first_models
    return Learners(executor, first_slot, begin, rules_, numbers)


def executor_for(first_slot: int = 0) -> Executor:
    strangers = [sample((9, 9, 9), 2)] * first_slot
    training = SampleStack([*strangers, *(sample(LOSSES[p], p) for p in range(3))], CPU)
    validation = SampleStack([*strangers, *(sample(LOSSES[p][::-1], p) for p in range(3))], CPU)
    return Executor(CountingEngine(3), training, validation, 3)


def engine_of(them: Learners) -> CountingEngine:
    engine = them.executor.engine
    assert isinstance(engine, CountingEngine)
    return engine


def compute(them: Learners) -> None:
    them.executor.carry_out([them.compute_batch()], [lambda: None])


def update(
    them: Learners, peer: int, own: ModelRef, *models: ModelRef, top_m: int | None = None, **values: object
) -> ModelRef:
    """Record an update, with references to the models it takes."""
    for ref in models:
        them.names.retain(ref)
    arguments: dict[str, object] = {"epochs": 1, "may_stop": False, **values}
    time = float(arguments.pop("time", 0.0))  # type: ignore[arg-type]
    action = Update(models, top_m, **arguments)  # type: ignore[arg-type]
    return them.record_update(PeerId(peer), own, action, time)


def first_trainings(them: Learners, keep: Keep = "last") -> list[ModelRef]:
    """Everybody trains one epoch: e0, e1, e2."""
    refs = [update(them, peer, them.first_model(peer), keep=keep) for peer in them.by_peer]
    compute(them)
    return refs


def values(them: Learners, ref: ModelRef) -> list[float]:
    (row,) = them.models.read([them.names.row(ref)]).tolist()
    return [round(value, 5) for value in row]

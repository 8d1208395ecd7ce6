# SPDX-License-Identifier: Apache-2.0
"""The calls of several runs as one."""

from __future__ import annotations

import pytest
import torch

from pens.engine.batches import Subset
from pens.engine.distances import Pair
from pens.engine.optimizers import Recipe
from pens.learning.executor import Call, Evaluate, Measure, Train, Work
from tests.byhand import CountingEngine
from tests.learning.three import executor_for


def test_runs_that_share_an_executor_are_answered_in_the_order_of_what_they_ask_for() -> None:
    """Distances, comparisons, training, validation. Calls of one kind are one call: comparisons of the same number of
    samples, distances of one kind between the same numbers. The models are [1, 0, 0], [0, 1, 0] and [0, 0, 1]; each run
    is told the losses of those that it asked for."""
    executor, told = executor_for(), list[tuple[str, list[float]]]()
    rows = executor.models.add(torch.eye(3))

    def asking(name: str, call: Call) -> Work:
        answer = yield call
        told.append((name, answer if isinstance(answer, list) else answer.loss.tolist()))

    one, two = Subset(1, [7]), Subset(5, [8, 9])
    works = [
        asking("validation", Evaluate("val", rows[:2], [0, 0])),
        asking("training", Train([rows], [1], [0], 3, Recipe("sgd", 0.1, 0.0, 0.0, 4))),
        asking("five samples", Evaluate("train", rows[1:], [0, 0], two)),
        asking("one sample", Evaluate("train", rows[:1], [1], one)),
        asking("all samples", Evaluate("train", rows[:1], [2])),
        asking("another validation", Evaluate("val", rows[1:], [1, 1])),
        asking("distances", Measure("l2", [Pair(rows[0], rows[0])], (slice(0, 3),))),
        asking("more distances", Measure("l2", [Pair(rows[0], rows[1])] * 2, (slice(0, 2),) * 2)),
        asking("angles", Measure("cosine-weights", [Pair(rows[0], rows[1])], (slice(0, 3),))),
        asking("another distance", Measure("l2", [Pair(rows[1], rows[2])], (slice(0, 3),))),
    ]
    executor.carry_out(works, [lambda: None] * len(works))
    assert told == [
        ("angles", [1]),
        ("more distances", [2, 2]),
        ("distances", [0]),
        ("another distance", [pytest.approx(2**0.5)]),
        ("all samples", [1]),
        ("one sample", [2]),
        ("five samples", [1, 2]),
        ("training", [1]),
        ("validation", [2, 1]),
        ("another validation", [0, 2]),
    ]
    engine = executor.engine
    assert isinstance(engine, CountingEngine)
    assert engine.subsets == [None, one, two, None]

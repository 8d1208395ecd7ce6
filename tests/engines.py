# SPDX-License-Identifier: Apache-2.0
"""What engines for tests have in common: the calls of `pens.engine.training.Engine`, each as one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from pens.engine.batches import SampleStack, Subset
from pens.engine.optimizers import Moments, Recipe
from pens.engine.stack import ModelStack
from pens.engine.training import Evaluation, Trained


class Training(NamedTuple):
    """What `Engine.train` is asked for."""

    rows: Tensor
    data: SampleStack
    slots: Sequence[int]
    keys: Sequence[int]
    epochs: int
    recipe: Recipe
    moments: Moments | None = None
    only: tuple[str, ...] | None = None


class Evaluating(NamedTuple):
    """What `Engine.evaluate` is asked for."""

    models: ModelStack
    rows: Sequence[int]
    data: SampleStack
    slots: Sequence[int]
    subset: Subset | None = None


class EngineOfCalls:
    """An engine that answers calls."""

    network: Any

    def train(self, *asked: Any, **named: Any) -> Trained:
        return self.trained(Training(*asked, **named))

    def evaluate(self, *asked: Any, **named: Any) -> Evaluation:
        named.pop("further", None)  # there is one metric
        named.pop("each", None)
        return self.evaluated(Evaluating(*asked, **named))

    def trained(self, call: Training) -> Trained:
        raise NotImplementedError

    def evaluated(self, call: Evaluating) -> Evaluation:
        raise NotImplementedError

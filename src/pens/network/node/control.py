# SPDX-License-Identifier: Apache-2.0
"""Did joining help? The accuracy of a control, trained on the peer's own data alone, beside that of the kept model.

The control is trained as the method `local` trains: from the same untrained model, with the same settings, for at most
as many updates, stopped early by the same rule. It is trained when the peer has finished, one update at a time, so that
it delays no other member and can be abandoned at any moment; after a restart its training begins anew. It is merged
with no other peer's model, and is not sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pens.learning.learners import Learners
from pens.learning.rules import LearningRules
from pens.network.node.learning import Learning
from pens.protocol.messages import Update


@dataclass(frozen=True)
class AloneControl:
    """How good the control is."""

    val_accuracy: float
    """Accuracy of its best model, on the same validation samples."""
    accuracy: float | None
    """Accuracy on the test samples, where there are any."""
    updates: int


@dataclass(frozen=True)
class ControlRules:
    """How the control is trained."""

    first_model: Tensor
    """The peer's own untrained model.  [size]"""
    learning: LearningRules
    epochs: int
    rounds: int
    """The most updates after the first training, where there is one."""
    train_first: bool = True
    """Whether there is a first training, in which early stopping does not apply yet."""


class Control:
    """A model that is trained on the peer's own data alone."""

    def __init__(self, learning: Learning, rules: ControlRules) -> None:
        self._learning, self._rules, self._me = learning, rules, learning.me
        self._learners: Learners | None = None

    async def update(self) -> AloneControl | None:
        """Train for one update; after the last one, return how good the control is."""
        if self._learners is None:
            first, rules = self._rules.first_model[None], self._rules.learning
            self._learners = Learners(self._learning.learners.executor, 0, first, rules, [self._me])
            self._current = self._learners.first_model(self._me)
        learners, done = self._learners, self._learners.by_peer[self._me].num_computed
        action = Update((), None, self._rules.epochs, may_stop=done >= self._rules.train_first)
        coming = learners.record_update(self._me, self._current, action, done + 1)
        await self._learning.bench.do(lambda: self._learning.compute(learners.compute_batch()), action.epochs)
        learners.names.release(self._current)
        self._current = coming
        return await self._end(done + 1) if self._is_over(done + 1) else None

    def _is_over(self, updates: int) -> bool:
        return updates >= self._rules.train_first + self._rules.rounds or bool(
            self._learners and self._learners.by_peer[self._me].has_stopped
        )

    async def _end(self, updates: int) -> AloneControl:
        """Measure the control's best model, and release its memory."""
        learners = self._learners
        assert learners
        found: list[AloneControl] = []

        def measure() -> None:
            val_accuracy, accuracy = self._learning.measured(learners)
            found.append(AloneControl(val_accuracy, accuracy, updates))
            learners.let_go()

        await self._learning.bench.do(measure, 0)
        self._learners = None
        return found[0]

# SPDX-License-Identifier: Apache-2.0
"""Did joining help? The accuracy of a control, trained on the peer's own data alone, beside that of the kept model.

The control is trained by a peer of the method `local`, from the same untrained model, with the same settings, stopped
early by the same rule. It is trained when the peer has finished, one update at a time, so that it delays no other
member and can be abandoned at any moment; after a restart its training begins anew. It is merged with no other peer's
model, and is not sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pens.learning.learners import Learners
from pens.learning.rules import LearningRules
from pens.methods.names import alone
from pens.methods.spec import RunSpec
from pens.network.node.learning import Learning
from pens.protocol.messages import Event, ModelRef, Start, Update, Updated
from pens.protocol.peer import Peer
from pens.protocol.plan import Plan
from pens.settings.tree import Settings


@dataclass(frozen=True)
class AloneControl:
    """How good the control is."""

    val_accuracy: float
    """Accuracy, or what else the task measures, of its best model on the same validation samples."""
    accuracy: float | None
    """The same on the test samples, where there are any."""
    updates: int


@dataclass(frozen=True)
class ControlRules:
    """How the control is trained."""

    first_model: Tensor
    """The peer's own untrained model.  [size]"""
    learning: LearningRules
    plan: Plan

    @staticmethod
    def of(settings: Settings, seed: int, first_model: Tensor, train: int, val: int) -> ControlRules:
        """Those of the method with which peers train alone. `train`, `val`: how many samples the peer has."""
        spec = RunSpec.of(alone(), settings, seed)
        return ControlRules(first_model, spec.learning(), spec.plan(train, val, num_peers=1))


@dataclass
class _Training:
    """The training of the control, in progress."""

    learners: Learners
    peer: Peer
    current: ModelRef
    action: Update | None
    """The update that the peer wants next; None: it has done them all."""


class Control:
    """A model that is trained on the peer's own data alone."""

    def __init__(self, learning: Learning, rules: ControlRules) -> None:
        self._learning, self._rules, self._me = learning, rules, learning.me
        self._training: _Training | None = None

    async def update(self) -> AloneControl | None:
        """Train for one update; after the last one, return how good the control is."""
        its = self._training = self._training or self._begin()
        learners, learner, action = its.learners, its.learners.by_peer[self._me], its.action
        assert action, "a peer that trains alone begins with an update"
        coming = learners.record_update(self._me, its.current, action, learner.num_computed + 1)
        await self._learning.bench.do(lambda: self._learning.compute(learners.compute_batch()), action.epochs)
        learners.names.release(its.current)
        its.current, its.action = coming, _wanted(its.peer, Updated())
        return None if its.action and not learner.has_stopped else await self._end(its)

    def _begin(self) -> _Training:
        """The untrained model, and a peer that reaches nobody."""
        rules = self._rules
        learners = Learners(self._learning.learners.executor, 0, rules.first_model[None], rules.learning, [self._me])
        peer = Peer(self._me, rules.learning.seed, rules.plan, ())
        return _Training(learners, peer, learners.first_model(self._me), _wanted(peer, Start()))

    async def _end(self, its: _Training) -> AloneControl:
        """Measure the control's best model, and release its memory."""
        updates = its.learners.by_peer[self._me].num_computed
        found: list[AloneControl] = []

        def measure() -> None:
            val_accuracy, accuracy, _ = self._learning.measured(its.learners)
            found.append(AloneControl(val_accuracy, accuracy, updates))
            its.learners.let_go()

        await self._learning.bench.do(measure, 0)
        self._training = None
        return found[0]


def _wanted(peer: Peer, event: Event) -> Update | None:
    """The update that a peer wants after an event, if it wants one."""
    return next((action for action in peer.handle(event) if isinstance(action, Update)), None)

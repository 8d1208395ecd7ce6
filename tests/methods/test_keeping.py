# SPDX-License-Identifier: Apache-2.0
"""A method of one's own that keeps a model aside and goes back to it, as PENS does between its steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pens.data.samples import Array
from pens.engine.batches import SampleStack, Subset
from pens.engine.stack import ModelStack
from pens.engine.training import Evaluation
from pens.errors import SettingsError
from pens.experiment.wiring import build_simulator, first_models, new_executor
from pens.methods.method import Method
from pens.methods.spec import RunSpec
from pens.protocol.gossiping import Gossiping
from pens.protocol.messages import Action, ModelRef
from pens.protocol.plan import Plan
from pens.settings.schema import Keep
from pens.settings.tree import RunSettings, Settings
from pens.simulation.simulator import Simulator, advance_together
from tests.conftest import TINY
from tests.fakes import CPU, FakeEngine, fake_federation
from tests.simulations import Log, decisions, run


class GoingBack(Gossiping):
    """Every third update begins with the best model since the one before the first update."""

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        goes_back = self.peer.updates % 3 == 2
        return [self.peer.update(models, may_stop=True, keep=self.peer.plan.own, from_kept=goes_back)]


class Back(Method):
    """Gossip with such a behaviour."""

    name = "back"

    def __init__(self, keep: Keep = "best") -> None:
        self._keep = keep

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        return replace(
            super().plan(settings, train, val, num_peers), behaviours={"gossiping": GoingBack}, own=self._keep
        )


class Merges(FakeEngine):
    """A model's first number is what was merged, plus one; its validation loss is how far that is from 2.2."""

    def train(self, rows: Any, *rest: Any) -> Any:
        trained = super().train(rows, *rest)
        trained.rows[:, 0] = rows[:, 0] + 1
        return trained

    def evaluate(
        self,
        models: ModelStack,
        rows: Sequence[int],
        data: SampleStack,
        slots: Sequence[int],
        subset: Subset | None = None,
        *,
        further: bool = False,
        each: bool = False,
    ) -> Evaluation:
        loss: Array = np.abs(models.read(rows)[:, 0].double().numpy() - 2.2)
        return Evaluation(loss, 1 - loss / 99)


def simulator(method: Method, log: Log | None = None, **values: object) -> Simulator:
    settings = Settings().replace({**TINY, "peers": 4, "rounds": 6, "n_peers": 1, "patience": 99, **values})
    federation = fake_federation(4)
    engine = Merges(federation.tested_on)
    spec = RunSpec.of(method, settings, 0)
    models = first_models(engine, spec.settings, 0, 4)
    executor = new_executor(engine, federation.peers, CPU)
    return build_simulator(spec, federation, executor, models, trace=log)


def test_an_own_method_keeps_the_best_model_and_goes_back_to_it() -> None:
    """In step with each other, all peers' models are 0.5 at first, 1.5 after the first training, and one more after
    each update. The first update keeps the 1.5 before it, then 2.5, the best. The third begins with the average of that
    and another's 3.5, in place of 3.5; after it, the models are no more the same, but nobody's is better than 2.5."""
    after = {update: run(simulator(Back(), rounds=update)) for update in (2, 3)}
    models, kept = (
        {n: [one.models.read([row_of(one, p)])[0, 0].item() for p in range(4)] for n, one in learners_of(after)}
        for row_of in (newest, kept_row)
    )
    assert models == {2: [3.5] * 4, 3: [4.0] * 4}
    assert kept == {2: [2.5] * 4, 3: [2.5] * 4}


def learners_of(simulators: dict[int, Simulator]) -> list[tuple[int, Any]]:
    return [(number, one.learners) for number, one in simulators.items()]


def newest(learners: Any, peer: int) -> int:
    row: int = learners.names.row(learners.by_peer[peer].latest)
    return row


def kept_row(learners: Any, peer: int) -> int:
    row: int = learners.by_peer[peer].kept.row
    return row


@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_interrupted_after_every_batch_it_is_the_same(schedule: str) -> None:
    log, broken_log = Log(), Log()
    whole, broken = run(simulator(Back(), log, schedule=schedule)), simulator(Back(), broken_log, schedule=schedule)
    while not broken.is_over():
        advance_together([broken])
        data, tensors = broken.state()
        data, tensors = json.loads(json.dumps(data)), {name: t.clone() for name, t in tensors.items()}
        broken = simulator(Back(), broken_log, schedule=schedule)
        broken.restore(data, tensors)
    assert broken_log.entries == log.entries
    assert decisions(broken) == decisions(whole)
    assert list(broken.learners.history) == list(whole.learners.history)


def test_a_model_to_keep_that_there_is_not_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"GoingBack.*`keep` has to be one of last, first, best"):
        run(simulator(Back("newest")))  # type: ignore[arg-type]

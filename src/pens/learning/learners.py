# SPDX-License-Identifier: Apache-2.0
"""What a driver of peers sees of learning: it records what the peers want, computes it, and reads the results.

Theory of operation. A driver does not compute an update when it begins. It records it (which models go in, which comes
out, when) and goes on; who sends what to whom does not depend on any model's values until a peer selects its
neighbours. `compute_batch` then works off one batch of what is recorded (`pens.learning.jobs`): everything whose
inputs are known. A model's name (`ModelRef`) exists from the moment its update is recorded, its values from the moment
that it is computed.

Each update reads the peer's own samples and the models named in it, and nothing else, so any order of computation that
respects the names gives the same result. What depends on a peer's own past (early stopping, its best model) depends on
its own updates only, and those form a chain.

    by_peer    what is known of each peer (`learner`)
    names      models by name, and where their values are (`named_models`)
    jobs       what is recorded and not yet computed (`jobs`)

`scoring` and `updating` compute. A simulation's models all come out of updates. A node's peer is sent those of others:
`names.take_in` gives them values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pens.attacks.attack import Attackers
from pens.engine.layout import Layout
from pens.engine.rounding import model_bytes
from pens.engine.training import Evaluation
from pens.errors import SettingsError
from pens.learning.blending import Blender
from pens.learning.context import Context
from pens.learning.curves import Curves
from pens.learning.executor import Evaluate, Executor, MomentRows, Work, evaluate
from pens.learning.forging import Forger
from pens.learning.gate import Gate
from pens.learning.inputs import Inputs
from pens.learning.jobs import Blending, JobGraph, Question, Scoring, Updating
from pens.learning.learner import NO_SAMPLES, VERDICTS, Answer, Form, Learner
from pens.learning.ledger import Ledger
from pens.learning.named_models import NamedModels
from pens.learning.rules import LearningRules
from pens.learning.scoring import Scorer
from pens.learning.updating import Updater
from pens.merging.merger import check_prefixes, merged_names
from pens.merging.rule import check_said
from pens.protocol.messages import (
    Ask,
    Blend,
    Compare,
    Counts,
    Distances,
    Losses,
    ModelRef,
    PeerId,
    Phase,
    Update,
    Verdicts,
    received_in,
)
from pens.settings.schema import Score


class Learners:
    """Executes scorings and updates for all peers of a simulation, or for the one peer of a node."""

    def __init__(
        self,
        executor: Executor,
        first_slot: int,
        first_models: Tensor,
        rules: LearningRules,
        peers: Sequence[PeerId] | None = None,
        num_servers: int = 0,
        attackers: Attackers | None = None,
    ) -> None:
        """`first_models` [peer, size]: each peer's untrained model. The samples of the first lie in slot first_slot.

        `peers`: their numbers, where they are those of a network; None: 0, 1, 2, …
        `num_servers`: how many of them, the last ones, hold no samples. `attackers`: those of a simulation.
        """
        self.executor, self.rules, self.models = executor, rules, executor.models
        self.names = NamedModels(executor.models, executor.engine.network.stored, rules.wire)
        numbers = [PeerId(p) for p in range(len(first_models))] if peers is None else peers
        slots = range(first_slot, first_slot + len(numbers) - num_servers)
        self.by_peer = {
            peer: Learner(slot, ModelRef(peer, 0), {form: Form(rules.new_stopping()) for form in rules.forms})
            for peer, slot in zip(numbers, (*slots, *[NO_SAMPLES] * num_servers), strict=True)
        }
        self.jobs = JobGraph()
        self._checked_phases: set[tuple[Phase, ...]] = set()
        self.travelling = self._travelling()
        """The tensors of a model that are sent; None: all."""
        self._origin = ModelRef(next(iter(self.by_peer)), 0) if rules.common_start else None
        """The model that all peers begin with. It is kept."""
        context = Context(executor, rules, self.names, self.by_peer, self.jobs, self._origin)
        inputs = Inputs(context)
        self._gate = Gate(context, inputs)
        self._scorer, self._updater = (
            Scorer(context, self._gate, wide=peers is not None),
            Updater(context, inputs, self._gate),
        )
        self._blender, self.forger = Blender(context, inputs), Forger(context, attackers)
        if rules.optimizer_remembers:
            self._begin_optimizers()
        self._begin_with(first_models)
        if not self._gate.is_open:
            self._gate.begin()

    def _begin_with(self, models: Tensor) -> None:
        """Each peer's untrained model, retained for its driver."""
        rows = self.models.add(models.to(self.models.device))
        for learner, row in zip(self.by_peer.values(), rows, strict=True):
            self.names.rows[self.names.retain(learner.latest)] = row
        if self._origin:
            self.names.retain(self._origin)

    def _begin_optimizers(self) -> None:
        """At first optimizers remember zeros: rows that all peers share."""
        nothing = torch.zeros((self.rules.recipe.num_moments, self.models.size), device=self.models.device)
        rows = self.models.add(nothing)
        for learner in self.by_peer.values():
            learner.moments = MomentRows([self.models.retain(row) for row in rows])
        for row in rows:
            self.models.release(row)

    def _travelling(self) -> tuple[str, ...] | None:
        return travelling_names(self.executor.engine.network.stored, self.rules)

    def first_model(self, peer: PeerId) -> ModelRef:
        """The name of a peer's untrained model, retained once for the caller."""
        return ModelRef(peer, 0)

    # --- recording ----------------------------------------------------------------------------------------------------

    def record_comparison(self, peer: PeerId, own: ModelRef, action: Compare) -> None:
        """The models were retained for the peer; they are released when the job is done. `own`: the peer's model."""
        self._record_scoring(peer, own, action.models, self.rules.score, action.m)

    def record_question(self, peer: PeerId, own: ModelRef, ask: Ask, time: float) -> None:
        """The models that the question names are retained until it is computed. `time`: when it is to be answered."""
        learner, query = self.by_peer[peer], ask.query
        if isinstance(query, Counts):
            learner.answers.append(Answer(ask.name, 0))
            return
        if isinstance(query, Verdicts):
            learner.answers.append(Answer(ask.name, VERDICTS))
            return
        models, by = received_in(query), query.by if isinstance(query, Distances) else "loss"
        question = Question(ask.name, "train", time, 0)
        if isinstance(query, Losses):
            models = (*models, *((own,) if query.own else ()))
            question = Question(ask.name, query.on, time, len(query.models))
        for ref in models:
            self.names.retain(ref)
        self._record_scoring(peer, own, models, by, question=question)
        learner.answers.append(Answer(ask.name, learner.scorings))

    def record_blend(self, peer: PeerId, own: ModelRef, action: Blend) -> None:
        """The models that it averages are retained until it is computed, and the one that comes out until the peer is
        done with it. `own`: the peer's model at this moment."""
        who, models = f"the blend of peer {peer}", len(action.models) + bool(action.untrained)
        check_said(self.rules.merging, who, models, action.weights, action.segment_weights)
        for ref in (own, *action.models, action.out, action.out):
            self.names.retain(ref)
        self.jobs.add_blending(Blending(peer, own, action), self.names.rows)

    def record_update(self, peer: PeerId, own: ModelRef, action: Update, time: float) -> ModelRef:
        """The models were retained for the peer; they are released when the update is done. `own`: the peer's model
        before. Returns the name of the model that will come out, retained once for the caller."""
        self._check_weights(peer, action)
        self._check_phases(peer, action)
        learner = self.by_peer[peer]
        self._check_samples(peer, "compares models, or trains", of=action.epochs or action.top_m is not None)
        learner.recorded += 1
        own, out = self.names.retain(own), self.names.retain(ModelRef(peer, learner.recorded))
        job = Updating(peer, time, action, action.models, own, out)
        self.jobs.add_update(job, self.names.rows, compares=action.top_m is not None)
        if action.top_m is not None:
            self._record_scoring(peer, own, action.models, self.rules.score, action.top_m, job)
        if learner.has_stopped:
            self._updater.answer_with_best(peer)
        return out

    def _check_weights(self, peer: PeerId, action: Update) -> None:
        """Refuse weights that do not fit the update, where the method says how much each model counts."""
        if action.weights is None and not action.segment_weights:
            return
        who = f"the update of peer {peer}"
        if action.top_m is not None:
            raise SettingsError(
                f"{who} says weights and top_m = {action.top_m}, but weights are of models that are chosen already: "
                "leave out one of the two"
            )
        check_said(self.rules.merging, who, len(action.models), action.weights, action.segment_weights)

    def _check_phases(self, peer: PeerId, action: Update) -> None:
        """Refuse phases that train nothing, or that do not fit the update."""
        if not action.phases or action.phases in self._checked_phases:
            return
        who, layout = f"the update of peer {peer}", self.executor.engine.network.stored
        if self.rules.optimizer_remembers:
            raise SettingsError(
                f"{who} has phases, whose optimizers begin anew, but those of this method go on from update to update: "
                "leave out phases, or keeps_moments"
            )
        if (total := sum(phase.epochs for phase in action.phases)) != action.epochs:
            raise SettingsError(
                f"{who} has phases of {total} epochs and epochs = {action.epochs}: leave out epochs, they are added up"
            )
        for phase in action.phases:
            check_prefixes(layout, (*phase.only, *phase.without), f"{who} has a phase for")
            names = layout.part(phase.only, phase.without)
            if phase.epochs < 1 or not any(place.name in names for place in layout.trained):
                raise SettingsError(
                    f"{who} has the phase {phase}, which trains nothing: give it at least one epoch, and parameters"
                )
        self._checked_phases.add(action.phases)

    def _check_samples(self, peer: PeerId, does: str, of: object = True) -> None:
        if of and not self.by_peer[peer].has_samples:
            raise SettingsError(
                f"the server {peer} {does}, but it holds no samples: a server merges what it received, by "
                "self.peer.update(models, may_stop=False, epochs=0)"
            )

    def _record_scoring(
        self,
        peer: PeerId,
        own: ModelRef,
        models: tuple[ModelRef, ...],
        by: Score,
        m: int = 0,
        update: Updating | None = None,
        question: Question | None = None,
    ) -> None:
        learner, on_samples = self.by_peer[peer], by in ("loss", "accuracy")
        self._check_origin(peer, by)
        self._check_samples(peer, "asks for losses", of=on_samples)
        if on_samples and self.travelling is not None and any(ref.owner != peer for ref in models):
            raise SettingsError(
                f"peer {peer} asks for losses of received models, of which only what is merged was sent: set "
                "scores = True in the class of the method, so that whole models are, or leave out merge_only"
            )
        learner.scorings += 1
        before = learner.recorded - (update is not None)
        beside = None if on_samples else self.names.retain(own)
        job = Scoring(peer, learner.scorings, before, models, m, update, question, by, beside)
        self.jobs.add_scoring(job, self.names.rows)

    def _check_origin(self, peer: PeerId, by: Score) -> None:
        if by == "cosine-update" and self._origin is None:
            raise SettingsError(
                f"peer {peer} compares models by cosine-update, what training changed since the model that all began "
                "with, but each peer began with its own: set init = common, or compare by cosine-weights or l2"
            )

    # --- computing ----------------------------------------------------------------------------------------------------

    def compute_batch(self) -> Work:
        """Work off what is ready: blends, comparisons, then all updates, those that became ready by them included."""
        yield from self.compare()
        yield from self._updater.work_off()

    def compare(self) -> Work:
        """Work off the comparisons and questions that are ready, and the blends that some of them are about."""
        self.forger.work_off()
        yield from self._blender.work_off()
        yield from self._scorer.work_off()

    # --- results -----------------------------------------------------------------------------------------------------

    def is_answered(self, peer: PeerId) -> bool:
        """Whether all that a peer asked for is computed."""
        if self.by_peer[peer].awaits_verdicts and self.jobs.next_update(peer):
            return False
        return self.jobs.is_scored(peer)

    def answer(self, peer: PeerId, name: str) -> Any:
        """The answer to the first question of this name that a peer was not told yet."""
        return self.by_peer[peer].take_answer(name)

    @property
    def comparisons(self) -> Ledger:
        """Every comparison of step 1."""
        return self._scorer.comparisons

    @property
    def history(self) -> Curves:
        """Every update that was computed."""
        return self._updater.history

    @property
    def setbacks(self) -> Counter[PeerId]:
        """How many updates of each peer were undone because the loss was not finite."""
        return self._updater.setbacks

    @property
    def num_updates(self) -> int:
        """Updates that were computed."""
        return self._updater.num_updates

    @property
    def num_batches(self) -> int:
        """Batches in which they were computed."""
        return self._updater.num_batches

    def tested_rows(self) -> list[int]:
        """The row of each peer's model that is to be tested: the best on validation data, or the last."""
        rows, last = self.names.rows, self.rules.stopping.tested == "last"
        return [rows[one.latest] if last or one.best is None else one.best for one in self.by_peer.values()]

    def validation(self) -> Evaluation:
        """How good the models that are to be tested are on their peers' own validation data.  [peer]"""
        rows, learners = self.tested_rows(), list(self.by_peer.values())
        held = [(row, learner.slot) for row, learner in zip(rows, learners, strict=True) if learner.has_samples]
        found: list[Evaluation] = []

        def work() -> Work:
            found.append((yield from evaluate(Evaluate("val", [row for row, _ in held], [slot for _, slot in held]))))

        self.executor.carry_out([work()], [lambda: None])
        return found[0]

    def tested_forms(self) -> tuple[str, ...]:
        """The form of that model, by its name in `FORMS`; empty where peers do not choose between forms."""
        learners = self.by_peer.values()
        if self.rules.stopping.tested == "last" or all(len(learner.forms) == 1 for learner in learners):
            return ()
        return tuple(learner.preferred() for learner in learners)

    def let_go(self) -> None:
        """Release all models of this run; the stack serves the other runs."""
        self.names.let_go()
        for learner in self.by_peer.values():
            learner.let_go(self.models)

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything that changes, as plain data and tensors. Only between batches."""
        learners = self.by_peer.values()
        held = [row for learner in learners for row in learner.held_rows()]
        rows = list(dict.fromkeys([*self.names.in_order(), *held]))  # whichever they are on the device
        place = {row: i for i, row in enumerate(rows)}
        data = {
            "names": self.names.state(place),
            "learners": [learner.state(place, mistrusts=not self._gate.is_open) for learner in learners],
            "jobs": self.jobs.state(),
            "updates": self._updater.state(),
            "forged": self.forger.state(),
        }
        tensors = {"models": self.models.read(rows), "history": torch.tensor(self.history.table())}
        return data, {**tensors, "comparisons": self.comparisons.state()}

    def restore(self, data: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Become what `state` described."""
        self.let_go()
        rows = self.models.add(tensors["models"].to(self.models.device))
        self.names.restore(data["names"], rows)
        for learner, state in zip(self.by_peer.values(), data["learners"], strict=True):
            learner.restore(state, rows, self.models)
        for row in rows:
            self.models.release(row)
        self.forger.restore(data.get("forged", 0))
        self._updater.restore(data["updates"], Curves(tensors["history"].numpy()))
        self.comparisons.restore(tensors["comparisons"])
        self.jobs.restore(data["jobs"], self.names.rows)


def travelling_names(layout: Layout, rules: LearningRules) -> tuple[str, ...] | None:
    """The tensors of a model that are sent; None: all. What is merged, where received models are used for nothing
    else."""
    if rules.scores or rules.merging.is_plain(layout):
        return None
    names = merged_names(layout, rules.merging)
    return tuple(names) if model_bytes(layout, "fp32", names) < model_bytes(layout, "fp32") else None

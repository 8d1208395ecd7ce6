# SPDX-License-Identifier: Apache-2.0
"""Updating: merge, train, validate, and keep the best model, for one batch of updates at a time.

An update whose training loss is not finite is undone: the model from before stays. A peer that stopped early answers
later updates with its best model and no work: it keeps serving that model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pens import rng
from pens.engine.training import Evaluation
from pens.learning.context import Context
from pens.learning.curves import Curves, UpdateRecord
from pens.learning.executor import Answer, Call, Evaluate, MomentRows, NewModels, Train, Work, evaluate, train
from pens.learning.gate import Gate
from pens.learning.inputs import Inputs
from pens.learning.jobs import Updating
from pens.learning.learner import APART, LATELY_ALONE, NO_SAMPLES, Form, Kept, Learner
from pens.protocol.messages import PeerId, Phase


class Updater:
    """Works off the updates that are recorded."""

    def __init__(self, context: Context, inputs: Inputs, gate: Gate) -> None:
        self._context, self._rules = context, context.rules
        self._names, self._stack, self._by_peer = context.names, context.names.stack, context.by_peer
        self.inputs, self._gate = inputs, gate
        self.history = Curves()
        self.setbacks: Counter[PeerId] = Counter()
        """Updates undone because the loss was not finite."""
        self.num_updates = self.num_batches = 0

    def work_off(self) -> Work:
        """Compute one batch of what is ready."""
        jobs = self._context.jobs.take_updates(self._rules.max_batch)
        for job in jobs:
            learner = self._by_peer[job.peer]
            if job.action.may_stop and not learner.may_stop:
                learner.begin_stopping(self._rules.new_stopping)
        if not self._gate.is_open:
            yield from self._gate.check(jobs)
        for trained in sorted({_trained(job) for job in jobs}):
            yield from self._update([job for job in jobs if _trained(job) == trained], *trained)

    def _update(self, jobs: list[Updating], epochs: int, phases: tuple[Phase, ...]) -> Work:
        """Updates that train the same for so many epochs, as one batch."""
        slots = self._context.slots([job.peer for job in jobs])
        trained = yield from train(self._training(jobs, slots, epochs, phases))
        self.num_updates += len(jobs)
        self.num_batches += 1
        rows = zip(jobs, trained.rows, trained.merged or trained.rows, strict=True)
        merged = [merged if job.models else new for job, new, merged in rows]
        of_form = {"trained": trained.rows, "merged": merged}
        candidates = [list(of_form[form]) for form in self._rules.forms]
        validations = yield from self._validate_all(jobs, candidates)
        if not self._gate.is_open:
            self._gate.note_changes(jobs, trained.merged, trained.rows)
        finite = np.isfinite(trained.loss).tolist()
        if not all(finite):
            bad = [i for i, is_finite in enumerate(finite) if not is_finite]
            yield from self._undo(jobs, bad, trained.rows, candidates, validations)
        if not self._gate.is_open:
            self._gate.remember(jobs, trained.rows)
        self._take_over(jobs, trained, finite, candidates, validations)

    def _training(self, jobs: list[Updating], slots: list[int], epochs: int, phases: tuple[Phase, ...]) -> Train:
        rules = self._rules
        groups, merging = self.inputs.merges(jobs)
        keys = [rng.key(rules.seed, "update", job.peer, job.out.version) for job in jobs]
        keep_merged = rules.stopping.validated != "trained" or not self._gate.is_open
        moments = [self._moments(job.peer) for job in jobs] if rules.optimizer_remembers else None
        layout = self._context.executor.engine.network.stored
        parts = tuple((phase.epochs, layout.part(phase.only, phase.without)) for phase in phases)
        return Train(groups, slots, keys, epochs, rules.recipe, keep_merged, moments, merging, parts)

    def _moments(self, peer: PeerId) -> MomentRows:
        moments = self._by_peer[peer].moments
        assert moments
        return moments

    def _validate_all(
        self, jobs: Sequence[Updating], candidates: Sequence[Sequence[int]]
    ) -> Generator[Call, Answer, list[Evaluation]]:
        """The same for each list of models, as one call."""
        together = yield from self._validate([*jobs] * len(candidates), [row for rows in candidates for row in rows])
        parts = zip(*(np.split(values, len(candidates)) for values in (together.loss, together.score)), strict=True)
        return [Evaluation(loss, score) for loss, score in parts]

    def _validate(self, jobs: Sequence[Updating], rows: Sequence[int]) -> Generator[Call, Answer, Evaluation]:
        """Losses and scores of these models on their peers' validation samples; no numbers where there are none."""
        slots = self._context.slots([job.peer for job in jobs])
        held = [i for i, slot in enumerate(slots) if slot != NO_SAMPLES]
        if len(held) == len(jobs):
            return (yield from evaluate(Evaluate("val", list(rows), slots)))
        loss, score = np.full(len(jobs), np.nan), np.full(len(jobs), np.nan)
        if held:
            measured = yield from evaluate(Evaluate("val", [rows[i] for i in held], [slots[i] for i in held]))
            loss[held], score[held] = measured.loss, measured.score
        return Evaluation(loss, score)

    def _undo(
        self,
        jobs: list[Updating],
        bad: list[int],
        rows: list[int],
        candidates: Sequence[list[int]],
        validations: Sequence[Evaluation],
    ) -> Work:
        """Where the training loss is not finite, the model from before stays, and is validated once more."""
        for i in bad:
            self._stack.release(rows[i])
            rows[i] = self._stack.retain(self.inputs.own_row(jobs[i]))
            for validated in candidates:
                validated[i] = rows[i]
            self.setbacks[jobs[i].peer] += 1
        again = yield from self._validate([jobs[i] for i in bad], [rows[i] for i in bad])
        for validation in validations:
            validation.loss[bad], validation.score[bad] = again.loss, again.score

    def _take_over(
        self,
        jobs: list[Updating],
        trained: NewModels,
        finite: list[bool],
        candidates: Sequence[Sequence[int]],
        validations: Sequence[Evaluation],
    ) -> None:
        """Record the results of a batch, and give each peer its new model."""
        losses, records = trained.loss.tolist(), []
        forms = [self._validated(*of) for of in zip(candidates, validations, strict=True)]
        for i, job in enumerate(jobs):
            learner, validated = self._by_peer[job.peer], [form[i] for form in forms]
            received = job.received
            if finite[i]:
                learner.merges.update(received)
            if trained.moments:
                self._remember(learner, trained.moments[i], finite[i])
            self._keep_aside(learner, job, min(validated, key=lambda model: model.loss))
            self._finish(learner, job, trained.rows[i])
            if learner.has_samples:
                shown = self._observe(learner, job, validated)
                records.append(_record(job, len(received), losses[i], shown.loss, shown.score))
        if records:
            self.history.add(records)
        for row in (*trained.rows, *trained.merged):
            self._stack.release(row)

    def _validated(self, rows: Sequence[int], found: Evaluation) -> list[Validated]:
        goodness = self._rules.goodness(found.score)
        return list(map(Validated, rows, *(numbers.tolist() for numbers in (found.loss, found.score, goodness))))

    def _remember(self, learner: Learner, moments: MomentRows, is_finite: bool) -> None:
        """What a peer's optimizer remembers after an update, unless that was undone."""
        before = self._moments(learner.latest.owner)
        learner.moments, gone = (moments, before) if is_finite else (before, moments)
        for row in gone.rows:
            self._stack.release(row)

    def _keep_aside(self, learner: Learner, job: Updating, validated: Validated) -> None:
        """What the update says is kept: nothing, the model before it, or the best since."""
        before, keep = learner.kept, job.action.keep
        if not before and keep == "last":
            return
        own = self._names.rows[job.own]
        kept = before or Kept(own, own)
        if keep == "best" and validated.loss < kept.val_loss:
            kept = kept._replace(row=validated.row, val_loss=validated.loss)
        learner.kept = None if keep == "last" else kept
        for row in kept.rows if learner.kept else ():
            self._stack.retain(row)
        for row in before.rows if before else ():
            self._stack.release(row)

    def _finish(self, learner: Learner, job: Updating, row: int) -> None:
        """Give the job's model its values."""
        self._context.jobs.updated(job)
        learner.latest = job.out
        self._names.give_values(job.out, row)
        self._context.jobs.know(job.out)
        self._names.release_all((job.own, *job.models))

    # --- what a validation changes ------------------------------------------------------------------------------------

    def _observe(self, learner: Learner, job: Updating, validated: Sequence[Validated]) -> Validated:
        """Early stopping, and the best model. Returns the model of the form that the peer prefers so far."""
        models = dict(zip(self._rules.forms, validated, strict=True))
        if job.action.apart:
            models = {APART: validated[0]}
            learner.forms.setdefault(APART, Form(self._rules.new_stopping(), lately=LATELY_ALONE))
        for name, model in models.items():
            form = learner.forms[name]
            if form.observe(model.loss, model.goodness):
                self._keep_as_best(form, model.row)
        if learner.has_stopped:
            self._stop(learner, job)
        return models[APART] if job.action.apart else models[learner.preferred(of_gossip=True)]

    def _keep_as_best(self, form: Form, row: int) -> None:
        older, form.best = form.best, self._stack.retain(row)
        if older is not None:
            self._stack.release(older)

    def _stop(self, learner: Learner, job: Updating) -> None:
        """The update that stops a peer ends with its best model: from now on the peer serves that one. The
        trained model was not read under this name."""
        learner.stop_time = job.time
        self._let_go_of_work(learner)
        self._names.give_values(job.out, _best(learner))
        self.answer_with_best(job.peer)

    def _let_go_of_work(self, learner: Learner) -> None:
        """Release the optimizer's moments and the model that is kept aside: a stopped peer needs neither."""
        for row in learner.moments.rows if learner.moments else ():
            self._stack.release(row)
        for row in learner.kept.rows if learner.kept else ():
            self._stack.release(row)
        learner.moments = learner.kept = None

    def answer_with_best(self, peer: PeerId) -> None:
        """Complete all recorded updates of a peer that has stopped, without work: none waits for received models."""
        learner = self._by_peer[peer]
        while job := self._context.jobs.next_update(peer):
            self._finish(learner, job, _best(learner))

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What was counted, as plain data. The history is a tensor, written beside it."""
        setbacks = [[peer, count] for peer, count in self.setbacks.items()]
        return {"setbacks": setbacks, "num_updates": self.num_updates, "num_batches": self.num_batches}

    def restore(self, state: Mapping[str, Any], history: Curves) -> None:
        """Become what `state` described."""
        self.setbacks = Counter({PeerId(peer): count for peer, count in state["setbacks"]})
        self.num_updates, self.num_batches = state["num_updates"], state["num_batches"]
        self.history = history


class Validated(NamedTuple):
    """A model that a peer validated."""

    row: int
    loss: float
    score: float
    goodness: float
    """The score such that higher is better."""


def _trained(job: Updating) -> tuple[int, tuple[Phase, ...]]:
    """What an update trains, and how long: the same for those that are computed together."""
    return job.action.epochs, job.action.phases


def _best(learner: Learner) -> int:
    assert learner.best is not None, "a peer that stopped has been validated"
    return learner.best


def _record(job: Updating, merged: int, train_loss: float, val_loss: float, val_accuracy: float) -> UpdateRecord:
    numbers = (train_loss, val_loss, val_accuracy)
    searching, epochs = not job.action.may_stop, job.action.epochs
    return UpdateRecord(job.time, job.peer, job.out.version, searching, merged, *numbers, epochs)

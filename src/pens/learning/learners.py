# SPDX-License-Identifier: Apache-2.0
"""The numbers of a group of peers: their data, models, scores and validation history.

Theory of operation. A driver does not compute an update when it begins. It records it (which models go in, which comes
out, when) and goes on; who sends what to whom does not depend on any model's values until a peer selects its
neighbours. `compute_batch` then works off one batch of what is recorded (`pens.learning.jobs`): everything whose
inputs are known. A model's name (`ModelRef`) exists from the moment its update is recorded, its values from the moment
that it is computed.

Each update reads the peer's own samples and the models named in it, and nothing else, so any order of computation that
respects the names gives the same result. What depends on a peer's own past (early stopping, its best model) depends on
its own updates only, and those form a chain.

A peer that stopped early answers later updates with its best model and no work: it keeps serving that model.

A simulation's models all come out of updates. A node's peer is sent those of others: `take_in` gives them values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from pens import rng
from pens.engine.batches import Subset
from pens.engine.optimizers import Recipe
from pens.engine.training import Evaluation
from pens.errors import SettingsError
from pens.learning.curves import Curves, UpdateRecord
from pens.learning.executor import Evaluate, Executor, MomentRows, Train, Work, evaluate, train
from pens.learning.jobs import JobGraph, Question, Scoring, Updating
from pens.learning.ledger import Ledger
from pens.learning.received import ReceivedModels
from pens.merging.merger import RowMerge
from pens.merging.rule import Merge, Merging, check_said, chosen
from pens.protocol.messages import Ask, Compare, Counts, ModelRef, PeerId, Update
from pens.protocol.policies import EarlyStopping, Tally, select_top_m
from pens.settings.schema import Step2Model, StoppingSettings, WireForm
from pens.settings.tree import Settings

T = TypeVar("T")

_COMPARISONS_AT_ONCE = 20_000  # so that lists of what is compared stay small at any number of peers


@dataclass(frozen=True)
class LearningRules:
    """What all peers of a run have in common."""

    recipe: Recipe
    stopping: StoppingSettings
    own_in_merge: bool
    seed: int
    score_on: Literal["train", "val"] = "train"
    score_by: Literal["loss", "accuracy"] = "loss"
    """How the models of step 1 are compared. Strangers are always judged by their loss."""
    score_samples: int | None = None
    """Models are compared on so many of the receiver's training samples; None: all."""
    max_batch: int = 0
    """At most so many updates, or comparisons, at once; 0: all that are ready."""
    optimizer_remembers: bool = False
    """Whether a peer's optimizer goes on from update to update where it was; else it begins anew with each."""
    step2_model: Step2Model = "last"
    """What each peer begins step 2 with; where that is not its last, it is kept until then."""
    wire: WireForm = "fp32"
    """How models travel: received ones are rounded so, a peer's own is not."""
    merging: Merging = field(default_factory=lambda: chosen(Settings()))
    """How a peer's own model and those that it received become one."""


class Answer(NamedTuple):
    """What a peer is to be told."""

    name: str
    """Of its question."""
    number: int
    """Of the scoring that computes it; 0: it asked for its counts."""
    losses: tuple[float, ...] = ()


@dataclass(frozen=True)
class ForStep2:
    """A model that a peer may begin step 2 with."""

    row: int
    val_loss: float = math.inf
    """Of the untrained model it is not asked for: any other is better."""


class Learners:
    """Executes scorings and updates for all peers of a simulation, or for the one peer of a node."""

    def __init__(
        self,
        executor: Executor,
        first_slot: int,
        first_models: Tensor,
        rules: LearningRules,
        peers: Sequence[PeerId] | None = None,
    ) -> None:
        """`first_models` [peer, size]: each peer's untrained model. The samples of the first lie in slot first_slot.

        `peers`: their numbers, where they are those of a network; None: 0, 1, 2, …
        """
        self.executor, self.rules = executor, rules
        self.models = executor.models
        self._received = ReceivedModels(self.models, executor.engine.network.stored, rules.wire)
        self._peers = tuple(PeerId(p) for p in range(len(first_models))) if peers is None else tuple(peers)
        self._slot = {peer: first_slot + place for place, peer in enumerate(self._peers)}
        self._rows: dict[ModelRef, int] = {}
        self._uses: Counter[ModelRef] = Counter()
        self._versions = dict.fromkeys(self._peers, 0)
        self._latest = {p: ModelRef(p, 0) for p in self._peers}
        self._best: dict[PeerId, int | None] = dict.fromkeys(self._peers)
        """The row of each peer's best model on its validation data."""
        self._stopping = {p: self._fresh_stopping() for p in self._peers}
        self._may_stop = dict.fromkeys(self._peers, False)
        self.stop_times = dict.fromkeys(self._peers, math.inf)
        """When each peer stopped early, in virtual time."""
        self.tallies = {p: Tally() for p in self._peers}
        self._answers: dict[PeerId, list[Answer]] = {p: [] for p in self._peers}
        """Of questions that each peer asked and that are not answered yet, in order."""
        self._asked_at: dict[PeerId, list[tuple[float, int]]] = {p: [] for p in self._peers}
        """When each peer asked for the losses of how many models."""
        self.merges: dict[PeerId, Counter[PeerId]] = {p: Counter() for p in self._peers}
        """How often each peer merged a model of each other."""
        self.scored = dict.fromkeys(self._peers, 0)
        self._scorings = dict.fromkeys(self._peers, 0)
        self.comparisons = Ledger("peer", "round", "sender", "chosen", wide=peers is not None)
        """Every comparison of step 1: in which round, whose model, and whether it was among the top m."""
        self.history = Curves()
        self.setbacks: Counter[PeerId] = Counter()
        """Updates undone because the loss was not finite."""
        self.num_updates = self.num_batches = 0
        self.jobs = JobGraph()
        self._moments = self._no_moments() if rules.optimizer_remembers else {}
        """What each peer's optimizer remembers, where it does."""
        rows = self.models.add(first_models.to(self.models.device))
        self._for_step2: dict[PeerId, ForStep2] = {}
        """The model that each peer is to begin step 2 with, as far as is known; none once it has begun."""
        for (peer, ref), row in zip(self._latest.items(), rows, strict=True):
            self._rows[ref], self._uses[ref] = row, 1
            if rules.step2_model != "last":
                self._for_step2[peer] = ForStep2(self.models.retain(row))

    # --- names --------------------------------------------------------------------------------------------------------

    def first_model(self, peer: PeerId) -> ModelRef:
        """The name of a peer's untrained model, retained once for the caller."""
        return ModelRef(peer, 0)

    def retain(self, ref: ModelRef) -> ModelRef:
        """Keep a model alive until it is released once more."""
        self._uses[ref] += 1
        return ref

    def release(self, ref: ModelRef) -> None:
        self._uses[ref] -= 1
        if self._uses[ref] == 0:
            del self._uses[ref]
            self._received.forget(ref)
            if ref in self._rows:
                self.models.release(self._rows.pop(ref))

    def take_in(self, ref: ModelRef, model: Tensor) -> None:
        """A model that was sent from elsewhere, retained once for the peer that received it.  [size]"""
        self.retain(ref)
        if ref not in self._rows:
            (self._rows[ref],) = self.models.add(model[None].to(self.models.device))

    def holds(self, ref: ModelRef) -> bool:
        """Whether a model has a name here: somebody retains it."""
        return ref in self._uses

    def row(self, ref: ModelRef) -> int:
        """Where a model's values are."""
        return self._rows[ref]

    # --- recording ----------------------------------------------------------------------------------------------------

    def record_comparison(self, peer: PeerId, action: Compare) -> None:
        """The models were retained for the peer; they are released when the job is done."""
        self._record_scoring(peer, action.models, action.m)

    def record_question(self, peer: PeerId, own: ModelRef, ask: Ask, time: float) -> None:
        """Models that it is about are retained here until it is computed. `time`: when it is to be answered."""
        if isinstance(ask.query, Counts):
            self._answers[peer].append(Answer(ask.name, 0))
            return
        query = ask.query
        refs = (*query.models, *query.beside, *((own,) if query.own else ()))
        models = tuple(self.retain(ref) for ref in refs)
        self._record_scoring(peer, models, question=Question(ask.name, query.on, time, len(query.models)))
        self._answers[peer].append(Answer(ask.name, self._scorings[peer]))

    def is_answered(self, peer: PeerId) -> bool:
        """Whether all that a peer asked for is computed."""
        return self.jobs.is_scored(peer)

    def answer(self, peer: PeerId, name: str) -> Any:
        """The answer to the first question of this name that a peer has not been told yet."""
        answer = next(answer for answer in self._answers[peer] if answer.name == name)
        self._answers[peer].remove(answer)
        return answer.losses if answer.number else self.tallies[peer]

    def num_asked(self, peer: PeerId, until: float) -> int:
        """Models whose losses a peer had asked for by this time."""
        return sum(count for time, count in self._asked_at[peer] if time <= until)

    def record_update(self, peer: PeerId, own: ModelRef, action: Update, time: float) -> ModelRef:
        """Likewise. Returns the name of the model that will come out, retained once for the caller."""
        self._check_weights(peer, action)
        self._versions[peer] += 1
        out = self.retain(ModelRef(peer, self._versions[peer]))
        own = self.retain(own)
        how = (action.anew, action.weights, action.segment_weights)
        job = Updating(peer, time, action.models, action.epochs, action.may_stop, own, out, *how)
        self.jobs.add_update(job, self._rows, compares=action.top_m is not None)
        if action.top_m is not None:
            self._record_scoring(peer, action.models, action.top_m, job)
        if self.has_stopped(peer):
            self._answer_with_best(peer)
        return out

    def _check_weights(self, peer: PeerId, action: Update) -> None:
        """Where the method says how much each model counts."""
        if action.weights is None and not action.segment_weights:
            return
        who = f"the update of peer {peer}"
        if action.top_m is not None:
            raise SettingsError(f"{who} says weights and top_m = {action.top_m}: whoever says weights has chosen")
        check_said(self.rules.merging, who, len(action.models), action.weights, action.segment_weights)

    def _record_scoring(
        self,
        peer: PeerId,
        models: tuple[ModelRef, ...],
        m: int = 0,
        update: Updating | None = None,
        question: Question | None = None,
    ) -> None:
        self._scorings[peer] += 1
        before = self._versions[peer] - (update is not None)
        self.jobs.add_scoring(Scoring(peer, self._scorings[peer], before, models, m, update, question), self._rows)

    # --- computing ----------------------------------------------------------------------------------------------------

    def compute_batch(self) -> Work:
        """Work off what is ready: all comparisons, then all updates, those that became ready by them included."""
        yield from self.compare()
        updates = self.jobs.take_updates(self.rules.max_batch)
        for job in updates:
            if job.may_stop and not self._may_stop[job.peer]:
                self._begin_stopping(job.peer)
        for epochs in sorted({job.epochs for job in updates}):
            yield from self._update([job for job in updates if job.epochs == epochs], epochs)

    def compare(self) -> Work:
        """Work off the comparisons that are ready."""
        while scorings := self.jobs.take_scorings(self.rules.max_batch or _COMPARISONS_AT_ONCE):
            yield from self._score(scorings)

    def _score(self, jobs: list[Scoring]) -> Work:
        """Score the models of each job on its peer's own data: to choose the top m, or to answer a question."""
        for on in ("val", "train"):
            if questions := [job for job in jobs if job.question and job.question.on == on]:
                yield from self._score_on(on, questions)
        if comparisons := [job for job in jobs if not job.question]:
            yield from self._score_on(self.rules.score_on, comparisons)

    def _score_on(self, on: Literal["train", "val"], jobs: list[Scoring]) -> Work:
        drawn = [(job, self._draw(job)) for job in jobs]
        pairs = list(dict.fromkeys((ref, job.peer, draw) for job, draw in drawn for ref in job.models))
        rows = self._received.rows([ref for ref, _, _ in pairs], self._rows)
        slots = self._slots([peer for _, peer, _ in pairs])
        size = self.rules.score_samples
        subset = None if size is None else Subset(size, [draw for _, _, draw in pairs])
        found = yield from evaluate(Evaluate(on, rows, slots, subset))
        scores = -found.accuracy if self.rules.score_by == "accuracy" and not jobs[0].question else found.loss
        losses = dict(zip(pairs, scores.tolist(), strict=True))
        for job, draw in drawn:
            found_here = [losses[ref, job.peer, draw] for ref in job.models]
            chosen: tuple[ModelRef, ...] = ()
            if job.question:
                self._note(job, job.question, found_here)
            else:
                chosen = self._top_m(job, found_here)
            self.jobs.scored(job, chosen)
            for ref in job.models:
                if not job.update or ref not in chosen:
                    self.release(ref)

    def _draw(self, job: Scoring) -> int:
        """The key by which the samples of a comparison are drawn; always the same where all are taken."""
        if self.rules.score_samples is None:
            return 0
        return rng.key(self.rules.seed, "score", job.peer, job.number)

    def _top_m(self, job: Scoring, losses: list[float]) -> tuple[ModelRef, ...]:
        senders = [ref.owner for ref in job.models]
        best = select_top_m(senders, losses, job.top_m)
        self.tallies[job.peer].add(senders, [senders[i] for i in best])
        self.scored[job.peer] += len(senders)
        for i, sender in enumerate(senders):
            self.comparisons.add(job.peer, job.round, sender, i in best)
        return tuple(job.models[i] for i in best)

    def _note(self, job: Scoring, question: Question, losses: list[float]) -> None:
        """Keep the answer to a question until the peer is told."""
        answers = self._answers[job.peer]
        place = next(i for i, answer in enumerate(answers) if answer.number == job.number)
        answers[place] = Answer(question.name, job.number, tuple(losses))
        self._asked_at[job.peer].append((question.time, question.num_asked))

    def _update(self, jobs: list[Updating], epochs: int) -> Work:
        """Merge, train, validate, keep the best, as one batch."""
        slots = self._slots([job.peer for job in jobs])
        groups, merging = self._merges(jobs)
        keys = [rng.key(self.rules.seed, "update", job.peer, job.out.version) for job in jobs]
        keep_merged = self.rules.stopping.validated == "merged"
        moments = [self._moments[job.peer] for job in jobs] if self.rules.optimizer_remembers else None
        trained = yield from train(Train(groups, slots, keys, epochs, self.rules.recipe, keep_merged, moments, merging))
        self.num_updates += len(jobs)
        self.num_batches += 1
        rows = zip(jobs, trained.rows, trained.merged or trained.rows, strict=True)
        validated = [merged if job.models else new for job, new, merged in rows]
        validation = yield from evaluate(Evaluate("val", validated, slots))
        finite = np.isfinite(trained.loss).tolist()
        if not all(finite):
            yield from self._undo(
                jobs, [i for i, fine in enumerate(finite) if not fine], trained.rows, validated, validation
            )
        numbers = zip(trained.loss.tolist(), validation.loss.tolist(), validation.accuracy.tolist(), strict=True)
        self.history.add([_record(job, *them) for job, them in zip(jobs, numbers, strict=True)])
        for i, job in enumerate(jobs):
            if finite[i]:
                self.merges[job.peer].update(ref.owner for ref in job.models)
            if trained.moments:
                self._remember(job.peer, trained.moments[i], finite[i])
            self._finish(job, trained.rows[i])
            self._observe(job, validated[i], float(validation.loss[i]), float(validation.accuracy[i]))
        for row in (*trained.rows, *trained.merged):
            self.models.release(row)

    def _undo(
        self, jobs: list[Updating], bad: list[int], rows: list[int], validated: list[int], validation: Evaluation
    ) -> Work:
        """Where the loss is no finite number, the model from before stays, and is validated once more."""
        for i in bad:
            self.models.release(rows[i])
            rows[i] = validated[i] = self.models.retain(self._own_row(jobs[i]))
            self.setbacks[jobs[i].peer] += 1
        again = yield from evaluate(Evaluate("val", [rows[i] for i in bad], self._slots([jobs[i].peer for i in bad])))
        validation.loss[bad], validation.accuracy[bad] = again.loss, again.accuracy

    def _no_moments(self) -> dict[PeerId, MomentRows]:
        """Of optimizers that have not begun: rows of zeros, the same for all."""
        nothing = torch.zeros((self.rules.recipe.num_moments, self.models.size), device=self.models.device)
        rows = self.models.add(nothing)
        found = {peer: MomentRows([self.models.retain(row) for row in rows]) for peer in self._peers}
        for row in rows:
            self.models.release(row)
        return found

    def _remember(self, peer: PeerId, moments: MomentRows, is_finite: bool) -> None:
        """What a peer's optimizer remembers after an update, unless that was undone."""
        kept, gone = (moments, self._moments[peer]) if is_finite else (self._moments[peer], moments)
        self._moments[peer] = kept
        for row in gone.rows:
            self.models.release(row)

    def _slots(self, peers: Sequence[PeerId]) -> list[int]:
        return [self._slot[peer] for peer in peers]

    def _merge_group(self, job: Updating) -> list[int]:
        """Algorithm 1, MERGE_SAVED_MODELS: the received models and, unless configured otherwise, the peer's own."""
        received = self._received.rows(job.models, self._rows)
        return [self._own_row(job), *received] if self._merges_own(job) else received

    def _merges_own(self, job: Updating) -> bool:
        """Whether the own model is one of those that are merged."""
        return self.rules.own_in_merge or not job.models or job.weights is not None or bool(job.segment_weights)

    def _merges(self, jobs: Sequence[Updating]) -> tuple[list[list[int]] | list[RowMerge], Merging | None]:
        """What to merge, and by which rule; None: plain averages, which need no more than the rows."""
        merging, groups = self.rules.merging, [self._merge_group(job) for job in jobs]
        if merging.is_plain and all(job.weights is None and not job.segment_weights for job in jobs):
            return groups, None
        told = zip(jobs, groups, strict=True)
        return [RowMerge(rows, self._own_row(job), self._told(job), job.segment_weights) for job, rows in told], merging

    def _told(self, job: Updating) -> Merge:
        """What a merge rule is told of an update."""
        own, received = self._merges_own(job), tuple(ref.owner for ref in job.models)
        senders = (job.peer, *received) if own else received
        return Merge(job.peer, senders, own, self._samples(senders), job.weights)

    def _samples(self, peers: Sequence[PeerId]) -> tuple[int, ...] | None:
        """Numbers of training samples; None where one of the peers lives elsewhere."""
        if any(peer not in self._slot for peer in peers):
            return None
        return tuple(self.executor.num_training_samples(slot) for slot in self._slots(peers))

    def _own_row(self, job: Updating) -> int:
        """The peer's own model before, or the one that it begins step 2 with in its place."""
        return self._for_step2[job.peer].row if job.anew else self._rows[job.own]

    def _finish(self, job: Updating, row: int) -> None:
        """Give the job's model its values."""
        self.jobs.updated(job)
        self._latest[job.peer] = job.out
        self._rows[job.out] = self.models.retain(row)
        self.jobs.know(job.out)
        for ref in (job.own, *job.models):
            self.release(ref)
        if job.anew:
            self.models.release(self._for_step2.pop(job.peer).row)

    def _observe(self, job: Updating, row: int, val_loss: float, val_accuracy: float) -> None:
        """Early stopping, and the best model. `row`: what was validated."""
        if self.rules.step2_model == "best" and not job.may_stop and val_loss < self._for_step2[job.peer].val_loss:
            self._keep_for_step2(job.peer, row, val_loss)
        if self._stopping[job.peer].observe(val_loss, val_accuracy):
            self._keep_as_best(job.peer, row)
        if self.has_stopped(job.peer):
            self.stop_times[job.peer] = job.time
            for row in self._moments.pop(job.peer, MomentRows([])).rows:
                self.models.release(row)
            self._serve_best(job.peer, job.out)
            self._answer_with_best(job.peer)

    def _keep_as_best(self, peer: PeerId, row: int) -> None:
        older, self._best[peer] = self._best[peer], self.models.retain(row)
        if older is not None:
            self.models.release(older)

    def _keep_for_step2(self, peer: PeerId, row: int, val_loss: float) -> None:
        older, self._for_step2[peer] = self._for_step2[peer], ForStep2(self.models.retain(row), val_loss)
        self.models.release(older.row)

    def _serve_best(self, peer: PeerId, ref: ModelRef) -> None:
        """The update that stops a peer ends with its best model: from now on it serves that one. Nobody has read the
        other, which has had its name for a moment."""
        best = self._best[peer]
        assert best is not None
        self.models.release(self._rows[ref])
        self._rows[ref] = self.models.retain(best)

    def _answer_with_best(self, peer: PeerId) -> None:
        """All that is recorded for a peer that has stopped: no work, and no need to wait for the received models."""
        best = self._best[peer]
        assert best is not None
        while job := self.jobs.next_update(peer):
            self._finish(job, best)

    # --- early stopping -----------------------------------------------------------------------------------------------

    def has_stopped(self, peer: PeerId) -> bool:
        """Whether a peer's updates are no work any more."""
        return self._may_stop[peer] and self._stopping[peer].stopped

    def _begin_stopping(self, peer: PeerId) -> None:
        """From here on early stopping applies, and the past does not count."""
        self._may_stop[peer] = True
        self._stopping[peer] = self._fresh_stopping()

    def _fresh_stopping(self) -> EarlyStopping:
        rules = self.rules.stopping
        return EarlyStopping(rules.stop_on, rules.window, rules.patience)

    # --- results ------------------------------------------------------------------------------------------------------

    def num_computed(self, peer: PeerId) -> int:
        """Updates of a peer that are computed, its first training included."""
        return self._latest[peer].version

    def tested_rows(self) -> list[int]:
        """The row of each peer's model that is to be tested: the best on validation data, or the last."""
        last = self.rules.stopping.tested == "last"
        return [self._rows[self._latest[p]] if last or best is None else best for p, best in self._best.items()]

    def let_go(self) -> None:
        """Free the place of all models: other runs may go on."""
        self._received.let_go()
        for row in (*self._rows.values(), *self._nameless_rows()):
            self.models.release(row)
        self._rows, self._best, self._moments, self._for_step2 = {}, dict.fromkeys(self._peers), {}, {}

    def _nameless_rows(self) -> list[int]:
        """Best models, those to begin step 2 with, and what optimizers remember."""
        best = [row for row in self._best.values() if row is not None]
        best += [kept.row for kept in self._for_step2.values()]
        return best + [row for moments in self._moments.values() for row in moments.rows]

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything that changes, as plain data and tensors. Only between batches."""
        named = [row for _, row in sorted(self._rows.items())]
        rows = list(dict.fromkeys([*named, *self._nameless_rows()]))  # whichever they are on the device
        place = {row: i for i, row in enumerate(rows)}
        places = {ref: place[row] for ref, row in self._rows.items()}
        data = {
            "refs": [[*ref, uses, places.get(ref)] for ref, uses in sorted(self._uses.items())],
            "versions": list(self._versions.values()),
            "latest": [ref.version for ref in self._latest.values()],
            "best": [None if row is None else place[row] for row in self._best.values()],
            "for_step2": [[p, place[kept.row], kept.val_loss] for p, kept in self._for_step2.items()],
            "moments": [[p, [place[row] for row in one.rows], one.steps] for p, one in self._moments.items()],
            "stopping": [asdict(s) for s in self._stopping.values()],
            "may_stop": list(self._may_stop.values()),
            "stop_times": list(self.stop_times.values()),
            "tallies": [tally.state() for tally in self.tallies.values()],
            "answers": [[list(answer) for answer in answers] for answers in self._answers.values()],
            "asked_at": list(self._asked_at.values()),
            "merges": [_pairs(m) for m in self.merges.values()],
            "scored": list(self.scored.values()),
            "scorings": list(self._scorings.values()),
            "jobs": self.jobs.state(),
            "setbacks": _pairs(self.setbacks),
            "num_updates": self.num_updates,
            "num_batches": self.num_batches,
        }
        tensors = {"models": self.models.read(rows), "history": torch.tensor(self.history.table())}
        return data, {**tensors, "comparisons": self.comparisons.state()}

    def restore(self, data: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Become what `state` described."""
        kept = {p for p, _, _ in data["for_step2"]}
        waiting = {p for p, may_stop in self._each(data["may_stop"]).items() if not may_stop}
        if (kept and self.rules.step2_model == "last") or (waiting - kept and self.rules.step2_model != "last"):
            raise ValueError(f"it was written with another step2_model than {self.rules.step2_model}")
        self.let_go()
        rows = self.models.add(tensors["models"].to(self.models.device))
        self._rows, self._uses = {}, Counter()
        for owner, version, uses, place in data["refs"]:
            ref = ModelRef(PeerId(owner), version)
            self._uses[ref] = uses
            if place is not None:
                self._rows[ref] = self.models.retain(rows[place])
        best = self._each(data["best"])
        self._best = {p: None if place is None else self.models.retain(rows[place]) for p, place in best.items()}
        self._for_step2 = {
            PeerId(p): ForStep2(self.models.retain(rows[place]), val_loss) for p, place, val_loss in data["for_step2"]
        }
        self._moments = {
            PeerId(p): MomentRows([self.models.retain(rows[place]) for place in places], steps)
            for p, places, steps in data["moments"]
        }
        for row in rows:
            self.models.release(row)
        self._versions = self._each(data["versions"])
        self._latest = {p: ModelRef(p, v) for p, v in self._each(data["latest"]).items()}
        self._stopping = self._each(EarlyStopping(**s) for s in data["stopping"])
        self._may_stop, self.stop_times = self._each(data["may_stop"]), self._each(data["stop_times"])
        self.tallies = self._each(map(Tally.restored, data["tallies"]))
        answers = self._each(data["answers"])
        self._answers = {p: [Answer(n, number, tuple(losses)) for n, number, losses in a] for p, a in answers.items()}
        self._asked_at = {p: [(t, n) for t, n in asked] for p, asked in self._each(data["asked_at"]).items()}
        self.merges = self._each(map(_counter, data["merges"]))
        self.scored, self.setbacks = self._each(data["scored"]), _counter(data["setbacks"])
        self.num_updates, self.num_batches = data["num_updates"], data["num_batches"]
        self.comparisons.restore(tensors["comparisons"])
        self._scorings = self._each(data["scorings"])
        self.history = Curves(tensors["history"].numpy())
        self.jobs = JobGraph()
        self.jobs.restore(data["jobs"], self._rows)

    def _each(self, values: Iterable[T]) -> dict[PeerId, T]:
        return dict(zip(self._peers, values, strict=True))


def _record(job: Updating, train_loss: float, val_loss: float, val_accuracy: float) -> UpdateRecord:
    numbers = (train_loss, val_loss, val_accuracy)
    return UpdateRecord(job.time, job.peer, job.out.version, not job.may_stop, len(job.models), *numbers)


def _pairs(counter: Counter[PeerId]) -> list[list[int]]:
    return [[peer, count] for peer, count in counter.items()]


def _counter(pairs: list[list[int]]) -> Counter[PeerId]:
    return Counter({PeerId(peer): count for peer, count in pairs})

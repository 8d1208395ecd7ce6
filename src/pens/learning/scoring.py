# SPDX-License-Identifier: Apache-2.0
"""Scoring: run models over a peer's own samples, or measure how far they lie from its own model, to choose the top m or
to answer a question."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Literal, get_args

from pens import rng
from pens.engine.batches import Subset
from pens.engine.distances import Pair
from pens.learning.context import Context
from pens.learning.executor import Evaluate, Measure, Work, evaluate, measure
from pens.learning.gate import Gate
from pens.learning.jobs import Question, Scoring
from pens.learning.learner import Compared
from pens.learning.ledger import Ledger
from pens.merging.merger import merged_names
from pens.protocol.lowest_group import heights_of
from pens.protocol.messages import ModelRef, PeerId
from pens.protocol.policies import select_top_m
from pens.settings.schema import Distance

_AT_ONCE = 20_000  # comparisons: bounds the lists of compared models at any number of peers


class Scorer:
    """Works off the scorings that are recorded."""

    def __init__(self, context: Context, gate: Gate, wide: bool) -> None:
        """`wide`: whether the numbers of peers are those of a network."""
        self._context, self._rules, self._jobs = context, context.rules, context.jobs
        self._gate = gate
        self.comparisons = Ledger("peer", "round", "sender", "chosen", wide=wide)
        """Every comparison of step 1: in which round, whose model, and whether it was among the top m."""

    def work_off(self) -> Work:
        """Score what is ready."""
        while jobs := self._jobs.take_scorings(self._rules.max_batch or _AT_ONCE):
            yield from self._score(jobs)

    def _score(self, jobs: list[Scoring]) -> Work:
        """CALCULATELOSS: score the models of each job on its peer's own data; or measure their distances."""
        if not self._gate.is_open:
            self._gate.refuse(jobs)
        for by in get_args(Distance):
            if measured := [job for job in jobs if job.by == by]:
                yield from self._measure(by, measured)
        on_samples = [job for job in jobs if job.own is None]
        for on in ("val", "train"):
            if questions := [job for job in on_samples if job.question and job.question.on == on]:
                yield from self._score_on(on, questions)
        if comparisons := [job for job in on_samples if not job.question]:
            yield from self._score_on(self._rules.score_on, comparisons)

    def _measure(self, by: Distance, jobs: list[Scoring]) -> Work:
        """How far the models of each job lie from its peer's own, as the peer received them."""
        names, origin = self._context.names, self._context.origin
        asked = list(dict.fromkeys((job.own, ref) for job in jobs if job.own for ref in _counting(job)))
        received = names.received_rows([ref for _, ref in asked])
        start = names.row(origin) if origin else None
        pairs = [Pair(names.row(own), row, start) for (own, _), row in zip(asked, received, strict=True)]
        found = (yield from measure(Measure(by, pairs, self._compared))) if pairs else []
        lies = dict(zip(asked, found, strict=True))
        for job in jobs:
            assert job.own
            self._finish(job, [lies.get((job.own, ref), math.inf) for ref in job.models])

    @cached_property
    def _compared(self) -> tuple[slice, ...]:
        """Where the numbers lie that count for distances: parameters that are trained and merged."""
        layout = self._context.executor.engine.network.stored
        merged = merged_names(layout, self._rules.merging)
        return layout.ranges([place.name for place in layout.trained if place.name in merged])

    def _score_on(self, on: Literal["train", "val"], jobs: list[Scoring]) -> Work:
        drawn = [(job, self._draw(job)) for job in jobs]
        pairs = list(dict.fromkeys((ref, job.peer, draw) for job, draw in drawn for ref in _counting(job)))
        rows = self._context.names.received_rows([ref for ref, _, _ in pairs])
        slots, size = self._context.slots([peer for _, peer, _ in pairs]), self._rules.score_samples
        subset = None if size is None else Subset(size, [draw for _, _, draw in pairs])
        losses: dict[tuple[ModelRef, PeerId, int], float] = {}
        if pairs:
            found = yield from evaluate(Evaluate(on, rows, slots, subset))
            scores = -self._rules.goodness(found.score) if jobs[0].by == "accuracy" else found.loss
            losses = dict(zip(pairs, scores.tolist(), strict=True))
        for job, draw in drawn:
            self._finish(job, [losses.get((ref, job.peer, draw), math.inf) for ref in job.models])

    def _draw(self, job: Scoring) -> int:
        """The key by which the samples of a comparison are drawn; always the same where all are taken."""
        if self._rules.score_samples is None:
            return 0
        return rng.key(self._rules.seed, "score", job.peer, job.number)

    def _finish(self, job: Scoring, losses: list[float]) -> None:
        """Count or answer, and release the models that no update merges."""
        chosen: tuple[ModelRef, ...] = ()
        if job.question:
            self._note(job, job.question, losses)
        else:
            chosen = self._top_m(job, losses)
        self._jobs.scored(job, chosen)
        self._context.names.release_all(ref for ref in job.models if not job.update or ref not in chosen)
        if job.own:
            self._context.names.release(job.own)

    def _top_m(self, job: Scoring, losses: list[float]) -> tuple[ModelRef, ...]:
        learner, models = self._context.by_peer[job.peer], _counting(job)
        if job.refused:
            losses = [loss for ref, loss in zip(job.models, losses, strict=True) if ref not in job.refused]
        if not models:
            learner.count(job.number, None)
            return ()
        senders = [ref.owner for ref in models]
        best = select_top_m(senders, losses, job.top_m)
        heights = heights_of(losses, self._rules.score) if self._rules.counts_heights else ()
        learner.count(job.number, Compared(tuple(senders), tuple(senders[i] for i in best), tuple(heights)))
        learner.scored += len(senders)
        for i, sender in enumerate(senders):
            self.comparisons.add(job.peer, job.round, sender, i in best)
        return tuple(models[i] for i in best)

    def _note(self, job: Scoring, question: Question, losses: list[float]) -> None:
        learner = self._context.by_peer[job.peer]
        learner.note(job.number, losses)
        learner.count(job.number, None)
        if question.num_asked:
            learner.asked.append((question.time, question.num_asked))


def _counting(job: Scoring) -> tuple[ModelRef, ...]:
    """The models of a scoring without those that count for nothing."""
    return tuple(ref for ref in job.models if ref not in job.refused) if job.refused else job.models

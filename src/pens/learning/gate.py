# SPDX-License-Identifier: Apache-2.0
"""The gate: what of the received models is compared and merged, where these are not trusted (docs/decisions/0081).

Theory of operation. Before models are compared or merged, those that count for nothing are left out: copies, and models
of absurd length. That costs no forward pass. A merge of the others is then tried out on the peer's own validation
samples, beside the peer's own model. Only where it loses clearly more (by a margin of standard errors of the mean
difference, sample by sample), the received models are run over these samples, too: those that lose clearly more than
the own model are left out, and the rest is merged. Where only a part of a model is merged, each received model is
merged with the own one for that: its other part belongs to another peer's samples, and is not even sent. Where the
merge of the rest is still clearly worse, the peer keeps its own model; unless its merges never worked yet: models from
different beginnings average badly at first, and become alike only by being merged and trained.

Where models are trusted, nothing here is called.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from pens import rng
from pens.engine.rounding import round_rows
from pens.engine.sketches import Sketcher
from pens.learning.context import Context
from pens.learning.executor import Answer, Call, Evaluate, Train, Work, evaluate, train
from pens.learning.inputs import Inputs
from pens.learning.jobs import Scoring, Updating
from pens.learning.learner import NO_SAMPLES, Learner
from pens.learning.trust import inspected
from pens.merging.merger import merged_names
from pens.protocol.conduct import is_clearly_worse
from pens.protocol.messages import ModelRef, PeerId

Losses = Generator[Call, Answer, list[list[float]]]
_MERGES_AT_ONCE = 256  # each of them needs a row


class Gate:
    """Leaves out models that are not to be compared or merged."""

    def __init__(self, context: Context, inputs: Inputs) -> None:
        self._context, self._inputs, self._names = context, inputs, context.names

    @property
    def is_open(self) -> bool:
        """Whether models are trusted."""
        return self._context.rules.trust is None

    # --- what counts for nothing --------------------------------------------------------------------------------------

    def refuse(self, jobs: Iterable[Scoring]) -> None:
        """Note which models of some scorings count for nothing."""
        for job in jobs:
            job.refused = self._inspect(job.peer, job.models)

    def _inspect(self, peer: PeerId, models: Sequence[ModelRef]) -> frozenset[ModelRef]:
        mistrust = self._learner(peer).mistrust
        refs = [ref for ref in models if ref.owner != peer]
        rows = self._context.names.stack.read(self._names.received_rows(refs))
        sketches = dict(zip(refs, self._sketcher.sketches(rows), strict=True))
        lengths = dict(zip(refs, self._sketcher.lengths(rows).tolist(), strict=True))
        found = inspected(mistrust, refs, sketches, lengths)
        for ref in refs:
            if ref in found:
                mistrust.note(ref.owner, found[ref])
        return frozenset(found)

    @cached_property
    def _sketcher(self) -> Sketcher:
        """Of parameters that are trained and merged: a peer can send what it likes in all others."""
        layout, rules = self._context.executor.engine.network.stored, self._context.rules
        merged = merged_names(layout, rules.merging)
        ranges = layout.ranges([place.name for place in layout.trained if place.name in merged])
        key = rng.key(rules.seed, "sketches")
        return Sketcher(self._names.stack.size, ranges, key, self._names.stack.device)

    # --- what makes a merge worse -------------------------------------------------------------------------------------

    def check(self, jobs: Iterable[Updating]) -> Work:
        """Leave out of some updates what is not to be merged."""
        asked = [job for job in jobs if job.received]
        for job in asked:
            self._leave_out(job, self._inspect(job.peer, job.models))
        merging = [job for job in asked if job.received and self._can_judge(job.peer)]
        own = yield from self._losses(merging, [self._inputs.own_row(job) for job in merging])
        worse = yield from self._worse(merging, own)
        hurt = [(job, of) for job, of, is_worse in zip(merging, own, worse, strict=True) if is_worse]
        guilty = yield from self._leave_out_culprits(hurt)
        rest = [(job, of) for job, of in hurt if job.received]
        smaller = [(job, of) for job, of in rest if id(job) in guilty]  # merges of which some models are left out now
        still = yield from self._worse([job for job, _ in smaller], [of for _, of in smaller])
        mended = {id(job) for (job, _), is_worse in zip(smaller, still, strict=True) if not is_worse}
        worse_to_the_last = [job for job, _ in rest if id(job) not in mended]
        for job in worse_to_the_last:
            if self._learner(job.peer).mistrust.agrees:
                self._leave_out(job, frozenset(_received(job)))
        self._count(asked, {id(job) for job in worse_to_the_last})

    def _can_judge(self, peer: PeerId) -> bool:
        """Whether a peer has validation samples to judge merges by: a server has none."""
        slot = self._learner(peer).slot
        return slot != NO_SAMPLES and self._context.executor.num_validation_samples(slot) > 0

    def _worse(self, jobs: Sequence[Updating], own: Sequence[Sequence[float]]) -> Generator[Call, Answer, list[bool]]:
        """Whether the merge of each is clearly worse than the peer's own model."""
        if not jobs:
            return []
        groups, merging = self._inputs.merges(jobs)
        slots, no_keys = self._context.slots([job.peer for job in jobs]), [0] * len(jobs)
        made = yield from train(Train(groups, slots, no_keys, 0, self._context.rules.recipe, merging=merging))
        losses = yield from self._losses(jobs, made.rows)
        for row in made.rows:
            self._names.stack.release(row)
        return [self._is_worse(*of) for of in zip(losses, own, strict=True)]

    def _leave_out_culprits(
        self, hurt: Sequence[tuple[Updating, Sequence[float]]]
    ) -> Generator[Call, Answer, set[int]]:
        """Leave out the models that are themselves clearly worse than the peer's own; returns the updates that had
        such models, by identity."""
        models = [(job, place, own) for job, own in hurt for place, ref in enumerate(job.models) if not ref.is_made]
        found = yield from self._are_worse(models)
        culprits: dict[int, list[ModelRef]] = {}
        for (job, place, _), is_worse in zip(models, found, strict=True):
            if is_worse:
                culprits.setdefault(id(job), []).append(job.models[place])
        for job, _ in hurt:
            for ref in (guilty := culprits.get(id(job), [])):
                self._learner(job.peer).mistrust.note(ref.owner, "hurts")
            self._leave_out(job, frozenset(guilty))
        return set(culprits)

    def _are_worse(
        self, models: Sequence[tuple[Updating, int, Sequence[float]]]
    ) -> Generator[Call, Answer, list[bool]]:
        """Whether each of these models, by its place in its update, is clearly worse than the peer's own: by itself;
        or, where a part of it is merged, merged with the own one."""
        if not self._merges_whole:
            found: list[bool] = []
            for start in range(0, len(models), _MERGES_AT_ONCE):
                some = models[start : start + _MERGES_AT_ONCE]
                found += yield from self._worse([_with(job, [at]) for job, at, _ in some], [own for *_, own in some])
            return found
        rows = self._names.received_rows([job.models[at] for job, at, _ in models])
        losses = yield from self._losses([job for job, *_ in models], rows)
        return [self._is_worse(of, own) for of, (*_, own) in zip(losses, models, strict=True)]

    @cached_property
    def _merges_whole(self) -> bool:
        """Whether all that a model consists of is merged."""
        layout = self._context.executor.engine.network.stored
        return len(merged_names(layout, self._context.rules.merging)) == len(layout.trained) + len(layout.kept)

    def _count(self, jobs: Sequence[Updating], worse: set[int]) -> None:
        """Note what is merged in the end. `worse`: the updates whose merges were clearly worse to the last."""
        for job in jobs:
            mistrust = self._learner(job.peer).mistrust
            mistrust.kept_own += not job.received
            for ref in _received(job):
                mistrust.note(ref.owner, "good")
            mistrust.agrees = mistrust.agrees or (bool(job.received) and id(job) not in worse)

    def _is_worse(self, losses: Sequence[float], own: Sequence[float]) -> bool:
        assert self._context.rules.trust
        return is_clearly_worse(losses, own, self._context.rules.trust.margin)

    def _losses(self, jobs: Sequence[Updating], rows: Sequence[int]) -> Losses:
        """What each model loses on each validation sample of its peer."""
        if not jobs:
            return []
        slots = self._context.slots([job.peer for job in jobs])
        found = yield from evaluate(Evaluate("val", list(rows), slots, each=True))
        assert found.losses is not None
        for job in jobs:
            self._learner(job.peer).mistrust.judged += 1
        counts = [self._context.executor.num_validation_samples(slot) for slot in slots]
        return [of[:count].tolist() for of, count in zip(found.losses, counts, strict=True)]

    def _leave_out(self, job: Updating, gone: frozenset[ModelRef]) -> None:
        """Of an update, with its weights."""
        if not gone:
            return
        left = _with(job, [place for place, ref in enumerate(job.models) if ref not in gone])
        self._names.release_all(ref for ref in job.models if ref in gone)
        job.models, job.action = left.models, left.action

    # --- the peer's own models ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Remember how long the models are that peers begin with."""
        rules = self._context.rules
        for learner in self._context.by_peer.values():
            row = self._names.stack.read([self._names.row(learner.latest)])
            (learner.mistrust.length,) = self._sketcher.lengths(row).tolist()
            learner.mistrust.agrees = rules.common_start

    def note_changes(self, jobs: Sequence[Updating], merged: Sequence[int], trained: Sequence[int]) -> None:
        """Remember how far training moved each model."""
        read = self._names.stack.read
        moved = self._sketcher.lengths(read(list(trained)) - read(list(merged)))
        for job, change in zip(jobs, moved.tolist(), strict=True):
            if 0 < change < float("inf"):
                self._learner(job.peer).mistrust.change = change

    def remember(self, jobs: Sequence[Updating], models: Sequence[int]) -> None:
        """Remember the new models, as the others get them. Whoever stops early serves an earlier one, and merges no
        more."""
        trust = self._context.rules.trust
        assert trust
        rows = self._names.stack.read(list(models))
        if trust.sent_as != "fp32":
            rows = round_rows(rows, self._context.executor.engine.network.stored, trust.sent_as)
        lengths = self._sketcher.lengths(rows).tolist()
        for job, sketch, length in zip(jobs, self._sketcher.sketches(rows), lengths, strict=True):
            self._learner(job.peer).mistrust.remember(sketch, length)

    def _learner(self, peer: PeerId) -> Learner:
        return self._context.by_peer[peer]


def _received(job: Updating) -> list[ModelRef]:
    """Those of its models that came from others."""
    return [ref for ref in job.models if not ref.is_made]


def _with(job: Updating, kept: Sequence[int]) -> Updating:
    """An update that merges these of its models, by their places, with weights that sum to one again."""
    weights = job.action.weights and shared(job.action.weights, kept)
    segments = tuple((prefix, shared(of, kept)) for prefix, of in job.action.segment_weights)
    action = replace(job.action, weights=weights, segment_weights=segments)
    return replace(job, models=tuple(job.models[place] for place in kept), action=action)


def shared(weights: Sequence[float], kept: Sequence[int]) -> tuple[float, ...]:
    """The weights of the own model and of those that are kept, such that they sum to one again; all is the own model's
    where they sum to nothing. `kept`: places among the received ones."""
    left = [weights[0], *(weights[1 + place] for place in kept)]
    total = sum(left)
    return tuple(of / total for of in left) if total > 0 else (1.0, *[0.0] * len(kept))

# SPDX-License-Identifier: Apache-2.0
"""What updates merge: the rows of each, and what a merge rule is told of it."""

from __future__ import annotations

from collections.abc import Sequence

from pens.learning.context import Context
from pens.learning.jobs import Blending, Updating
from pens.merging.merger import RowMerge
from pens.merging.rule import Merge, Merging
from pens.protocol.messages import PeerId, Update


class Inputs:
    """Looks up what updates merge."""

    def __init__(self, context: Context) -> None:
        self._context, self._rules, self._names = context, context.rules, context.names

    def merges(self, jobs: Sequence[Updating]) -> tuple[list[list[int]] | list[RowMerge], Merging | None]:
        """What to merge, and by which rule; None: plain averages, which need no more than the rows."""
        merging, groups = self._rules.merging, [self.group(job) for job in jobs]
        layout = self._context.executor.engine.network.stored
        if merging.is_plain(layout) and all(not _says_weights(job.action) for job in jobs):
            return groups, None
        return [self._row_merge(job, rows) for job, rows in zip(jobs, groups, strict=True)], merging

    def blend(self, job: Blending, untrained: Sequence[int]) -> RowMerge:
        """What a blend averages. `untrained`: the row of a model that counts last, where there is one."""
        own, received = self._names.rows[job.own], self._names.received_rows(job.action.models)
        others = (*(ref.owner for ref in job.action.models), *[job.peer] * len(untrained))
        about = Merge(job.peer, (job.peer, *others), True, weights=job.action.weights)
        return RowMerge([own, *received, *untrained], own, about, job.action.segment_weights)

    def group(self, job: Updating) -> list[int]:
        """Algorithm 1, MERGE_SAVED_MODELS: the received models and, unless configured otherwise, the peer's own."""
        received = self._names.received_rows(job.models)
        return [self.own_row(job), *received] if self._merges_own(job) else received

    def own_row(self, job: Updating) -> int:
        """The peer's own model before; or the one that it kept aside, or the first one, where the update begins with
        that."""
        action, kept = job.action, self._context.by_peer[job.peer].kept
        if kept and (action.from_kept or action.from_first):
            return kept.first if action.from_first else kept.row
        return self._names.rows[job.own]

    def _merges_own(self, job: Updating) -> bool:
        """Whether the own model is one of those that are merged."""
        return self._rules.own_in_merge or not job.models or _says_weights(job.action)

    def _row_merge(self, job: Updating, rows: list[int]) -> RowMerge:
        return RowMerge(rows, self.own_row(job), self._told(job), job.action.segment_weights)

    def _told(self, job: Updating) -> Merge:
        """What a merge rule is told of an update."""
        own, received = self._merges_own(job), tuple(ref.owner for ref in job.models)
        senders = (job.peer, *received) if own else received
        return Merge(job.peer, senders, own, self._samples(senders), job.action.weights)

    def _samples(self, peers: Sequence[PeerId]) -> tuple[int, ...] | None:
        """Numbers of training samples; None where one of the peers lives elsewhere."""
        if any(peer not in self._context.by_peer for peer in peers):
            return None
        learners = (self._context.by_peer[peer] for peer in peers)
        count = self._context.executor.num_training_samples
        return tuple(count(learner.slot) if learner.has_samples else 0 for learner in learners)


def _says_weights(action: Update) -> bool:
    """Whether the method says how much each model counts, in place of the merge rule."""
    return action.weights is not None or bool(action.segment_weights)

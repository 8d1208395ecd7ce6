# SPDX-License-Identifier: Apache-2.0
"""Recorded work: what is ready, in which order, and that no edge is looked at twice."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pens.jobs import JobGraph, Scoring, Updating
from pens.messages import ModelRef, PeerId

# Each entry is one update: its peer, whether it compares first, and the peers whose current models it reads.
histories = st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.sets(st.integers(0, 4))), max_size=40)


class Recorder:
    """Records a history of updates and computes it, level by level."""

    def __init__(self, history: list[tuple[int, bool, set[int]]]) -> None:
        self.known = {ModelRef(PeerId(p), 0) for p in range(5)}
        self.graph = JobGraph()
        self.level = dict.fromkeys(self.known, 0)
        latest = {p: ModelRef(PeerId(p), 0) for p in range(5)}
        for peer, compares, sources in history:
            me, models = PeerId(peer), tuple(latest[s] for s in sorted(sources - {peer}))
            own, out = latest[peer], ModelRef(me, latest[peer].version + 1)
            job = Updating(me, 1.0, models, 3, False, own, out)
            self.graph.add_update(job, self.known, compares)
            if compares:
                self.graph.add_scoring(Scoring(me, out.version, out.version - 1, models, 1, job), self.known)
            latest[peer] = out
            self.level[out] = 1 + max(self.level[ref] for ref in (own, *models))

    def compute(self) -> list[list[ModelRef]]:
        levels = []
        while self.graph.num_updates:
            for scoring in self.graph.take_scorings(0):
                self.graph.scored(scoring, scoring.models[: scoring.top_m])
            updates = self.graph.take_updates(0)
            for job in updates:
                self.graph.updated(job)
                self.known.add(job.out)
                self.graph.know(job.out)
            levels.append([job.out for job in updates])
        return levels


@given(histories)
def test_work_is_done_in_as_few_batches_as_the_longest_chain_has_updates(
    history: list[tuple[int, bool, set[int]]],
) -> None:
    recorder = Recorder(history)
    levels = recorder.compute()
    assert [{recorder.level[ref] for ref in level} for level in levels] == [{n + 1} for n in range(len(levels))]
    assert sum(len(level) for level in levels) == len(history)
    assert recorder.graph.state() == []


@given(histories, st.integers(0, 3))
def test_a_restored_graph_goes_on_where_it_was(history: list[tuple[int, bool, set[int]]], batches: int) -> None:
    recorder = Recorder(history)
    for _ in range(batches):
        for scoring in recorder.graph.take_scorings(0):
            recorder.graph.scored(scoring, scoring.models[:1])
        for job in recorder.graph.take_updates(0):
            recorder.graph.updated(job)
            recorder.known.add(job.out)
            recorder.graph.know(job.out)
    copy = JobGraph()
    copy.restore(json.loads(json.dumps(recorder.graph.state())), recorder.known)
    other = Recorder([])
    other.graph, other.known = copy, set(recorder.known)
    assert other.compute() == recorder.compute()


def test_a_comparison_does_not_wait_for_the_peers_own_training() -> None:
    graph, known = JobGraph(), {ModelRef(PeerId(p), 0) for p in range(2)}
    first = Updating(PeerId(0), 1.0, (), 3, False, ModelRef(PeerId(0), 0), ModelRef(PeerId(0), 1))
    second = Updating(PeerId(0), 2.0, (ModelRef(PeerId(1), 0),), 3, False, first.out, ModelRef(PeerId(0), 2))
    graph.add_update(first, known, compares=False)
    graph.add_update(second, known, compares=True)
    graph.add_scoring(Scoring(PeerId(0), 1, 1, second.models, 1, second), known)
    (scoring,) = graph.take_scorings(0)
    assert not graph.is_scored(PeerId(0))
    graph.scored(scoring, scoring.models)
    assert graph.is_scored(PeerId(0))
    assert graph.take_updates(0) == [first]

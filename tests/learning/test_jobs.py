# SPDX-License-Identifier: Apache-2.0
"""Recorded work: what is ready, in which order, and that no edge is looked at twice."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pens.learning.jobs import JobGraph, Question, Scoring, Updating
from pens.protocol.messages import ModelRef, PeerId, Update

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
            job = Updating(me, 1.0, Update(models, None, 3, may_stop=False), models, own, out)
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
    first, second = update(0, 1), update(0, 2, ModelRef(PeerId(1), 0))
    graph.add_update(first, known, compares=False)
    graph.add_update(second, known, compares=True)
    graph.add_scoring(Scoring(PeerId(0), 1, 1, second.models, 1, second), known)
    (scoring,) = graph.take_scorings(0)
    assert not graph.is_scored(PeerId(0))
    graph.scored(scoring, scoring.models)
    assert graph.is_scored(PeerId(0))
    assert graph.take_updates(0) == [first]


def model(owner: int, version: int) -> ModelRef:
    return ModelRef(PeerId(owner), version)


def update(peer: int, version: int, *models: ModelRef) -> Updating:
    """A peer's update of that number, from 1, which merges these models."""
    action = Update(models, None, 3, may_stop=False)
    return Updating(PeerId(peer), float(version), action, models, model(peer, version - 1), model(peer, version))


def test_work_is_taken_in_the_order_of_recording_and_so_much_at_a_time() -> None:
    """Peer 1 reads what peer 0 makes, so its work becomes ready last. It was recorded before that of peers 2 and 3."""
    graph, known = JobGraph(), {model(peer, 0) for peer in range(4)}
    updates = [update(0, 1), update(1, 1, model(0, 1)), update(2, 1), update(3, 1)]
    scorings = [Scoring(PeerId(peer), 1, 0, (model(0, peer == 1),), 1, None) for peer in range(4)]
    for job, scoring in zip(updates, scorings, strict=True):
        graph.add_update(job, known, compares=False)
        graph.add_scoring(scoring, known)
    assert graph.take_updates(1) == [updates[0]]
    assert graph.take_scorings(1) == [scorings[0]]
    graph.updated(updates[0])
    graph.know(model(0, 1))
    assert graph.take_updates(2) == updates[1:3]
    assert graph.take_scorings(2) == scorings[1:3]
    assert graph.take_updates(0) == updates[3:]
    assert graph.take_scorings(0) == scorings[3:]
    assert not graph.take_updates(0)
    assert not graph.take_scorings(0)


def test_updates_of_a_peer_that_has_stopped_are_done_without_work() -> None:
    """Four updates. The first is taken and done, which makes the second ready; then its peer has stopped, and the other
    three are done as they are. The fourth waits for a model of peer 1, which comes when nobody needs it any more.
    Work that has not begun is counted: an update that is taken has, and one that is done."""
    graph, known = JobGraph(), {model(0, 0)}
    updates = [update(0, 1), update(0, 2), update(0, 3), update(0, 4, model(1, 1))]
    for job in updates:
        graph.add_update(job, known, compares=False)
    assert graph.num_updates == 4
    assert graph.take_updates(0) == updates[:1]
    assert graph.num_updates == 3
    graph.updated(updates[0])
    assert graph.num_updates == 3
    graph.know(model(0, 1))
    for number in (1, 2, 3):
        assert graph.next_update(PeerId(0)) is updates[number]
        graph.updated(updates[number])
        assert graph.num_updates == 3 - number
        graph.know(updates[number].out)
    graph.know(model(1, 1))
    assert graph.next_update(PeerId(0)) is None
    assert graph.take_updates(0) == []
    assert graph.state() == []


def test_each_peer_has_comparisons_of_its_own_to_wait_for() -> None:
    """Peer 1 has two comparisons, peers 0 and 2 none."""
    graph, known = JobGraph(), {model(0, 0)}
    scorings = [Scoring(PeerId(1), number, 0, (model(0, 0),), 1, None) for number in (1, 2)]
    for job in scorings:
        graph.add_scoring(job, known)
    assert [graph.is_scored(PeerId(peer)) for peer in range(3)] == [True, False, True]
    graph.scored(scorings[0], ())
    assert not graph.is_scored(PeerId(1))
    graph.scored(scorings[1], ())
    assert graph.is_scored(PeerId(1))


def test_what_a_graph_is_on_disk_and_what_it_is_again() -> None:
    """An update that begins with a kept model, a comparison by itself, one that an update waits for, and a question."""
    graph, known = JobGraph(), {model(peer, 0) for peer in range(3)}
    going_back = Update((), None, 3, may_stop=True, from_kept=True)
    choosing = Update((model(0, 1), model(1, 0)), 1, 5, may_stop=False, keep="best")
    back = Updating(PeerId(0), 1.5, going_back, (), model(0, 0), model(0, 1))
    merging = Updating(PeerId(2), 2.5, choosing, choosing.models, model(2, 0), model(2, 1))
    graph.add_update(back, known, compares=False)
    graph.add_scoring(Scoring(PeerId(1), 4, 2, (model(0, 0), model(2, 0)), 1, None), known)
    graph.add_update(merging, known, compares=True)
    graph.add_scoring(Scoring(PeerId(2), 6, 3, merging.models, 1, merging), known)
    question = Question("who", "val", 3.5, num_asked=1)
    graph.add_scoring(Scoring(PeerId(0), 7, 8, (model(2, 0), model(1, 0)), 0, None, question), known)
    graph.add_scoring(Scoring(PeerId(2), 8, 3, (model(1, 0),), 1, None, None, "l2", model(2, 1)), known)
    state = json.loads(json.dumps(graph.state()))
    assert state == [
        ["update", 0, 1.5, 0, 1, [[], None, 3, True, "last", True, None, [], False, [], False]],
        ["scoring", 1, 4, 2, [[0, 0], [2, 0]], 1, None, None, "loss", None],
        ["update", 2, 2.5, 0, 1, [[[0, 1], [1, 0]], 1, 5, False, "best", False, None, [], False, [], False]],
        ["scoring", 2, 6, 3, [[0, 1], [1, 0]], 1, 1, None, "loss", None],
        ["scoring", 0, 7, 8, [[2, 0], [1, 0]], 0, None, ["who", "val", 3.5, 1], "loss", None],
        ["scoring", 2, 8, 3, [[1, 0]], 1, None, None, "l2", 1],
    ]
    again = JobGraph()
    again.restore(state, known)
    assert json.loads(json.dumps(again.state())) == state
    assert again.num_updates == 2
    alone, asked = again.take_scorings(0)
    assert (alone.peer, alone.question) == (1, None)
    assert asked.question == question
    assert isinstance(asked.question, Question)
    (first,) = again.take_updates(0)
    assert first.action == going_back
    again.updated(first)
    again.know(model(0, 1))
    assert again.take_updates(0) == []  # the comparison comes first
    (compared,) = again.take_scorings(0)
    again.scored(compared, (model(1, 0),))
    (written,) = (job for job in again.state() if job[0] == "update")
    assert written[-1][0] == [[1, 0]]  # what is chosen is written in place of what was received
    (last,) = again.take_updates(0)
    assert (last.peer, last.models) == (2, (model(1, 0),))
    assert again.take_scorings(0) == []  # it compares with what comes out
    again.know(model(2, 1))
    (measured,) = again.take_scorings(0)
    assert (measured.by, measured.own, measured.models) == ("l2", model(2, 1), (model(1, 0),))

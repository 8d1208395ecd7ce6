# SPDX-License-Identifier: Apache-2.0
"""What is compared and asked for, on which samples, and what is counted."""

from __future__ import annotations

import pytest

from pens import rng
from pens.engine.batches import Subset
from pens.protocol.messages import Ask, Compare, Losses, PeerId
from tests.learning.three import compute, engine_of, first_trainings, learners, update, values


@pytest.mark.parametrize(("score_on", "chosen"), [("train", 1), ("val", 2)])
def test_a_comparison_counts_and_merges_the_top_m(score_on: str, chosen: int) -> None:
    """Peer 0 compares e1 and e2 on its training sample, with losses of 1 and 2: e1 is the best. On its validation
    sample they are 1 and 0."""
    them = learners(score_on=score_on)
    refs = first_trainings(them)
    out = update(them, 0, refs[0], refs[1], refs[2], top_m=1)
    compute(them)
    expected = [1.5, 0.0, 0.0]
    expected[chosen] = 0.5
    assert values(them, out) == expected
    assert them.by_peer[PeerId(0)].merges == {chosen: 1}
    tally = them.by_peer[PeerId(0)].tally
    assert (tally.samplings, tally.selected, tally.sampled) == (1, {chosen: 1}, {1: 1, 2: 1})
    assert {peer: learner.scored for peer, learner in them.by_peer.items()} == {0: 2, 1: 0, 2: 0}
    columns = [them.comparisons.column(name).tolist() for name in ("peer", "round", "sender", "chosen")]
    assert columns == [[0, 0], [1, 1], [1, 2], [int(chosen == 1), int(chosen == 2)]]


def test_a_sampling_that_is_not_merged_is_counted_in_its_round() -> None:
    """Two comparisons of peer 2 in round 1, the second of which is merged, and one in round 2."""
    them = learners()
    refs = first_trainings(them)
    for ref in (refs[0], refs[1]):
        them.names.retain(ref)
    them.record_comparison(PeerId(2), Compare((refs[0], refs[1]), 1))
    second = update(them, 2, refs[2], refs[1], top_m=1)
    them.names.retain(refs[0])
    them.record_comparison(PeerId(2), Compare((refs[0],), 1))
    compute(them)
    assert values(them, second) == [0, 0.5, 1.5]
    tally = them.by_peer[PeerId(2)].tally
    assert (tally.samplings, tally.selected, tally.sampled) == (3, {0: 2, 1: 1}, {0: 2, 1: 2})
    columns = [them.comparisons.column(name).tolist() for name in ("peer", "round", "sender", "chosen")]
    assert columns == [[2] * 4, [1, 1, 1, 2], [0, 1, 1, 0], [1, 0, 1, 1]]
    assert them.by_peer[PeerId(2)].merges == {1: 1}


def test_each_comparison_draws_samples_of_its_own() -> None:
    """By the seed, the peer, and the number of the peer's comparison, from 1, questions included: the samples are the
    same whatever is compared at the same time, and others for the next comparison. Peers of a network, whose numbers
    have 63 bits: the first compares e1 and e2, then asks for e1 beside e2, and compares e2 for an update; the second
    compares e0. Questions go first."""
    first, second, third = 3 << 60, 9, 4
    them = learners(peers=(first, second, third), score_samples=1, seed=7)
    e0, e1, e2 = first_trainings(them)
    for ref in (e1, e2, e0):
        them.names.retain(ref)
    them.record_comparison(PeerId(first), Compare((e1, e2), 1))
    them.record_question(PeerId(first), e0, Ask("who", Losses((e1,), (e2,), on="val")), 3.5)
    update(them, first, e0, e2, top_m=1)
    them.record_comparison(PeerId(second), Compare((e0,), 1))
    engine = engine_of(them)
    assert engine.subsets == [None]
    compute(them)

    drawn = {
        (peer, number): rng.key(7, "score", peer, number) for peer, number in [(first, 1), (first, 3), (second, 1)]
    }
    asked, compared, validated = engine.subsets[1:]
    assert asked == Subset(1, [rng.key(7, "score", first, 2)] * 2)
    assert compared == Subset(1, [drawn[first, 1], drawn[first, 1], drawn[first, 3], drawn[second, 1]])
    assert validated is None
    assert engine.evaluations[2] == [(0, [0, 1, 0]), (0, [0, 0, 1]), (0, [0, 0, 1]), (1, [1, 0, 0])]
    columns = [them.comparisons.column(name).tolist() for name in ("peer", "round", "sender", "chosen")]
    assert columns == [[first] * 3 + [second], [1] * 4, [second, third, third, first], [1, 0, 1, 1]]


def test_where_all_samples_are_taken_a_model_is_evaluated_once_for_all_comparisons_of_a_peer() -> None:
    """Peer 2 compares e0 and e1 twice, and peer 1 e0: three pairs."""
    them = learners()
    e0, e1, _ = first_trainings(them)
    for ref in (e0, e1, e0, e1, e0):
        them.names.retain(ref)
    them.record_comparison(PeerId(2), Compare((e0, e1), 1))
    them.record_comparison(PeerId(2), Compare((e1, e0), 1))
    them.record_comparison(PeerId(1), Compare((e0,), 1))
    compute(them)
    assert engine_of(them).evaluations[1:] == [[(2, [1, 0, 0]), (2, [0, 1, 0]), (1, [1, 0, 0])]]
    assert them.by_peer[PeerId(2)].tally.selected == {0: 2}
    assert them.by_peer[PeerId(1)].tally.selected == {0: 1}


@pytest.mark.parametrize(("max_batch", "sizes"), [(0, [2, 1]), (1, [1, 1, 1])])
def test_so_many_comparisons_are_computed_at_once(
    max_batch: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `max_batch` says, else 20,000, of which 2 are left here. Three peers compare one model each."""
    monkeypatch.setattr("pens.learning.scoring._AT_ONCE", 2)
    them = learners(max_batch=max_batch)
    refs = [them.names.retain(them.first_model(PeerId(peer))) for peer in range(3)]
    for peer in range(3):
        them.record_comparison(PeerId(peer), Compare((refs[peer - 1],), 1))
    compute(them)
    assert [len(call) for call in engine_of(them).evaluations] == sizes


@pytest.mark.parametrize("score_by", ["loss", "accuracy"])
def test_a_question_is_answered_on_the_samples_that_it_names(score_by: str) -> None:
    """On peer 0's training sample e0, e1 and e2 have losses of 0, 1 and 2; on its validation sample of 2, 1 and 0. It
    asks for e2 and e1, beside e1, and then its own model e0: for two models, at time 3.5. By losses,
    also where step 1 compares by accuracy."""
    for on, losses in (("train", (2, 1, 1, 0)), ("val", (0, 1, 1, 2))):
        them = learners(score_by=score_by)
        own, e1, e2 = first_trainings(them)
        query = Losses((e2, e1), (e1,), on=on, own=True)  # type: ignore[arg-type]
        them.record_question(PeerId(0), own, Ask("who", query), 3.5)
        assert not them.is_answered(PeerId(0))
        compute(them)
        assert them.is_answered(PeerId(0))
        assert them.answer(PeerId(0), "who") == losses
        assert [them.by_peer[PeerId(0)].num_asked(time) for time in (3.4, 3.5)] == [0, 2]
        assert not them.by_peer[PeerId(0)].tally.sampled
        assert them.by_peer[PeerId(0)].scored == 0

# SPDX-License-Identifier: Apache-2.0
"""What is compared and asked for, on which samples, and what is counted."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from pens import rng
from pens.engine.batches import Subset
from pens.engine.layout import Layout
from pens.engine.stack import ModelStack
from pens.errors import SettingsError
from pens.learning.learners import Learners
from pens.merging.rule import chosen
from pens.protocol.messages import Ask, Compare, Distances, Losses, ModelRef, PeerId
from pens.settings.schema import Distance
from pens.settings.tree import Settings
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
    them.record_comparison(PeerId(2), refs[2], Compare((refs[0], refs[1]), 1))
    second = update(them, 2, refs[2], refs[1], top_m=1)
    them.names.retain(refs[0])
    them.record_comparison(PeerId(2), refs[2], Compare((refs[0],), 1))
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
    them.record_comparison(PeerId(first), e0, Compare((e1, e2), 1))
    them.record_question(PeerId(first), e0, Ask("who", Losses((e1,), (e2,), on="val")), 3.5)
    update(them, first, e0, e2, top_m=1)
    them.record_comparison(PeerId(second), e1, Compare((e0,), 1))
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
    e0, e1, e2 = first_trainings(them)
    for ref in (e0, e1, e0, e1, e0):
        them.names.retain(ref)
    them.record_comparison(PeerId(2), e2, Compare((e0, e1), 1))
    them.record_comparison(PeerId(2), e2, Compare((e1, e0), 1))
    them.record_comparison(PeerId(1), e1, Compare((e0,), 1))
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
        them.record_comparison(PeerId(peer), refs[peer], Compare((refs[peer - 1],), 1))
    compute(them)
    assert [len(call) for call in engine_of(them).evaluations] == sizes


@pytest.mark.parametrize("score", ["loss", "accuracy"])
def test_a_question_is_answered_on_the_samples_that_it_names(score: str) -> None:
    """On peer 0's training sample e0, e1 and e2 have losses of 0, 1 and 2; on its validation sample of 2, 1 and 0. It
    asks for e2 and e1, beside e1, and then its own model e0: for two models, at time 3.5. By losses,
    also where step 1 compares by accuracy."""
    for on, losses in (("train", (2, 1, 1, 0)), ("val", (0, 1, 1, 2))):
        them = learners(score=score)
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


def far(them: Learners) -> list[ModelRef]:
    """Models (1, 0, 0), (2, 1, 0) and (0, 0, 3) of the three peers, who all began with (0, 0, 1)."""
    refs = first_trainings(them)
    rows = them.models.add(torch.tensor([[1.0, 0, 0], [2, 1, 0], [0, 0, 3]]))
    for ref, row in zip(refs, rows, strict=True):
        them.names.give_values(ref, row)
        them.models.release(row)
    return refs


FAR: dict[Distance, list[float]] = {
    "l2": [math.sqrt(2), math.sqrt(10)],
    "cosine-weights": [1 - 2 / math.sqrt(5), 1],
    "cosine-update": [1 - 3 / math.sqrt(2 * 6), 1 + 1 / math.sqrt(2)],
}
"""How far the models of the second and the third peer lie from that of the first; their updates are (1, 0, −1),
(2, 1, −1) and (0, 0, 2)."""


@pytest.mark.parametrize("by", FAR)
def test_a_question_for_distances_is_answered_by_one_number_for_each_model(by: Distance) -> None:
    """No sample is read, and none counts as scored."""
    them = learners(common_start=True, first_models=torch.tensor([[0.0, 0, 1]] * 3))
    own, second, third = far(them)
    them.record_question(PeerId(0), own, Ask("how far", Distances((second, third), by)), 3.5)
    evaluations = len(engine_of(them).evaluations)
    alive = them.models.num_alive
    compute(them)
    assert them.answer(PeerId(0), "how far") == pytest.approx(FAR[by])
    assert len(engine_of(them).evaluations) == evaluations
    assert them.by_peer[PeerId(0)].num_asked(9) == 0
    assert them.models.num_alive == alive


@pytest.mark.parametrize("by", FAR)
def test_step_one_merges_the_nearest_models(by: Distance) -> None:
    """The second peer's model is the nearest of the two."""
    them = learners(common_start=True, first_models=torch.tensor([[0.0, 0, 1]] * 3), score=by)
    own, second, third = far(them)
    for ref in (second, third):
        them.names.retain(ref)
    them.record_comparison(PeerId(0), own, Compare((third, second), 1))
    out = update(them, 0, own, third, second, top_m=1)
    compute(them)
    assert values(them, out) == [2.5, 0.5, 0]
    tally = them.by_peer[PeerId(0)].tally
    assert (tally.samplings, tally.selected, tally.sampled) == (2, {1: 2}, {1: 2, 2: 2})
    assert tally.height(PeerId(1)) < 0 < tally.height(PeerId(2))
    near, distant = FAR[by]
    added = 0.1 * (near + distant) / 2  # a tenth of the median
    apart = math.log((distant + added) / (near + added))
    assert tally.height(PeerId(2)) - tally.height(PeerId(1)) == pytest.approx(apart)


def test_what_training_changed_is_known_where_all_began_alike() -> None:
    them = learners()
    own, second, _ = first_trainings(them)
    query = Ask("how far", Distances((second,), "cosine-update"))
    with pytest.raises(SettingsError, match="each peer began with its own: set init = common, or compare by cosine-we"):
        them.record_question(PeerId(0), own, query, 1.0)


def test_distances_are_those_of_parameters_that_are_trained_and_merged() -> None:
    """Of four tensors b is left out by merge_only, c is batch normalisation, which is local or merged, and d is a
    buffer: a counts, and c where it is merged."""
    trained = {name: torch.Size([1]) for name in "abc"}
    layout = Layout.stored(trained, {"d": torch.Size([1])}, ["c"])
    for batch_norm, counted in (("local", 3.0), ("merged", 5.0)):
        settings = Settings().replace({"merge_only": ["a", "c", "d"], "batch_norm": batch_norm})
        them = learners(merging=chosen(settings))
        engine_of(them).network = SimpleNamespace(size=4, stored=layout)
        them.models = them.executor.models = them.names.stack = ModelStack(4, torch.device("cpu"))
        (own, other) = them.models.add(torch.tensor([[0.0] * 4, [3.0, 7.0, 4.0, 9.0]]))
        names = [them.names.retain(ModelRef(PeerId(0), version)) for version in (8, 9)]
        them.names.rows |= dict(zip(names, (own, other), strict=True))
        them.record_question(PeerId(0), names[0], Ask("how far", Distances((names[1],), "l2")), 1.0)
        compute(them)
        assert them.answer(PeerId(0), "how far") == (counted,)

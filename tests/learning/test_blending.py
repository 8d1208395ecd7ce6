# SPDX-License-Identifier: Apache-2.0
"""Models that a peer makes beside its own one, by hand: averages, which it may ask about, train from, and drop."""

from __future__ import annotations

import json

import pytest
import torch

from pens import rng
from pens.errors import SettingsError
from pens.learning.learners import Learners
from pens.protocol.messages import Ask, Blend, Losses, ModelRef, PeerId, Update
from tests.learning.three import compute, engine_of, first_trainings, learners, update, values

ME = PeerId(0)


def blend(
    them: Learners, number: int, own: ModelRef, *models: ModelRef, weights: tuple[float, ...], **said: object
) -> ModelRef:
    made = ModelRef(own.owner, -number)
    them.record_blend(own.owner, own, Blend(made, models, weights, **said))  # type: ignore[arg-type]
    return made


def test_an_average_is_made_asked_about_trained_from_and_gone() -> None:
    """0.5 e0 + 0.25 e1 + 0.25 e2 has the loss 0 · 0.5 + 1 · 0.25 + 2 · 0.25 for peer 0. Trained for an epoch, it is
    [1.5, 0.25, 0.25]: what counts with a weight of one is taken to the last bit, and the others stand beside it for
    the record. The peer's own model, and those of the others, are what they were."""
    them = learners()
    e0, e1, e2 = first_trainings(them)
    alive = them.models.num_alive
    made = blend(them, 1, e0, e1, e2, weights=(0.5, 0.25, 0.25))
    them.record_question(ME, e0, Ask("fit", Losses((made, e1))), 1.0)
    them.executor.carry_out([them.compare()], [lambda: None])
    assert them.is_answered(ME)
    assert them.answer(ME, "fit") == (0.75, 1.0)
    assert values(them, made) == [0.5, 0.25, 0.25]
    assert [values(them, ref) for ref in (e0, e1, e2)] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert them.models.num_alive == alive + 1
    for ref in (e1, e2):
        them.names.retain(ref)
    takes_it = Update((e1, e2, made), None, 1, may_stop=False, weights=(0.0, 0.0, 0.0, 1.0))
    new = them.record_update(ME, e0, takes_it, 2.0)
    compute(them)
    assert values(them, new) == [1.5, 0.25, 0.25]
    assert not them.names.holds(made)
    assert them.models.num_alive == alive + 1  # the new model, in place of the one that was made
    assert them.by_peer[ME].merges == {1: 1, 2: 1}
    (record,) = (r for r in them.history if r.peer == 0 and r.version == 2)
    assert record.merged == 2


def test_a_blend_waits_for_its_models_and_blends_may_be_of_blends() -> None:
    """All is recorded before anything is computed: 2/3 of e0 and 1/3 of e1, and half of that and half of e0."""
    them = learners()
    e0, e1, _ = (update(them, peer, them.first_model(peer)) for peer in them.by_peer)
    made = blend(them, 1, e0, e1, weights=(2 / 3, 1 / 3))
    again = blend(them, 2, e0, made, weights=(0.5, 0.5))
    them.names.release(made)  # the peer drops it at once
    compute(them)  # the updates
    compute(them)
    assert values(them, again) == pytest.approx([5 / 6, 1 / 6, 0], abs=1e-5)
    assert not them.names.holds(made)
    them.names.release(again)
    assert them.models.num_alive == 6  # the untrained models and those that were trained


def test_segments_have_weights_of_their_own_and_what_counts_for_nothing_does_no_harm() -> None:
    them = learners()
    refs = first_trainings(them)
    bad = torch.tensor([torch.nan, torch.inf, 0.0])
    them.names.give_values(refs[1], them.models.add(bad[None])[0])
    made = blend(
        them, 1, refs[0], refs[1], refs[2], weights=(1.0, 0.0, 0.0), segment_weights=(("epochs", (0.0, 0.0, 1.0)),)
    )
    half = blend(them, 2, refs[0], refs[1], refs[2], weights=(0.5, 0.0, 0.5))
    compute(them)
    assert values(them, made) == [0, 0, 1]
    assert values(them, half) == [0.5, 0, 0.5]


def test_a_run_goes_on_between_a_blend_and_what_it_is_for() -> None:
    them, again = learners(), learners()
    e0, e1, _ = (update(them, peer, them.first_model(peer)) for peer in them.by_peer)
    made = blend(them, 1, e0, e1, weights=(0.25, 0.75), segment_weights=(("epochs", (0.5, 0.5)),))
    other = blend(them, 2, e0, weights=(0.5, 0.5), untrained=("head", 3))
    them.record_question(ME, e0, Ask("fit", Losses((made,), on="val")), 1.0)
    data, tensors = them.state()
    again.restore(json.loads(json.dumps(data)), tensors)
    assert json.dumps(again.jobs.state()) == json.dumps(them.jobs.state())
    for some in (them, again):
        compute(some)
        compute(some)
        assert (values(some, made), values(some, other)) == ([0.5, 0.5, 0], [0.5, 0, 0])
        assert some.answer(ME, "fit") == (2 * 0.5 + 1 * 0.5,)
        data, tensors = some.state()
        later = learners()
        later.restore(json.loads(json.dumps(data)), tensors)
        assert values(later, made) == [0.5, 0.5, 0]


@pytest.mark.parametrize("at_once", [0, 1, 2])
def test_how_many_are_computed_at_once_changes_nothing(at_once: int) -> None:
    them = learners(max_batch=at_once)
    e0, e1, e2 = first_trainings(them)
    for _ in range(2):
        compute(them)
    made = [blend(them, n, e0, e1, e2, weights=(n / 8, 1 - n / 8, 0.0)) for n in range(1, 5)]
    them.executor.carry_out([them.compare()], [lambda: None])
    assert [values(them, ref) for ref in made] == [[n / 8, 1 - n / 8, 0] for n in range(1, 5)]


def test_an_untrained_model_is_the_same_for_all_who_name_it_alike() -> None:
    them = learners(seed=7)
    engine_of(them).network.new_row = lambda seed: torch.tensor([float(seed % 1000)] * 3)
    refs = first_trainings(them)
    mine = blend(them, 1, refs[0], weights=(0.0, 1.0), untrained=("head", 1))
    theirs = blend(them, 1, refs[1], weights=(0.0, 1.0), untrained=("head", 1))
    another = blend(them, 2, refs[1], weights=(0.0, 1.0), untrained=("head", 2))
    compute(them)
    of = [float(rng.key(7, "init", "head", number) % 1000) for number in (1, 2)]
    assert values(them, mine) == values(them, theirs) == [of[0]] * 3
    assert values(them, another) == [of[1]] * 3


def test_what_a_peer_made_itself_was_never_rounded_on_its_way() -> None:
    """A tenth is no number of half precision. The other's model is rounded, as it came, and a third of it is not."""
    them = learners(wire="fp16")
    engine_of(them).network.new_row = lambda seed: torch.tensor([0.1, 0.2, 0.3])
    e0, *_ = first_trainings(them)
    made = blend(them, 1, e0, weights=(0.0, 1.0), untrained=("a",))
    compute(them)
    again = blend(them, 2, e0, made, weights=(0.0, 1.0))
    compute(them)
    row = them.models.read([them.names.row(again)])[0]
    assert torch.equal(row, torch.tensor([0.1, 0.2, 0.3]))


@pytest.mark.parametrize(
    ("weights", "said", "told"),
    [
        ((0.5,), {}, "the blend of peer 0 .* says 1 weights for 2 models"),
        ((0.5, 0.5), {"untrained": ("a",)}, "says 2 weights for 3 models"),
        ((0.5, 0.4), {}, r"weights that sum to 0\.9"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: tuple[float, ...], said: dict[str, object], told: str) -> None:
    them = learners()
    e0, e1, _ = first_trainings(them)
    with pytest.raises(SettingsError, match=told):
        blend(them, 1, e0, e1, weights=weights, **said)

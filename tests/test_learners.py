# SPDX-License-Identifier: Apache-2.0
"""What updates and comparisons make of models, by hand. What the numbers in a model mean: `tests/byhand.py`."""

from __future__ import annotations

import math

import pytest
import torch

from pens.calls import Workshop
from pens.config import StoppingSettings
from pens.engine.batches import SampleStack
from pens.engine.optimizers import Recipe
from pens.errors import SettingsError
from pens.learners import Learners, LearningRules
from pens.merging.mean import Mean
from pens.merging.rule import Merge, Merging
from pens.messages import Judge, ModelRef, PeerId, Score, Update
from tests.byhand import CountingEngine, sample

CPU = torch.device("cpu")
LOSSES = ((0.0, 1.0, 2.0), (2.0, 0.0, 1.0), (1.0, 2.0, 0.0))


def learners(first_slot: int = 0, **rules: object) -> Learners:
    """Three peers, whose numbers are 0, 1, 2. The slots before `first_slot` belong to somebody else."""
    engine = CountingEngine(3)
    strangers = [sample((9, 9, 9), 2)] * first_slot
    training = SampleStack([*strangers, *(sample(LOSSES[p], p) for p in range(3))], CPU)
    validation = SampleStack([*strangers, *(sample(LOSSES[p][::-1], p) for p in range(3))], CPU)
    workshop = Workshop(engine, training, validation, 3)
    defaults: dict[str, object] = {
        "recipe": Recipe("sgd", 0.1, 0.0, 0.0, 4),
        "stopping": StoppingSettings(window=1, patience=9, tested="last"),
        "own_in_merge": True,
        "seed": 0,
    }
    return Learners(workshop, first_slot, torch.zeros(3, 3), LearningRules(**{**defaults, **rules}))  # type: ignore[arg-type]


def compute(them: Learners) -> None:
    them.workshop.carry_out([them.compute_batch()], [lambda: None])


def update(
    them: Learners, peer: int, own: ModelRef, *models: ModelRef, top_m: int | None = None, **values: object
) -> ModelRef:
    """Record an update, with references to the models it takes."""
    for ref in models:
        them.retain(ref)
    arguments: dict[str, object] = {"epochs": 1, "may_stop": False, **values}
    time = float(arguments.pop("time", 0.0))  # type: ignore[arg-type]
    action = Update(models, top_m, **arguments)  # type: ignore[arg-type]
    return them.record_update(PeerId(peer), own, action, time)


def first_trainings(them: Learners) -> list[ModelRef]:
    """Everybody trains one epoch: e0, e1, e2."""
    refs = [update(them, peer, ModelRef(PeerId(peer), 0)) for peer in range(3)]
    compute(them)
    return refs


def values(them: Learners, ref: ModelRef) -> list[float]:
    (row,) = them.models.read([them.row(ref)]).tolist()
    return [round(value, 5) for value in row]


@pytest.mark.parametrize("first_slot", [0, 4])
def test_updates_merge_the_named_models_with_the_own_one_and_train_on_own_data(first_slot: int) -> None:
    """MERGE_SAVED_MODELS and TRAIN: (e0 + e1 + e2) / 3 + 2 e1. Where others' slots come first, as well."""
    them = learners(first_slot)
    refs = first_trainings(them)
    assert [values(them, ref) for ref in refs] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    out = update(them, 1, refs[1], refs[0], refs[2], epochs=2)
    compute(them)
    assert values(them, out) == [round(1 / 3, 5), round(7 / 3, 5), round(1 / 3, 5)]
    assert them.merges[PeerId(1)] == {0: 1, 2: 1}
    assert not them.merges[PeerId(0)]
    alone = update(them, 2, refs[2])
    compute(them)
    assert values(them, alone) == [0, 0, 2]


def test_without_the_own_model_only_received_ones_are_averaged() -> None:
    them = learners(own_in_merge=False)
    refs = first_trainings(them)
    out, alone = update(them, 1, refs[1], refs[0], refs[2]), update(them, 0, refs[0])
    compute(them)
    assert values(them, out) == [0.5, 1, 0.5]
    assert values(them, alone) == [2, 0, 0]


@pytest.mark.parametrize("own_in_merge", [True, False])
def test_a_method_says_how_much_each_model_counts(own_in_merge: bool) -> None:
    """e0 / 2 + e1 / 8 + 3 e2 / 8 and an epoch of peer 1's, where peer 1's own model has the first weight; the own model
    is merged with its weight whatever `own_in_merge` says. With nothing received, it stays as it is."""
    them = learners(own_in_merge=own_in_merge)
    refs = first_trainings(them)
    out = update(them, 1, refs[1], refs[0], refs[2], weights=(0.125, 0.5, 0.375))
    some = update(them, 2, refs[2], refs[0], segment_weights=(("epo", (0.75, 0.25)),))
    alone = update(them, 0, refs[0], weights=(1.0,))
    compute(them)
    assert [values(them, ref) for ref in (out, some, alone)] == [[0.5, 1.125, 0.375], [0.25, 0, 1.75], [2, 0, 0]]
    assert them.merges[PeerId(1)] == {0: 1, 2: 1}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"weights": (0.5, 0.5)}, r"the update of peer 1 \(its own model first\) says 2 weights for 3 models"),
        ({"weights": ()}, "says 0 weights for 3 models"),
        ({"weights": (0.5, 0.5, 0.5)}, "says weights that sum to 1.5"),
        ({"segment_weights": (("epo", (1.0,)),)}, "says 1 weights for 3 models"),
        ({"weights": (0.5, 0.25, 0.25), "top_m": 1}, "the update of peer 1 says weights and top_m = 1"),
    ],
)
def test_weights_that_are_none_are_refused(said: dict[str, object], reason: str) -> None:
    them = learners()
    refs = first_trainings(them)
    with pytest.raises(SettingsError, match=reason):
        update(them, 1, refs[1], refs[0], refs[2], **said)  # type: ignore[arg-type]


def test_a_rule_is_told_whose_models_it_merges() -> None:
    """Peer 1 and senders 0 and 2, in the order of receipt, each with one training sample."""
    seen: list[Merge] = []

    class Watching(Mean):
        is_plain = False

        def weights(self, merge: Merge, segment: str, options: object) -> None:
            seen.append(merge)

    them = learners(merging=Merging(Watching()))
    refs = first_trainings(them)
    out = update(them, 1, refs[1], refs[2], refs[0])
    compute(them)
    assert values(them, out) == [round(1 / 3, 5), round(4 / 3, 5), round(1 / 3, 5)]
    assert seen == [Merge(1, (1, 2, 0), True, (1, 1, 1))]


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
    assert them.merges[PeerId(0)] == {chosen: 1}
    tally = them.tallies[PeerId(0)]
    assert (tally.samplings, tally.selected, tally.sampled) == (1, {chosen: 1}, {1: 1, 2: 1})
    assert them.scored == {0: 2, 1: 0, 2: 0}
    columns = [them.comparisons.column(name).tolist() for name in ("peer", "round", "sender", "chosen")]
    assert columns == [[0, 0], [1, 1], [1, 2], [int(chosen == 1), int(chosen == 2)]]


def test_a_sampling_that_is_not_merged_is_counted_in_its_round() -> None:
    """Two comparisons of peer 2 in round 1, the second of which is merged, and one in round 2."""
    them = learners()
    refs = first_trainings(them)
    for ref in (refs[0], refs[1]):
        them.retain(ref)
    them.record_score(PeerId(2), Score((refs[0], refs[1]), 1))
    second = update(them, 2, refs[2], refs[1], top_m=1)
    them.retain(refs[0])
    them.record_score(PeerId(2), Score((refs[0],), 1))
    compute(them)
    assert values(them, second) == [0, 0.5, 1.5]
    tally = them.tallies[PeerId(2)]
    assert (tally.samplings, tally.selected, tally.sampled) == (3, {0: 2, 1: 1}, {0: 2, 1: 2})
    columns = [them.comparisons.column(name).tolist() for name in ("peer", "round", "sender", "chosen")]
    assert columns == [[2] * 4, [1, 1, 1, 2], [0, 1, 1, 0], [1, 0, 1, 1]]
    assert them.merges[PeerId(2)] == {1: 1}


def test_early_stopping_keeps_the_best_and_serves_it() -> None:
    """Section 5.4, patience 1. Peer 0 validates its own share. First training: 100 %, which does not count. Then 75 %,
    the best, and 67 %: it stops at the time of that update, whose name now stands for the best model. A later update is
    no work, and merges nothing."""
    them = learners(stopping=StoppingSettings(window=1, patience=1))
    e0, e1, _ = first_trainings(them)
    second = update(them, 0, e0, e1, may_stop=True, time=1.5)
    compute(them)
    assert not them.has_stopped(PeerId(0))
    third = update(them, 0, second, e1, e1, may_stop=True, time=2.5)
    fourth = update(them, 0, third, e1, may_stop=True, time=3.5)
    compute(them)
    assert them.has_stopped(PeerId(0))
    assert them.stop_times == {0: 2.5, 1: math.inf, 2: math.inf}
    assert [values(them, ref) for ref in (second, third, fourth)] == [[1.5, 0.5, 0]] * 3
    fifth = update(them, 0, fourth, e1, may_stop=True, time=4.5)
    assert values(them, fifth) == [1.5, 0.5, 0]
    assert them.num_computed(PeerId(0)) == 5
    assert them.merges[PeerId(0)] == {1: 3}
    assert them.num_updates == 3 + 2
    assert len(them.history) == 5
    assert them.models.read(them.tested_rows()).tolist() == [[1.5, 0.5, 0], [0, 1, 0], [0, 0, 1]]


def test_what_is_validated_may_be_the_merged_model() -> None:
    """Not in the paper. Peer 0's average with e1 is [0.5, 0.5, 0]; trained, it is [1.5, 0.5, 0]. The first is validated
    (50 % of it are its own) and tested, the second is what it goes on with. A first training has no average."""
    them = learners(stopping=StoppingSettings(window=1, patience=9, validated="merged"))
    e0, e1, _ = first_trainings(them)
    second = update(them, 0, e0, e1, may_stop=True)
    compute(them)
    assert values(them, second) == [1.5, 0.5, 0]
    assert them.models.read(them.tested_rows()).tolist()[0] == [0.5, 0.5, 0]
    assert [r.val_accuracy for r in them.history if r.peer == 0] == [1.0, 0.5]


def test_an_update_with_a_bad_loss_is_undone() -> None:
    """Peer 1's second training fails: its model stays, nothing counts as merged, and it is validated as it is."""
    them = learners()
    engine = them.workshop.engine
    assert isinstance(engine, CountingEngine)
    engine.fails = {(1, 1)}
    e0, e1, _ = first_trainings(them)
    out, other = update(them, 1, e1, e0), update(them, 0, e0, e1)
    compute(them)
    assert values(them, out) == [0, 1, 0]
    assert values(them, other) == [1.5, 0.5, 0]
    assert them.setbacks == {1: 1}
    assert not them.merges[PeerId(1)]
    assert them.merges[PeerId(0)] == {1: 1}
    accuracies = {(r.peer, r.version): r.val_accuracy for r in them.history}
    assert (accuracies[1, 2], accuracies[0, 2]) == (1.0, 0.75)  # type: ignore[index]
    losses = {(r.peer, r.version): r.val_loss for r in them.history}
    assert losses[1, 2] == losses[1, 1] == LOSSES[1][1]  # type: ignore[index]


@pytest.mark.parametrize(("step2_model", "expected"), [("first", [1, 0, 0]), ("best", [2, 0, 0])])
def test_step_two_may_begin_with_the_untrained_model_or_the_best_of_step_one(
    step2_model: str, expected: list[float]
) -> None:
    """Not in the paper. Peer 0's validation losses: e0 has 2; (e0 + e1 + e2) / 3 + e0 = [4/3, 1/3, 1/3] has 3: the
    first training gave the best model. Step 2 begins with it, or with the untrained one, and trains it once."""
    them = learners(step2_model=step2_model)
    e0, e1, e2 = first_trainings(them)
    second = update(them, 0, e0, e1, e2)
    compute(them)
    out = update(them, 0, second, may_stop=True, anew=True)
    compute(them)
    assert values(them, out) == expected
    assert [r.val_loss for r in them.history if r.peer == 0] == pytest.approx([2, 3, 2 * expected[0]])


def test_strangers_are_judged_on_validation_data_against_the_neighbours() -> None:
    """Not in the paper. On peer 0's validation sample e1 has a loss of 1, e2 of 0: a stranger with e2 wins against a
    neighbour with e1, and loses the other way round."""
    them = learners()
    own, e1, e2 = first_trainings(them)
    for stranger, neighbour, wins in ((e2, e1, True), (e1, e2, False)):
        them.retain(stranger)
        them.record_judgement(PeerId(0), own, Judge((stranger,), (neighbour,)), 3.5)
        compute(them)
        assert them.trials[PeerId(0)].wins[stranger.owner] == [wins]
    assert them.trials[PeerId(0)].times == [3.5, 3.5]
    assert not them.tallies[PeerId(0)].sampled
    assert them.scored[PeerId(0)] == 0


def test_without_neighbours_strangers_are_judged_against_the_own_model() -> None:
    """As above, with e1 or e2 as the peer's own model."""
    them = learners()
    _, e1, e2 = first_trainings(them)
    for stranger, own, wins in ((e2, e1, True), (e1, e2, False)):
        them.retain(stranger)
        them.record_judgement(PeerId(0), own, Judge((stranger,), ()), 3.5)
        compute(them)
        assert them.trials[PeerId(0)].wins[stranger.owner] == [wins]


@pytest.mark.parametrize("remembers", [True, False])
def test_an_optimizer_goes_on_only_where_the_rules_say_so(remembers: bool) -> None:
    them = learners(optimizer_remembers=remembers, recipe=Recipe("adam", 0.1, 0.0, 0.0, 4))
    refs = first_trainings(them)
    for peer in (0, 1):
        update(them, peer, refs[peer])
    compute(them)
    engine = them.workshop.engine
    assert isinstance(engine, CountingEngine)
    steps = [[t.remembered for t in engine.trainings if t.slot == slot] for slot in range(3)]
    assert steps == ([[0, 1], [0, 1], [0]] if remembers else [[None, None], [None, None], [None]])


def test_a_model_lives_as_long_as_somebody_needs_it() -> None:
    """The peer that has it, an update that reads it, and whoever retained it."""
    them = learners()
    refs = first_trainings(them)
    for peer in range(3):
        them.release(ModelRef(PeerId(peer), 0))
    alive = them.models.num_alive
    out = update(them, 0, refs[0], refs[1])
    them.release(refs[1])
    compute(them)
    assert values(them, out) == [1.5, 0.5, 0]
    assert refs[1] not in them._rows
    assert refs[0] in them._rows
    them.release(refs[0])
    assert refs[0] not in them._rows
    them.let_go()
    assert them.models.num_alive == 0
    assert alive == 3  # the last and the best model of each peer are one


@pytest.mark.parametrize(("wire", "twins"), [("fp32", 0), ("int8", 1)])
def test_a_model_that_travels_as_it_is_is_held_once(wire: str, twins: int) -> None:
    """A merge makes one model; where models are rounded on their way, the received one is held beside the sender's."""
    them = learners(wire=wire)
    refs = first_trainings(them)
    before = them.models.num_alive
    out = update(them, 0, refs[0], refs[1])
    compute(them)
    assert them.models.num_alive == before + 1 + twins
    assert values(them, out) == [1.5, 0.5, 0]


def test_each_update_has_a_key_of_its_own() -> None:
    """Batches are shuffled by seed, peer and version of the model."""
    keys = []
    for seed in (0, 1):
        them = learners(seed=seed)
        refs = first_trainings(them)
        update(them, 0, refs[0])
        compute(them)
        engine = them.workshop.engine
        assert isinstance(engine, CountingEngine)
        keys += [t.key for t in engine.trainings]
    assert len(set(keys)) == 8

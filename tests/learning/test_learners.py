# SPDX-License-Identifier: Apache-2.0
"""What updates and comparisons make of models, by hand. What the numbers in a model mean: `tests/byhand.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from pens import rng
from pens.engine.batches import SampleStack, Subset
from pens.engine.optimizers import Recipe
from pens.errors import SettingsError
from pens.learning.executor import Call, Evaluate, Executor, Train, Work
from pens.learning.learners import Learners, LearningRules
from pens.merging.mean import Mean
from pens.merging.rule import Merge, Merging
from pens.protocol.messages import Ask, Compare, Counts, Losses, ModelRef, PeerId, Update
from pens.settings.schema import StoppingSettings
from tests.byhand import CountingEngine, sample

CPU = torch.device("cpu")
LOSSES = ((0.0, 1.0, 2.0), (2.0, 0.0, 1.0), (1.0, 2.0, 0.0))


def learners(
    first_slot: int = 0, peers: Sequence[int] | None = None, executor: Executor | None = None, **rules: object
) -> Learners:
    """Three peers, whose numbers are 0, 1, 2 or those given. The slots before `first_slot` belong to somebody else."""
    executor = executor or workshop_for(first_slot)
    defaults: dict[str, object] = {
        "recipe": Recipe("sgd", 0.1, 0.0, 0.0, 4),
        "stopping": StoppingSettings(window=1, patience=9, tested="last"),
        "own_in_merge": True,
        "seed": 0,
    }
    rules_ = LearningRules(**{**defaults, **rules})  # type: ignore[arg-type]
    numbers = [PeerId(p) for p in peers] if peers else None
    return Learners(executor, first_slot, torch.zeros(3, 3), rules_, numbers)


def workshop_for(first_slot: int = 0) -> Executor:
    strangers = [sample((9, 9, 9), 2)] * first_slot
    training = SampleStack([*strangers, *(sample(LOSSES[p], p) for p in range(3))], CPU)
    validation = SampleStack([*strangers, *(sample(LOSSES[p][::-1], p) for p in range(3))], CPU)
    return Executor(CountingEngine(3), training, validation, 3)


def engine_of(them: Learners) -> CountingEngine:
    engine = them.executor.engine
    assert isinstance(engine, CountingEngine)
    return engine


def compute(them: Learners) -> None:
    them.executor.carry_out([them.compute_batch()], [lambda: None])


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
    refs = [update(them, peer, them.first_model(peer)) for peer in them.tallies]
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
    them.record_comparison(PeerId(2), Compare((refs[0], refs[1]), 1))
    second = update(them, 2, refs[2], refs[1], top_m=1)
    them.retain(refs[0])
    them.record_comparison(PeerId(2), Compare((refs[0],), 1))
    compute(them)
    assert values(them, second) == [0, 0.5, 1.5]
    tally = them.tallies[PeerId(2)]
    assert (tally.samplings, tally.selected, tally.sampled) == (3, {0: 2, 1: 1}, {0: 2, 1: 2})
    columns = [them.comparisons.column(name).tolist() for name in ("peer", "round", "sender", "chosen")]
    assert columns == [[2] * 4, [1, 1, 1, 2], [0, 1, 1, 0], [1, 0, 1, 1]]
    assert them.merges[PeerId(2)] == {1: 1}


def test_each_comparison_draws_samples_of_its_own() -> None:
    """By the seed, the peer, and the number of the peer's comparison, from 1, questions included: the samples are the
    same whatever is compared at the same time, and others for the next comparison. Peers of a network, whose numbers
    have 63 bits: the first compares e1 and e2, then asks for e1 beside e2, and compares e2 for an update; the second
    compares e0. Questions go first."""
    first, second, third = 3 << 60, 9, 4
    them = learners(peers=(first, second, third), score_samples=1, seed=7)
    e0, e1, e2 = first_trainings(them)
    for ref in (e1, e2, e0):
        them.retain(ref)
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
        them.retain(ref)
    them.record_comparison(PeerId(2), Compare((e0, e1), 1))
    them.record_comparison(PeerId(2), Compare((e1, e0), 1))
    them.record_comparison(PeerId(1), Compare((e0,), 1))
    compute(them)
    assert engine_of(them).evaluations[1:] == [[(2, [1, 0, 0]), (2, [0, 1, 0]), (1, [1, 0, 0])]]
    assert them.tallies[PeerId(2)].selected == {0: 2}
    assert them.tallies[PeerId(1)].selected == {0: 1}


@pytest.mark.parametrize(("max_batch", "sizes"), [(0, [2, 1]), (1, [1, 1, 1])])
def test_so_many_comparisons_are_computed_at_once(
    max_batch: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `max_batch` says, else 20,000, of which 2 are left here. Three peers compare one model each."""
    monkeypatch.setattr("pens.learning.learners._COMPARISONS_AT_ONCE", 2)
    them = learners(max_batch=max_batch)
    refs = [them.retain(them.first_model(PeerId(peer))) for peer in range(3)]
    for peer in range(3):
        them.record_comparison(PeerId(peer), Compare((refs[peer - 1],), 1))
    compute(them)
    assert [len(call) for call in engine_of(them).evaluations] == sizes


def test_runs_that_share_a_workshop_are_answered_in_the_order_of_what_they_ask_for() -> None:
    """Comparisons, training, validation. Calls of one kind are one call: comparisons of the same number of samples.
    The models are [1, 0, 0], [0, 1, 0] and [0, 0, 1]; each run is told the losses of those that it asked for."""
    executor, told = workshop_for(), list[tuple[str, list[float]]]()
    rows = executor.models.add(torch.eye(3))

    def asking(name: str, call: Call) -> Work:
        answer = yield call
        told.append((name, answer.loss.tolist()))

    one, two = Subset(1, [7]), Subset(5, [8, 9])
    works = [
        asking("validation", Evaluate("val", rows[:2], [0, 0])),
        asking("training", Train([rows], [1], [0], 3, Recipe("sgd", 0.1, 0.0, 0.0, 4))),
        asking("five samples", Evaluate("train", rows[1:], [0, 0], two)),
        asking("one sample", Evaluate("train", rows[:1], [1], one)),
        asking("all samples", Evaluate("train", rows[:1], [2])),
        asking("another validation", Evaluate("val", rows[1:], [1, 1])),
    ]
    executor.carry_out(works, [lambda: None] * len(works))
    assert told == [
        ("all samples", [1]),
        ("one sample", [2]),
        ("five samples", [1, 2]),
        ("training", [1]),
        ("validation", [2, 1]),
        ("another validation", [0, 2]),
    ]
    engine = executor.engine
    assert isinstance(engine, CountingEngine)
    assert engine.subsets == [None, one, two, None]


def test_updates_of_fewer_epochs_go_first_so_that_runs_stay_in_step() -> None:
    """Two runs in one executor. Both have an update of one epoch, and the first has one of eight: the short ones are
    trained, and validated, together."""
    executor = workshop_for(3)
    one, other = (learners(first_slot, executor=executor) for first_slot in (3, 0))
    update(one, 0, one.first_model(PeerId(0)), epochs=8)
    update(one, 1, one.first_model(PeerId(1)))
    update(other, 2, other.first_model(PeerId(2)))
    executor.carry_out([one.compute_batch(), other.compute_batch()], [lambda: None] * 2)
    engine = engine_of(one)
    assert [(t.slot, t.epochs) for t in engine.trainings] == [(4, 1), (2, 1), (3, 8)]


def test_early_stopping_keeps_the_best_and_serves_it() -> None:
    """Section 5.4, patience 1. The second of peers 5, 6 and 7 validates its own share. First training: 100 %, which
    does not count. Then 75 %, the best, and 67 %: it stops at the time of that update, whose name now stands for the
    best model. A later update is no work, and merges nothing. Before the first training untrained models are tested."""
    me, other = PeerId(6), PeerId(7)
    them = learners(peers=(5, 6, 7), stopping=StoppingSettings(window=1, patience=1))
    assert them.models.read(them.tested_rows()).tolist() == [[0, 0, 0]] * 3
    _, e1, e2 = first_trainings(them)
    second = update(them, me, e1, e2, may_stop=True, time=1.5)
    compute(them)
    assert not them.has_stopped(me)
    third = update(them, me, second, e2, e2, may_stop=True, time=2.5)
    fourth = update(them, me, third, e2, may_stop=True, time=3.5)
    compute(them)
    assert (them.has_stopped(me), them.has_stopped(other)) == (True, False)
    assert them.stop_times == {5: math.inf, 6: 2.5, 7: math.inf}
    assert [values(them, ref) for ref in (second, third, fourth)] == [[0, 1.5, 0.5]] * 3
    fifth = update(them, me, fourth, e2, may_stop=True, time=4.5)
    assert values(them, fifth) == [0, 1.5, 0.5]
    assert (them.num_computed(me), them.num_computed(other)) == (5, 1)
    assert them.merges[me] == {7: 3}
    assert them.num_updates == 3 + 2
    assert len(them.history) == 5
    assert them.models.read(them.tested_rows()).tolist() == [[1, 0, 0], [0, 1.5, 0.5], [0, 0, 1]]


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
    """The second trainings of peers 1 and 2 fail: their models stay, nothing counts as merged, and they are validated
    as they are. Peer 1's has a loss of 0 and an accuracy of 1, that of peer 2 a loss of 1."""
    them = learners()
    engine_of(them).fails = {(1, 1), (2, 1)}
    e0, e1, e2 = first_trainings(them)
    out, other = update(them, 2, e2, e0), update(them, 0, e0, e1)
    update(them, 1, e1, e0)
    compute(them)
    assert values(them, out) == [0, 0, 1]
    assert values(them, other) == [1.5, 0.5, 0]
    assert them.setbacks == {1: 1, 2: 1}
    assert not them.merges[PeerId(2)]
    assert them.merges[PeerId(0)] == {1: 1}
    accuracies = {(int(r.peer), r.version): r.val_accuracy for r in them.history}
    assert (accuracies[1, 2], accuracies[2, 2], accuracies[0, 2]) == (1.0, 1.0, 0.75)
    losses = {(int(r.peer), r.version): r.val_loss for r in them.history}
    assert losses[1, 2] == losses[1, 1] == 0.0
    assert losses[2, 2] == losses[2, 1] == 1.0  # the last number of its validation sample


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
    assert [peer for peer, *_ in them.state()[0]["for_step2"]] == [1, 2]  # who has begun needs it no more


def test_of_models_that_are_equally_good_the_first_is_the_best_of_step_one() -> None:
    """Peer 1's validation loss is 0 after its first training, e1, and after the second, 2 e1. Step 2 makes 2 e1."""
    them = learners(step2_model="best")
    _, e1, _ = first_trainings(them)
    second = update(them, 1, e1)
    compute(them)
    out = update(them, 1, second, may_stop=True, anew=True)
    compute(them)
    assert (values(them, second), values(them, out)) == ([0, 2, 0], [0, 2, 0])
    assert [r.val_loss for r in them.history if r.peer == 1] == [0, 0, 0]


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
        assert [them.num_asked(PeerId(0), time) for time in (3.4, 3.5)] == [0, 2]
        assert not them.tallies[PeerId(0)].sampled
        assert them.scored[PeerId(0)] == 0


def test_questions_of_one_name_are_answered_in_order() -> None:
    """Three questions of peer 1: two for losses, on its training sample, and between them one for its counts."""
    them = learners()
    own, _, _ = first_trainings(them)
    for query in (Losses((own,)), Counts(), Losses((own, own))):
        them.record_question(PeerId(1), ModelRef(PeerId(1), 1), Ask("x", query), 1.0)
    compute(them)
    them.record_question(PeerId(1), ModelRef(PeerId(1), 1), Ask("other", Losses((own, own, own))), 1.0)
    compute(them)
    assert len(them.answer(PeerId(1), "other")) == 3  # whatever was asked before it under another name
    first, counts, last = (them.answer(PeerId(1), "x") for _ in range(3))
    assert len(first) == 1
    assert counts is them.tallies[PeerId(1)]
    assert last == first * 2


def test_a_question_uses_no_model_up() -> None:
    them = learners()
    own, e1, _ = first_trainings(them)
    them.record_question(PeerId(0), own, Ask("who", Losses((e1,), own=True)), 1.0)
    them.release(e1)  # the peer drops it before it is computed
    compute(them)
    them.answer(PeerId(0), "who")
    assert not them.holds(e1)
    assert them.holds(own)


@pytest.mark.parametrize("remembers", [True, False])
def test_an_optimizer_goes_on_only_where_the_rules_say_so(remembers: bool) -> None:
    """Adam keeps two numbers for each of a model's: at first zeros, which all peers share. What the second peer trains
    is undone the second time, so that its optimizer remembers the first time alone; its third time succeeds."""
    them = learners(peers=(5, 6, 7), optimizer_remembers=remembers, recipe=Recipe("adam", 0.1, 0.0, 0.0, 4))
    assert them.models.num_alive == 3 + 2 * remembers
    engine_of(them).fails = {(1, 1)}
    refs = first_trainings(them)
    for _ in range(2):
        refs[:2] = [update(them, ref.owner, ref) for ref in refs[:2]]
        compute(them)
    steps = [[t.remembered for t in engine_of(them).trainings if t.slot == slot] for slot in range(3)]
    assert steps == ([[0, 1, 2], [0, 1, 1], [0]] if remembers else [[None] * 3, [None] * 3, [None]])


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
    for _ in range(2):  # the second time there is nothing left
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


def test_a_received_model_is_taken_in_once_and_kept_until_nobody_needs_it() -> None:
    """A node's peer is sent a model, [0, 0, 5], of a peer that has no place here: once to compare it, once to merge it.
    It is the same model, whatever comes under its name the second time."""
    them = learners(peers=(7, 8, 9))
    ref = ModelRef(PeerId(1 << 40), 3)
    alive = them.models.num_alive
    assert not them.holds(ref)
    them.take_in(ref, torch.tensor([0.0, 0.0, 5.0]))
    them.take_in(ref, torch.tensor([6.0, 6.0, 6.0]))
    assert them.holds(ref)
    assert (values(them, ref), them.models.num_alive) == ([0, 0, 5], alive + 1)
    them.record_comparison(PeerId(8), Compare((ref,), 1))
    compute(them)
    assert them.holds(ref)
    out = them.record_update(PeerId(8), them.first_model(PeerId(8)), Update((ref,), None, 1, may_stop=False), 1.0)
    compute(them)
    assert values(them, out) == [0, 1, 2.5]
    assert not them.holds(ref)


def test_each_update_has_a_key_of_its_own() -> None:
    """Batches are shuffled by seed, peer and version of the model."""
    keys = []
    for seed in (0, 1):
        them = learners(seed=seed)
        refs = first_trainings(them)
        update(them, 0, refs[0])
        compute(them)
        keys += [t.key for t in engine_of(them).trainings]
    assert len(set(keys)) == 8

# SPDX-License-Identifier: Apache-2.0
"""What updates make of models, by hand: merging, training, validating, stopping early, undoing."""

from __future__ import annotations

import json
import math

import pytest
import torch

from pens.engine.optimizers import Recipe
from pens.engine.stack import ModelStack
from pens.errors import SettingsError
from pens.learning.learner import LATELY_ALONE, Form
from pens.protocol.messages import PeerId, Phase
from pens.protocol.policies import EarlyStopping
from pens.settings.schema import Keep, StoppingSettings
from tests.learning.three import compute, engine_of, executor_for, first_trainings, learners, update, values


@pytest.mark.parametrize("first_slot", [0, 4])
def test_updates_merge_the_named_models_with_the_own_one_and_train_on_own_data(first_slot: int) -> None:
    """MERGE_SAVED_MODELS and TRAIN: (e0 + e1 + e2) / 3 + 2 e1. Where others' slots come first, as well."""
    them = learners(first_slot)
    refs = first_trainings(them)
    assert [values(them, ref) for ref in refs] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    out = update(them, 1, refs[1], refs[0], refs[2], epochs=2)
    compute(them)
    assert values(them, out) == [round(1 / 3, 5), round(7 / 3, 5), round(1 / 3, 5)]
    assert them.by_peer[PeerId(1)].merges == {0: 1, 2: 1}
    assert not them.by_peer[PeerId(0)].merges
    alone = update(them, 2, refs[2])
    compute(them)
    assert values(them, alone) == [0, 0, 2]


def test_updates_of_fewer_epochs_go_first_so_that_runs_stay_in_step() -> None:
    """Two runs in one executor. Both have an update of one epoch, and the first has one of eight: the short ones are
    trained, and validated, together."""
    executor = executor_for(3)
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
    assert not them.by_peer[me].has_stopped
    third = update(them, me, second, e2, e2, may_stop=True, time=2.5)
    fourth = update(them, me, third, e2, may_stop=True, time=3.5)
    compute(them)
    assert (them.by_peer[me].has_stopped, them.by_peer[other].has_stopped) == (True, False)
    assert {peer: one.stop_time for peer, one in them.by_peer.items()} == {5: math.inf, 6: 2.5, 7: math.inf}
    assert [values(them, ref) for ref in (second, third, fourth)] == [[0, 1.5, 0.5]] * 3
    fifth = update(them, me, fourth, e2, may_stop=True, time=4.5)
    assert values(them, fifth) == [0, 1.5, 0.5]
    assert (them.by_peer[me].num_computed, them.by_peer[other].num_computed) == (5, 1)
    assert them.by_peer[me].merges == {7: 3}
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


def test_the_form_that_did_better_lately_is_tested() -> None:
    """Not in the paper. Peer 0's average with e1 is [0.5, 0.5, 0], of which 50 % are its own; trained, it is
    [1.5, 0.5, 0], with 75 %: the fine-tuned form is ahead. Of its first training both forms have 100 %."""
    them = learners(stopping=StoppingSettings(window=1, patience=9, validated="either"))
    e0, e1, _ = first_trainings(them)
    update(them, 0, e0, e1, may_stop=True)
    compute(them)
    me = them.by_peer[PeerId(0)]
    assert {name: form.level for name, form in me.forms.items()} == {"trained": 0.75, "merged": 0.5}
    assert them.tested_forms() == ("trained", "trained", "trained")
    assert them.models.read([me.forms[name].best or 0 for name in me.forms]).tolist() == [[1.5, 0.5, 0], [0.5, 0.5, 0]]
    assert them.models.read(them.tested_rows()).tolist()[0] == [1.5, 0.5, 0]
    assert [r.val_accuracy for r in them.history if r.peer == 0] == [1.0, 0.75]
    me.forms["merged"].level = 0.8  # as if earlier averages had done better
    assert them.models.read(them.tested_rows()).tolist()[0] == [0.5, 0.5, 0]
    assert them.tested_forms()[0] == "merged"


def test_a_form_is_judged_by_its_latest_results() -> None:
    """The mean of its first twenty results, then each new one counts a twentieth. Without a number it is the worst."""
    form = Form(EarlyStopping("accuracy", 1, 9))
    for accuracy in (0.5, 0.7, 0.9):
        form.observe(0.0, accuracy)
    assert form.level == pytest.approx(0.7)
    for _ in range(17):
        form.observe(0.0, 0.7)
    form.observe(0.0, 0.9)
    assert form.level == pytest.approx(0.7 + 0.2 / 20)
    form.observe(0.0, math.nan)
    assert form.level == -math.inf
    form.observe(0.0, 0.6)
    assert form.level == 0.6


def test_a_trial_alone_is_judged_by_its_last_five_results_or_so() -> None:
    """It begins with the untrained model, so that its first results are low. The mean of the first five, 0.4, and then
    a fifth of the way to each new one: 0.4 + 0.5 / 5, and then 0.5 + 0.4 / 5. In a file it stays so."""
    form = Form(EarlyStopping("accuracy", 1, 9), lately=LATELY_ALONE)
    for accuracy in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9):
        form.observe(0.0, accuracy)
    assert form.level == pytest.approx(0.5)
    again = Form.restored(json.loads(json.dumps(form.state({}))), [], ModelStack(1, torch.device("cpu")))
    again.observe(0.0, 0.9)
    assert again.level == pytest.approx(0.58)


def test_what_a_peer_reaches_alone_is_kept_beside_gossip() -> None:
    """Not in the paper. Trained apart, [2, 0, 0] has 100 % of its own; gossip brings [2, 0.5, 0] with 80 %. The past
    ends where gossip begins, but not for what the peer reached alone, and that never stops gossip."""
    them = learners(stopping=StoppingSettings(window=1, patience=1))
    e0, e1, _ = first_trainings(them)
    apart = update(them, 0, e0, apart=True)
    out = update(them, 0, apart, e1, may_stop=True)
    compute(them)
    compute(them)
    me = them.by_peer[PeerId(0)]
    assert (me.forms["alone"].level, me.forms["trained"].level) == (1.0, 2 / 2.5)
    assert me.forms["alone"].lately == LATELY_ALONE
    assert values(them, out) == [2, 0.5, 0]
    assert me.preferred() == "alone"
    assert me.preferred(of_gossip=True) == "trained"
    assert not me.has_stopped
    assert them.tested_forms() == ("alone", "trained", "trained")
    assert them.models.read(them.tested_rows()).tolist()[0] == [2, 0, 0]
    assert [r.val_accuracy for r in them.history if r.peer == 0] == [1.0, 1.0, 0.8]


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
    assert not them.by_peer[PeerId(2)].merges
    assert them.by_peer[PeerId(0)].merges == {1: 1}
    accuracies = {(int(r.peer), r.version): r.val_accuracy for r in them.history}
    assert (accuracies[1, 2], accuracies[2, 2], accuracies[0, 2]) == (1.0, 1.0, 0.75)
    losses = {(int(r.peer), r.version): r.val_loss for r in them.history}
    assert losses[1, 2] == losses[1, 1] == 0.0
    assert losses[2, 2] == losses[2, 1] == 1.0  # the last number of its validation sample


@pytest.mark.parametrize(("step2_model", "expected"), [("first", [1, 0, 0]), ("best", [2, 0, 0])])
def test_step_two_may_begin_with_the_untrained_model_or_the_best_of_step_one(
    step2_model: Keep, expected: list[float]
) -> None:
    """Not in the paper. Peer 0's validation losses: e0 has 2; (e0 + e1 + e2) / 3 + e0 = [4/3, 1/3, 1/3] has 3: the
    first training gave the best model. Step 2 begins with it, or with the untrained one, and trains it once."""
    them = learners()
    e0, e1, e2 = first_trainings(them, keep=step2_model)
    second = update(them, 0, e0, e1, e2, keep=step2_model)
    compute(them)
    out = update(them, 0, second, may_stop=True, from_kept=True)
    compute(them)
    assert values(them, out) == expected
    assert [r.val_loss for r in them.history if r.peer == 0] == pytest.approx([2, 3, 2 * expected[0]])
    assert [peer for peer, one in them.by_peer.items() if one.kept] == [1, 2]  # who has begun needs it no more


def test_of_models_that_are_equally_good_the_first_is_the_best_of_step_one() -> None:
    """Peer 1's validation loss is 0 after its first training, e1, and after the second, 2 e1. Step 2 makes 2 e1."""
    them = learners()
    _, e1, _ = first_trainings(them, keep="best")
    second = update(them, 1, e1, keep="best")
    compute(them)
    out = update(them, 1, second, may_stop=True, from_kept=True)
    compute(them)
    assert (values(them, second), values(them, out)) == ([0, 2, 0], [0, 2, 0])
    assert [r.val_loss for r in them.history if r.peer == 1] == [0, 0, 0]


def test_a_model_is_kept_aside_until_an_update_says_so_no_more() -> None:
    """Peer 0 keeps e0, the model before its second update, over its third, and begins the fourth with it: 2 e0. As the
    fourth keeps it, too, so does the fifth. The sixth keeps nothing, and e0 lives in no row any more."""
    them = learners(stopping=StoppingSettings(window=1, patience=9, tested="last"))
    own, *_ = first_trainings(them)
    came_out = []
    for keep, from_kept in (("first", False), ("first", False), ("first", True), ("first", True), ("last", False)):
        own = update(them, 0, own, keep=keep, from_kept=from_kept)
        compute(them)
        came_out.append(values(them, own))
    assert came_out == [[2, 0, 0], [3, 0, 0], [2, 0, 0], [2, 0, 0], [3, 0, 0]]
    assert not them.by_peer[PeerId(0)].kept


def test_an_update_may_begin_with_the_first_model_while_the_best_is_kept() -> None:
    """Peer 0 keeps e0, its best model so far, and the untrained one before it. A trial begins with the untrained one,
    e0 again, and goes on to 2 e0; then it goes back to the best one: 2 e0. Both are let go then."""
    them = learners(stopping=StoppingSettings(window=1, patience=9, tested="last"))
    own, *_ = first_trainings(them, keep="best")
    came_out = []
    for begin in ({"keep": "first", "from_first": True}, {"keep": "first"}, {"from_kept": True}):
        own = update(them, 0, own, may_stop=False, **begin)
        compute(them)
        came_out.append(values(them, own))
    assert came_out == [[1, 0, 0], [2, 0, 0], [2, 0, 0]]
    assert not them.by_peer[PeerId(0)].kept


def test_where_no_update_kept_a_model_a_peer_begins_with_its_own() -> None:
    """As a peer that meets nobody in step 1, and did not train before: its own model is the untrained one."""
    them = learners()
    own, *_ = first_trainings(them)
    out = update(them, 0, own, from_kept=True)
    compute(them)
    assert values(them, out) == [2, 0, 0]


def test_a_peer_that_stops_keeps_nothing_aside() -> None:
    """Section 5.4, patience 1: the second update with early stopping is no better than the first, which is the best."""
    them = learners(stopping=StoppingSettings(window=1, patience=1))
    own, *_ = first_trainings(them)
    for _ in range(2):
        own = update(them, 0, own, may_stop=True, keep="first")
        compute(them)
    learner = them.by_peer[PeerId(0)]
    assert learner.has_stopped
    assert list(learner.held_rows()) == [learner.best]


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


def test_updates_that_train_different_parts_are_computed_phase_by_phase() -> None:
    """Three updates that are ready together: one of all parameters, and two of two phases each, in different order.
    Each phase is a training of its own, with a key of its own but for the first; epochs and work are the same."""
    them = learners()
    short, long = Phase(1, ("epochs",)), Phase(2)
    for peer, phases in enumerate(((), (short, long), (long, short))):
        update(them, peer, them.first_model(PeerId(peer)), epochs=3, phases=phases)
    compute(them)
    trainings = [(t.slot, t.epochs, t.before[t.slot]) for t in engine_of(them).trainings]
    assert trainings == [(0, 3, 0.0), (1, 1, 0.0), (1, 2, 1.0), (2, 2, 0.0), (2, 1, 2.0)]
    assert [values(them, learner.latest) for learner in them.by_peer.values()] == [[3, 0, 0], [0, 3, 0], [0, 0, 3]]
    assert [r.epochs for r in them.history] == [3, 3, 3]
    assert len({t.key for t in engine_of(them).trainings}) == 5


def test_a_run_goes_on_in_the_middle_of_phases_that_wait() -> None:
    them, again = learners(), learners()
    first = update(them, 0, them.first_model(PeerId(0)), epochs=3, phases=(Phase(1, ("epochs",)), Phase(2)))
    data, tensors = them.state()
    again.restore(json.loads(json.dumps(data)), tensors)
    for some in (them, again):
        compute(some)
        assert values(some, first) == [3, 0, 0]
        assert [t.epochs for t in engine_of(some).trainings] == [1, 2]


@pytest.mark.parametrize(
    ("phases", "epochs", "remembers", "told"),
    [
        ((Phase(1), Phase(1)), 3, False, "phases of 2 epochs and epochs = 3: leave out epochs"),
        ((Phase(2, ("epoch",)),), 2, False, "a phase for 'epoch', but no tensor's name .* did you mean 'epochs'"),
        ((Phase(2, (), ("epochs",)),), 2, False, "which trains nothing: give it at least one epoch, and parameters"),
        ((Phase(0), Phase(2)), 2, False, "which trains nothing"),
        ((Phase(2),), 2, True, "whose optimizers begin anew, but those of this method go on"),
    ],
)
def test_phases_that_cannot_be_are_refused(phases: tuple[Phase, ...], epochs: int, remembers: bool, told: str) -> None:
    them = learners(optimizer_remembers=remembers)
    with pytest.raises(SettingsError, match=told):
        update(them, 0, them.first_model(PeerId(0)), epochs=epochs, phases=phases)

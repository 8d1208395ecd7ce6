# SPDX-License-Identifier: Apache-2.0
"""Which models are not merged, nor compared, where they are not trusted; worked out by hand.

Peer 0's own model is e0 = [1, 0, 0] after its first training, which changed it by 1. The loss of a model is its product
with a sample's numbers.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pens.data.samples import Samples
from pens.engine.batches import SampleStack
from pens.engine.layout import Layout
from pens.learning.executor import Executor
from pens.learning.gate import shared
from pens.learning.learners import Learners
from pens.learning.trust import Mistrust, TrustRules
from pens.merging.rule import chosen
from pens.protocol.messages import Ask, Compare, ModelRef, PeerId, Verdicts
from pens.settings.tree import Settings
from tests.byhand import CountingEngine, sample
from tests.learning.three import CPU, LOSSES, compute, first_trainings, learners, update, values

ME = PeerId(0)


def wary(
    *validation: tuple[float, float, float], layout: Layout | None = None, **rules: Any
) -> tuple[Learners, list[ModelRef]]:
    """Three peers after their first training, of which peer 0 has these validation samples."""
    training = SampleStack([sample(LOSSES[p], p) for p in range(3)], CPU)
    own = Samples(np.array(validation, np.float32), np.zeros(len(validation), np.int64))
    held = SampleStack([own, *(sample(LOSSES[p][::-1], p) for p in (1, 2))], CPU)
    engine = CountingEngine(3)
    engine.network.stored = layout or engine.network.stored
    executor = Executor(engine, training, held, 3)
    them = learners(executor=executor, **{"trust": TrustRules(2.0), **rules})
    return them, first_trainings(them)


def with_heads(*validation: tuple[float, float, float], **rules: Any) -> tuple[Learners, list[ModelRef]]:
    """The same, where the third number of a model is its peer's head, which is neither merged nor sent."""
    layout = Layout.stored({"body": torch.Size([2]), "head": torch.Size([1])}, {})
    return wary(*validation, layout=layout, merging=replace(chosen(Settings()), own=("head",)), **rules)


def sent(them: Learners, owner: int, *numbers: float, version: int = 1) -> ModelRef:
    """A model of somebody else, which arrives."""
    ref = ModelRef(PeerId(owner), version)
    them.names.take_in(ref, torch.tensor(numbers, dtype=torch.float32))
    return ref


def merged(them: Learners, own: ModelRef, *models: ModelRef, **how: Any) -> list[float]:
    """What peer 0 makes of these: their average, and one epoch more."""
    out = update(them, 0, own, *models, **how)
    compute(them)
    return values(them, out)


def verdicts(them: Learners) -> list[tuple[int, str]]:
    """How models did since this was asked last."""
    return [(peer, verdict) for peer, verdict in them.by_peer[ME].mistrust.tell()]


def test_a_model_that_makes_a_merge_clearly_worse_is_left_out_and_the_rest_merged() -> None:
    """Own losses 1 and 1. The merge of all three: 11/3 and 12/3, worse by 2.8 ± 0.2. e1 loses 1 and 0, no more than the
    own model, and e2 9 and 11, which is 9 ± 1 more: e0 and e1 are merged."""
    them, (e0, e1, e2) = wary((1, 1, 9), (1, 0, 11))
    assert merged(them, e0, e1, e2) == [1.5, 0.5, 0]
    assert verdicts(them) == [(1, "good"), (2, "hurts")]
    mistrust = them.by_peer[ME].mistrust
    assert them.by_peer[ME].merges == {1: 1}
    assert mistrust.judged == 1 + 1 + 2 + 1  # its own, the merge, two models, the merge of the rest
    assert mistrust.kept_own == 0
    assert mistrust.agrees


def test_a_merge_that_is_not_worse_costs_two_models_and_is_taken_as_it_is() -> None:
    """e2 alone would be worse, but the merge is not: 7/3 and 2/3, which is 0.5 ± 0.8 more."""
    them, (e0, e1, e2) = wary((1, 1, 5), (1, 0, 1))
    assert merged(them, e0, e1, e2) == [round(1 / 3 + 1, 5), round(1 / 3, 5), round(1 / 3, 5)]
    assert verdicts(them) == [(1, "good"), (2, "good")]
    assert them.by_peer[ME].mistrust.judged == 2


def test_where_all_models_hurt_the_own_one_is_trained_on() -> None:
    them, (e0, e1, e2) = wary((0, 5, 5), (0, 6, 6))
    assert merged(them, e0, e1, e2) == [2, 0, 0]
    assert verdicts(them) == [(1, "hurts"), (2, "hurts")]
    assert them.by_peer[ME].mistrust.kept_own == 1
    assert not them.by_peer[ME].merges


@pytest.mark.parametrize(
    ("common", "out"), [(True, [2, 0, 0]), (False, [round(4 / 3, 5), round(1 / 3, 5), round(1 / 3, 5)])]
)
def test_a_merge_of_innocents_that_is_worse_is_taken_only_while_none_ever_worked(
    common: bool, out: list[float]
) -> None:
    """e1 loses 0 and 4, e2 4 and 0: 2 ± 2 more than the own model, which is no proof. Their merge loses 4/3 on both."""
    them, (e0, e1, e2) = wary((0, 0, 4), (0, 4, 0), common_start=common)
    assert merged(them, e0, e1, e2) == out
    assert verdicts(them) == ([] if common else [(1, "good"), (2, "good")])
    assert them.by_peer[ME].mistrust.kept_own == int(common)
    assert them.by_peer[ME].mistrust.agrees == common
    assert them.by_peer[ME].mistrust.judged == 1 + 1 + 2  # nobody is left out, so the same merge is not tried again


@pytest.mark.parametrize("heads", [(0, 0), (-0.5, 1), (1e30, -1e30)])
def test_where_a_part_is_merged_models_are_judged_merged_with_the_own_one(heads: tuple[float, float]) -> None:
    """Own losses 1 and 1. All three bodies: [2/3, 1/6], worse by 0.58 ± 0.08. Those of 0 and 7: [1/2, 1/2], worse by
    2.25 ± 0.25; of 0 and 8: [1, -1/4], better. By themselves, with heads of their own, they would do otherwise: 7 loses
    0.5 and 0.5 with the head -1/2, and 8 loses 7.5 and 9 with the head 1. Real peers get zeros in place of heads."""
    them, (e0, *_) = with_heads((1, 5, 9), (1, 6, 11))
    poor, good = sent(them, 7, 0, 1, heads[0]), sent(them, 8, 1, -0.5, heads[1])
    before = them.models.num_alive
    assert merged(them, e0, poor, good) == [2, -0.25, 0]
    assert verdicts(them) == [(7, "hurts"), (8, "good")]
    mistrust = them.by_peer[ME].mistrust
    assert mistrust.judged == 1 + 1 + 2 + 1  # its own, the merge, its merges with each, the merge of the rest
    assert mistrust.length == pytest.approx(math.hypot(2, 0.25))
    assert mistrust.change == 1
    assert them.models.num_alive == before + 1


@pytest.mark.parametrize(("begin", "verdict"), [(with_heads, "good"), (wary, "hurts")])
def test_a_model_that_weighs_nothing_is_to_blame_only_where_models_are_judged_by_themselves(
    begin: Any, verdict: str
) -> None:
    """9 alone loses 5.3 and 6.3. Of e0 and 9, e0 counts for all."""
    them, (e0, *_) = begin((1, 5, 9), (1, 6, 11))
    poor, unheeded = sent(them, 7, 0, 1, 0), sent(them, 9, 0.3, 1, 0)
    assert merged(them, e0, poor, unheeded, weights=(0.5, 0.5, 0.0)) == [2, 0, 0]
    assert verdicts(them) == [(7, "hurts"), (9, verdict)]


@pytest.mark.parametrize("head", [0, 1e30, math.inf])
def test_where_a_part_is_merged_copies_are_told_by_that_part(head: float) -> None:
    them, (e0, e1, _) = with_heads((1, 0, 0), (1, 0, 0))
    copies = sent(them, 7, -1, 0, head), sent(them, 8, 0, 1.05, -head), sent(them, 9, 0, 11, head)
    assert merged(them, e0, e1, *copies) == [1.5, 0.5, 0]
    assert verdicts(them) == [(1, "good"), (7, "echo"), (8, "twin"), (9, "absurd")]


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ((1, 0, 0), "echo"),
        ((3, 0, 0), "echo"),
        ((-1, 0, 0), "echo"),
        ((1, 0.09, 0), "echo"),  # nearer than a tenth of what training changed
        ((1, 0.11, 0), "good"),
        ((0, 0, 1e30), "absurd"),
        ((0, 0, 10.1), "absurd"),
        ((0, 0, 9.9), "good"),
        ((0, 0, 0.09), "absurd"),
        ((0, 0, 0.11), "good"),
    ],
)
def test_copies_of_the_own_model_and_absurd_ones_count_for_nothing(numbers: Any, verdict: str) -> None:
    """Neither in a merge nor in a comparison, where the other model is the best for want of another."""
    them, (e0, e1, _) = wary((1, 0, 0), (1, 0, 0))
    odd = sent(them, 7, *numbers)
    count = 3 if verdict == "good" else 2
    assert merged(them, e0, e1, odd)[1] == round((1 + (numbers[1] if count == 3 else 0)) / count, 5)
    assert verdicts(them) == [(1, "good"), (7, verdict)]

    them, (e0, e1, _) = wary((1, 0, 0), (1, 0, 0))
    odd = sent(them, 7, *numbers)
    them.record_comparison(ME, e0, Compare((odd, them.names.retain(e1)), 1))
    compute(them)
    tally = them.by_peer[ME].tally
    assert dict(tally.sampled) == ({1: 1, 7: 1} if verdict == "good" else {1: 1})
    assert verdicts(them) == ([] if verdict == "good" else [(7, verdict)])


def test_a_comparison_of_nothing_but_copies_is_not_counted() -> None:
    them, (e0, *_) = wary((1, 0, 0), (1, 0, 0))
    them.record_comparison(ME, e0, Compare((sent(them, 7, 1, 0, 0),), 1))
    compute(them)
    tally = them.by_peer[ME].tally
    assert (tally.samplings, dict(tally.sampled), them.by_peer[ME].counted) == (0, {}, 1)
    assert not them.names.holds(ModelRef(PeerId(7), 1))


def test_of_two_copies_of_a_third_model_the_first_counts_and_nobody_is_blamed() -> None:
    them, (e0, e1, _) = wary((1, 0, 0), (1, 0, 0))
    assert merged(them, e0, e1, sent(them, 7, 0, 1.05, 0), sent(them, 8, 0, 0, 1)) == [
        round(4 / 3, 5),
        *[round(1 / 3, 5)] * 2,
    ]
    assert verdicts(them) == [(1, "good"), (7, "twin"), (8, "good")]


def test_whoever_sends_the_same_model_again_is_no_echo_of_itself() -> None:
    """A peer that stopped early serves its best model under ever new versions."""
    them, (e0, e1, _) = wary((1, 0, 0), (1, 0, 0))
    assert merged(them, e0, e1, sent(them, 1, 0, 1, 0, version=9)) == [round(4 / 3, 5), round(2 / 3, 5), 0]
    assert verdicts(them) == [(1, "good"), (1, "good")]


def test_the_untrained_model_that_all_begin_with_is_nobodys() -> None:
    """Peers that merge before they train: all are equal."""
    start = torch.ones(3, 3)
    them = learners(first_models=start, trust=TrustRules(2.0), common_start=True)
    models = [them.first_model(PeerId(p)) for p in range(3)]
    assert merged(them, models[0], models[1])[1:] == [1, 1]
    assert them.by_peer[ME].mistrust.counts == {"good": 1}


def test_what_was_sent_is_what_is_recognised() -> None:
    """The third of own models that was sent comes back: [1, 0, 0], [1.5, .5, 0], and [1.75, .75, 0]."""
    them, (e0, e1, _) = wary((1, 0, 0), (1, 0, 0))
    second = update(them, 0, e0, e1)
    compute(them)
    update(them, 0, second, them.names.retain(e1))
    compute(them)
    assert len(them.by_peer[ME].mistrust.sent) == 3
    third = ModelRef(ME, 3)
    assert values(them, third) == [1.75, 0.75, 0]
    verdicts(them)
    merged(them, third, sent(them, 7, 3.5, 1.5, 0), sent(them, 8, 1.5, 0.5, 0), sent(them, 9, 1.5, 1.5, 0))
    assert verdicts(them) == [(7, "echo"), (8, "echo"), (9, "good")]


def test_weights_are_shared_among_those_that_are_left() -> None:
    assert shared((0.5, 0.25, 0.25), [1]) == pytest.approx((2 / 3, 1 / 3))
    assert shared((0.0, 1.0), []) == (1.0,)
    assert shared((0.0, 0.0, 1.0), [0]) == (1.0, 0.0)
    them, (e0, e1, e2) = wary((1, 1, 9), (1, 0, 11))
    assert merged(them, e0, e1, e2, weights=(0.5, 0.25, 0.25)) == [round(2 / 3 + 1, 5), round(1 / 3, 5), 0]


def test_verdicts_are_known_when_the_update_is_computed_and_told_once() -> None:
    them, (e0, e1, e2) = wary((1, 1, 9), (1, 0, 11))
    them.record_question(ME, e0, Ask("how", Verdicts(), when="updated"), 0.0)
    update(them, 0, e0, e1, e2)
    assert not them.is_answered(ME)
    compute(them)
    assert them.is_answered(ME)
    assert them.answer(ME, "how") == ((1, "good"), (2, "hurts"))
    assert verdicts(them) == []


def test_where_models_are_trusted_nothing_is_judged_and_nothing_remembered() -> None:
    them, (e0, e1, e2) = wary((0, 5, 5), (0, 6, 6), trust=None)
    assert merged(them, e0, e1, e2) == [round(4 / 3, 5), *[round(1 / 3, 5)] * 2]
    assert them.by_peer[ME].mistrust == Mistrust()
    assert "mistrust" not in them.state()[0]["learners"][0]


def test_what_is_remembered_comes_back() -> None:
    them, (e0, e1, e2) = wary((1, 1, 9), (1, 0, 11))
    merged(them, e0, e1, e2)
    told = them.by_peer[ME].mistrust
    again = Mistrust.restored(json.loads(json.dumps(told.state())))
    assert again.state() == told.state()
    assert (again.verdicts, again.counts, again.agrees) == (told.verdicts, told.counts, told.agrees)

# SPDX-License-Identifier: Apache-2.0
"""What is known of one peer: as plain data and back, and the rows that it holds."""

from __future__ import annotations

import json
from collections import Counter

import torch

from pens.engine.stack import ModelStack
from pens.learning.executor import MomentRows
from pens.learning.learner import Answer, Compared, Form, Kept, Learner
from pens.protocol.messages import ModelRef, PeerId
from pens.protocol.policies import EarlyStopping, Tally

ME = PeerId(7)


def learner_with_everything(stack: ModelStack) -> Learner:
    """It holds its best model, one kept aside, the first one, and two rows of its optimizer, one of them the best."""
    best, kept, first, moment = stack.add(torch.arange(4.0)[:, None])
    form = Form(EarlyStopping("accuracy", 2, 5, [0.5, 0.25], 0.5, 1), best, 0.25, 3)
    one = Learner(3, ModelRef(ME, 4), {"trained": form}, recorded=6, scorings=9)
    one.may_stop, one.stop_time, one.scored = True, 2.5, 8
    one.kept, one.moments = Kept(kept, first, 1.5), MomentRows([moment, stack.retain(best)], 12)
    one.tally.add([PeerId(1), PeerId(2)], [PeerId(2)])
    one.merges = Counter({PeerId(2): 3})
    one.answers = [Answer("who", 9, (0.5, 1.5)), Answer("counts", 0)]
    one.asked = [(1.5, 2), (2.5, 4)]
    one.count(1, None)
    one.count(3, Compared((PeerId(1), PeerId(4)), (PeerId(4),), (0.5, -0.25)))  # waits for number 2
    return one


def test_a_learner_on_disk_and_what_it_is_again() -> None:
    """Its rows lie elsewhere then. What the learner held that takes over is released, and nothing else is retained."""
    stack = ModelStack(1, torch.device("cpu"))
    one = learner_with_everything(stack)
    rows = list(dict.fromkeys(one.held_rows()))
    state = json.loads(json.dumps(one.state({row: place for place, row in enumerate(rows)})))
    later = ModelStack(1, torch.device("cpu"))
    again = Learner(3, ModelRef(ME, 0), {"trained": Form(EarlyStopping("loss", 1, 1), later.add(torch.zeros(2, 1))[0])})
    new = later.add(stack.read(rows))
    again.restore(state, new, later)
    for row in new:
        later.release(row)
    assert later.num_alive == 1 + 4
    assert again.latest == ModelRef(ME, 4)
    assert (again.counted, again.uncounted) == (one.counted, one.uncounted) == (1, {3: one.uncounted[3]})
    assert again.state({row: place for place, row in enumerate(new)}) == one.state(
        {row: place for place, row in enumerate(rows)}
    )
    assert later.read(list(again.held_rows())).tolist() == [[0], [1], [2], [3], [0]]
    again.let_go(later)
    assert later.num_alive == 1
    assert not list(again.held_rows())


def test_a_learner_that_holds_nothing_on_disk_and_what_it_is_again() -> None:
    stack = ModelStack(1, torch.device("cpu"))
    state = Learner(0, ModelRef(ME, 0), {"trained": Form(EarlyStopping("loss", 1, 1))}).state({})
    again = learner_with_everything(stack)
    again.restore(state, [], stack)
    assert again.state({}) == state
    assert stack.num_alive == 0


def test_what_was_asked_for_until_a_time() -> None:
    one = learner_with_everything(ModelStack(1, torch.device("cpu")))
    assert [one.num_asked(time) for time in (1.4, 1.5, 2.4, 2.5)] == [0, 2, 2, 6]


def test_early_stopping_applies_from_a_moment_on() -> None:
    """A peer whose validation got no better before that has not stopped, and the past does not count."""
    one = Learner(0, ModelRef(ME, 0), {"trained": Form(EarlyStopping("loss", 1, 1))})
    for loss in (1.0, 2.0):
        one.forms["trained"].observe(loss, 0.0)
    assert not one.has_stopped
    one.begin_stopping(lambda: EarlyStopping("loss", 1, 1))
    assert not one.has_stopped
    for loss in (3.0, 4.0):
        one.forms["trained"].observe(loss, 0.0)
    assert one.has_stopped


def test_comparisons_are_counted_in_the_order_of_their_numbers_whichever_is_computed_first() -> None:
    """The first sampling says that 2 lies 1 above 1, so that the level of the second is known from 2: 3 lies 2 above
    it. Counted the other way round, 2 would lie elsewhere. The question between them counts for nothing."""
    first = Compared((PeerId(1), PeerId(2)), (PeerId(1),), (0.0, 1.0))
    second = Compared((PeerId(2), PeerId(3)), (PeerId(2),), (4.0, 6.0))
    stack = ModelStack(1, torch.device("cpu"))
    in_order, late = (learner_with_everything(stack) for _ in range(2))
    for one in (in_order, late):
        one.tally, one.counted, one.uncounted = Tally(), 0, {}
    for number, done in ((1, first), (2, None), (3, second)):
        in_order.count(number, done)
    late.count(3, second)
    assert late.tally == Tally()
    late.count(2, None)
    late.count(1, first)
    assert late.tally == in_order.tally
    assert [late.tally.height(PeerId(peer)) for peer in (1, 2, 3)] == [-0.5, 0.5, 2.5]
    assert (late.counted, late.uncounted) == (3, {})

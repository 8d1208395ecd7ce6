# SPDX-License-Identifier: Apache-2.0
"""Models live as long as somebody retains their names."""

from __future__ import annotations

import pytest
import torch

from pens.protocol.messages import Compare, ModelRef, PeerId, Update
from tests.learning.three import compute, first_trainings, learners, update, values


def test_a_model_lives_as_long_as_somebody_needs_it() -> None:
    """The peer that has it, an update that reads it, and whoever retained it."""
    them = learners()
    refs = first_trainings(them)
    for peer in range(3):
        them.names.release(ModelRef(PeerId(peer), 0))
    alive = them.models.num_alive
    out = update(them, 0, refs[0], refs[1])
    them.names.release(refs[1])
    compute(them)
    assert values(them, out) == [1.5, 0.5, 0]
    assert refs[1] not in them.names.rows
    assert refs[0] in them.names.rows
    them.names.release(refs[0])
    assert refs[0] not in them.names.rows
    for _ in range(2):  # the second time there is nothing left
        them.let_go()
        assert them.models.num_alive == 0
    assert alive == 3  # the last and the best model of each peer are one


@pytest.mark.parametrize(("wire", "rounded"), [("fp32", 0), ("int8", 1)])
def test_a_model_that_travels_as_it_is_is_held_once(wire: str, rounded: int) -> None:
    """A merge makes one model; where models are rounded on their way, the received one is held beside the sender's."""
    them = learners(wire=wire)
    refs = first_trainings(them)
    before = them.models.num_alive
    out = update(them, 0, refs[0], refs[1])
    compute(them)
    assert them.models.num_alive == before + 1 + rounded
    assert values(them, out) == [1.5, 0.5, 0]


def test_a_received_model_is_taken_in_once_and_kept_until_nobody_needs_it() -> None:
    """A node's peer is sent a model, [0, 0, 5], of a peer that has no place here: once to compare it, once to merge it.
    It is the same model, whatever comes under its name the second time."""
    them = learners(peers=(7, 8, 9))
    ref = ModelRef(PeerId(1 << 40), 3)
    alive = them.models.num_alive
    assert not them.names.holds(ref)
    them.names.take_in(ref, torch.tensor([0.0, 0.0, 5.0]))
    them.names.take_in(ref, torch.tensor([6.0, 6.0, 6.0]))
    assert them.names.holds(ref)
    assert (values(them, ref), them.models.num_alive) == ([0, 0, 5], alive + 1)
    them.record_comparison(PeerId(8), them.first_model(PeerId(8)), Compare((ref,), 1))
    compute(them)
    assert them.names.holds(ref)
    out = them.record_update(PeerId(8), them.first_model(PeerId(8)), Update((ref,), None, 1, may_stop=False), 1.0)
    compute(them)
    assert values(them, out) == [0, 1, 2.5]
    assert not them.names.holds(ref)

# SPDX-License-Identifier: Apache-2.0
"""What drivers record, and what they are told."""

from __future__ import annotations

import pytest

from pens.errors import SettingsError
from pens.protocol.messages import Ask, Counts, Losses, ModelRef, PeerId
from tests.learning.three import compute, first_trainings, learners, update


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
    assert counts is them.by_peer[PeerId(1)].tally
    assert last == first * 2


def test_a_question_uses_no_model_up() -> None:
    them = learners()
    own, e1, _ = first_trainings(them)
    them.record_question(PeerId(0), own, Ask("who", Losses((e1,), own=True)), 1.0)
    them.names.release(e1)  # the peer drops it before it is computed
    compute(them)
    them.answer(PeerId(0), "who")
    assert not them.names.holds(e1)
    assert them.names.holds(own)

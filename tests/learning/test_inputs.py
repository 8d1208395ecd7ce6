# SPDX-License-Identifier: Apache-2.0
"""What updates merge, by hand."""

from __future__ import annotations

import pytest

from pens.merging.mean import Mean
from pens.merging.rule import Merge, Merging
from pens.protocol.messages import PeerId
from tests.learning.three import compute, first_trainings, learners, update, values


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
    some = update(them, 2, refs[2], refs[0], segment_weights=(("epochs", (0.75, 0.25)),))
    alone = update(them, 0, refs[0], weights=(1.0,))
    compute(them)
    assert [values(them, ref) for ref in (out, some, alone)] == [[0.5, 1.125, 0.375], [0.25, 0, 1.75], [2, 0, 0]]
    assert them.by_peer[PeerId(1)].merges == {0: 1, 2: 1}


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

# SPDX-License-Identifier: Apache-2.0
"""What behaviours of others say and weigh becomes plain data, as a real network brings it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pens
from pens.errors import SettingsError
from pens.parts import METHODS
from pens.protocol.messages import Distances, ModelRef, PeerId, Pulled, Start, Update, Updated
from pens.protocol.peer import Peer
from pens.settings.tree import Settings
from tests.conftest import TINY
from tests.methods.specs import spec_of


def gossiping(behaviour: Any) -> Peer:
    """Peer 0 of four, in its first round."""
    usual = spec_of("random", Settings().replace({**TINY, "peers": 4, "n_peers": 2})).plan(9, 5, num_peers=4)
    plan = replace(usual, behaviours={"gossiping": behaviour}, notes=True)
    peer = Peer(PeerId(0), 1, plan, tuple(map(PeerId, (1, 2, 3))))
    peer.handle(Start())
    peer.handle(Updated())
    return peer


def came() -> tuple[ModelRef, ...]:
    return ModelRef(PeerId(1), 1), ModelRef(PeerId(2), 1)


class Noting(pens.Gossiping):
    """Says the same dict each time, and changes it later."""

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self.said: dict[str, Any] = {"n": (1, {"a": (2,)})}

    def note(self) -> pens.Note:
        return self.said


def test_a_note_is_a_copy_as_json_brings_it() -> None:
    peer = gossiping(Noting)
    first, second = peer.note(), peer.note()
    peer.behaviour.said["n"] = 9  # type: ignore[attr-defined]
    first["n"].append(3)
    assert (first, second, peer.note()) == ({"n": [1, {"a": [2]}, 3]}, {"n": [1, {"a": [2]}]}, {"n": 9})


class Weighing(pens.Gossiping):
    """Weighs as a test says."""

    weights: Any = None
    heads: Any = ()

    def use(self, models: tuple[ModelRef, ...]) -> list[pens.Action]:
        return [self.peer.update(models, may_stop=True, weights=self.weights, segment_weights=self.heads)]


THIRDS = [1 / 3] * 3


@pytest.mark.parametrize("weights", [THIRDS, np.array(THIRDS), [np.float32(third) for third in THIRDS]], ids=type)
def test_weights_of_any_type_become_plain_numbers(weights: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Weighing, "weights", weights)
    monkeypatch.setattr(Weighing, "heads", [["head", weights]])
    (update,) = gossiping(Weighing).handle(Pulled(came()))
    assert isinstance(update, Update)
    assert update.weights == pytest.approx(THIRDS)
    ((prefix, heads),) = update.segment_weights
    assert (prefix, heads) == ("head", update.weights)
    assert json.loads(json.dumps(update.weights)) == list(update.weights or ())


@pytest.mark.parametrize("weights", ["abc", 3, ["a"], {"own": 1}])
def test_what_are_no_weights_is_told_by_the_function_that_others_wrote(
    weights: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Weighing, "weights", weights)
    with pytest.raises(
        SettingsError, match=r"^behaviour Weighing: its use returned .*: weights are a tuple of numbers"
    ):
        gossiping(Weighing).handle(Pulled(came()))


@pytest.mark.parametrize(
    "phases",
    [[pens.Phase(1)], ((1, ("head",)),), (pens.Phase(1.0),), (pens.Phase(1, "head"),), (pens.Phase(1, (2,)),)],  # type: ignore[arg-type]
)
def test_what_are_no_phases_is_told_by_the_function_that_others_wrote(phases: Any) -> None:
    class Training(pens.Gossiping):
        def use(self, models: tuple[ModelRef, ...]) -> list[pens.Action]:
            return [self.peer.update(models, may_stop=True, epochs=1, phases=phases)]

    with pytest.raises(
        SettingsError, match=r"^behaviour Training: its use returned .*: phases are a tuple of pens\.Phase"
    ):
        gossiping(Training).handle(Pulled(came()))


def test_epochs_of_phases_are_added_up_and_a_plan_may_say_them() -> None:
    class Training(pens.Gossiping):
        def use(self, models: tuple[ModelRef, ...]) -> list[pens.Action]:
            return [self.peer.update(models, may_stop=True, phases=(pens.Phase(2, ("auto",)), pens.Phase(5)))]

    (update,) = gossiping(Training).handle(Pulled(came()))
    assert isinstance(update, Update)
    assert update.epochs == 7
    peer = gossiping(pens.Gossiping)
    peer.plan = replace(peer.plan, phases=(pens.Phase(1), pens.Phase(3)))
    assert peer.update((), may_stop=True) == Update((), None, 4, may_stop=True, phases=(pens.Phase(1), pens.Phase(3)))
    assert peer.update((), may_stop=True, epochs=0) == Update((), None, 0, may_stop=True)


def test_types_are_told_with_their_article() -> None:
    class Counting(pens.Gossiping):
        def drawn(self) -> Any:
            return 1

    with pytest.raises(SettingsError, match="its drawn returned 1, an int: return a list of peers"):
        gossiping(Counting).behaviour.drawn()  # type: ignore[attr-defined]


def test_a_weight_that_is_not_a_number_is_told_so() -> None:
    from pens.merging.mean import Mean
    from pens.merging.rule import Merging, check_said

    with pytest.raises(SettingsError, match="says a weight that is nan: say finite numbers"):
        check_said(Merging(Mean()), "the update", 1, (math.nan, 1.0), ())


def test_a_behaviour_is_no_method() -> None:
    with pytest.raises(SettingsError, match=r"is a behaviour: name the pens\.Method whose plan has it"):
        METHODS.find("tests.protocol.test_guarded_values:Noting")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (Distances((), "l2"), "it asks for the distances of no model: ask only where there are models"),
        (Distances((ModelRef(PeerId(3), 1),), "l2"), "the peer does not hold it: it never came"),
        (Distances((ModelRef(PeerId(1), 1),), "cosine"), "`by` has to be one of cosine-weights, cosine-update, l2"),  # type: ignore[arg-type]
    ],
)
def test_a_question_for_distances_is_checked(query: Distances, reason: str) -> None:
    class Measuring(pens.Gossiping):
        def use(self, models: tuple[ModelRef, ...]) -> list[pens.Action]:
            return [pens.Ask("how far", query)]

        def on_answered(self, name: str, answer: Any) -> list[pens.Action]:
            return []

    with pytest.raises(SettingsError, match=f"its use returned .*: {reason}"):
        gossiping(Measuring).handle(Pulled(came()))

# SPDX-License-Identifier: Apache-2.0
"""Behaviours of others are watched: whom they draw, what `restore` brings back, what a phase leaves behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pens.errors import SettingsError
from pens.methods.method import Method
from pens.methods.spec import RunSpec
from pens.protocol.gossiping import Gossiping
from pens.protocol.messages import (
    Action,
    Answered,
    Ask,
    Blend,
    Drop,
    Finish,
    Losses,
    ModelRef,
    PeerId,
    Pulled,
    Received,
    Start,
    Update,
    Updated,
    Wake,
)
from pens.protocol.peer import Peer
from pens.settings.tree import Settings

CAME = tuple(ModelRef(PeerId(owner), 1) for owner in (1, 2))


class Asking(Gossiping):
    """Keeps what it received until it is answered."""

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self.received: tuple[ModelRef, ...] = ()
        self.gains: dict[int, float] = {}

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        self.received = models
        return [Ask("fit", Losses(models))]

    def on_answered(self, name: str, answer: Any) -> list[Action]:
        self.gains = {model.owner: loss for model, loss in zip(self.received, answer, strict=True)}
        return [self.peer.update(self.received[:1], may_stop=True)]

    def state(self) -> dict[str, Any]:
        return {"received": list(self.received), "gains": list(self.gains.items())}

    def restore(self, state: dict[str, Any]) -> None:
        self.received = tuple(ModelRef(*model) for model in state["received"])
        self.gains = dict(state["gains"])


class LeavesOut(Asking):
    def state(self) -> dict[str, Any]:
        return {"gains": list(self.gains.items())}

    def restore(self, state: dict[str, Any]) -> None:
        self.gains = dict(state["gains"])


class FindsAnew(LeavesOut):
    """What it leaves out is its own business."""

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        self._received = models
        return super().use(models) if not models else [Ask("fit", Losses(models))]

    def on_answered(self, name: str, answer: Any) -> list[Action]:
        return [self.peer.update(self._received, may_stop=True)]


class Swaps(Asking):
    def restore(self, state: dict[str, Any]) -> None:
        self.received = tuple(ModelRef(PeerId(model[1]), model[0]) for model in state["received"])


class Fails(Asking):
    def restore(self, state: dict[str, Any]) -> None:
        self.received = state["recieved"]


class NumberKeys(Asking):
    def state(self) -> dict[str, Any]:
        return {"received": list(self.received), "gains": self.gains}

    def restore(self, state: dict[str, Any]) -> None:
        self.received = tuple(ModelRef(*model) for model in state["received"])


class BeginsAnew(Asking):
    begun = False

    def begin(self) -> list[Action]:
        self.begun = True
        return super().begin()


class Late(Gossiping):
    """Its state is empty until the second round, and what `restore` makes of it is wrong."""

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self.seen: set[int] = set()

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        self.seen |= {model.owner for model in models if self.peer.updates}
        return super().use(models)

    def state(self) -> dict[str, Any]:
        return {"seen": list(self.seen)}

    def restore(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


class Misspelt(Asking):
    on_answered = Gossiping.on_answered


class Plain(Gossiping):
    """Others wrote it, and nothing in it."""


class Remembers(Gossiping):
    """It asks nothing, and remembers whose models it merged."""

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self.seen: list[int] = []

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        self.seen += [model.owner for model in models]
        return super().use(models)


class CountsUpdates(Gossiping):
    count = 0

    def on_updated(self) -> list[Action]:
        self.count += 1
        return super().on_updated()


class Draws(Gossiping):
    """So many random numbers when it is made."""

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self.first = self.peer.number()

    def state(self) -> dict[str, Any]:
        return {"first": self.first}

    def restore(self, state: dict[str, Any]) -> None:
        self.first = state["first"]


class Twice(Gossiping):
    def drawn(self) -> list[PeerId]:
        return [self.peer.reachable[0]] * 2


def peer(behaviour: type[Gossiping], tries_state: bool = True, **values: object) -> Peer:
    settings = Settings().replace({"rounds": 3, "n_peers": 2, **values})
    plan = RunSpec.of(Method(), settings, 0).plan(9, 5, 4)
    plan = replace(plan, behaviours={"gossiping": behaviour})
    return Peer(PeerId(0), 1, plan, tuple(map(PeerId, (1, 2, 3))), tries_state)


def live(it: Peer) -> list[Action]:
    """Until the first update of gossip is complete."""
    it.handle(Start())
    it.handle(Updated())
    it.handle(Wake())
    it.handle(Pulled(CAME))
    it.handle(Answered("fit", (0.5, 0.25)))
    return it.handle(Updated())


def test_what_comes_back_from_its_state_is_let_be() -> None:
    for behaviour in (Asking, FindsAnew):
        live(peer(behaviour))


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (LeavesOut, r"LeavesOut: self\.received is \(ModelRef.*, but is \(\) after `restore` .* let `state` return it"),
        (Swaps, r"Swaps: its state was .*, but is .* after `restore` into a new one: `restore` has to bring back all"),
        (Fails, "Fails: its restore failed: KeyError: 'recieved'"),
        (NumberKeys, "NumberKeys: its state returned 1, an int, within what it says: use plain data"),
        (Remembers, r"Remembers: self\.seen is \[1, 2\], but is \[\] after `restore`"),
        (CountsUpdates, r"CountsUpdates: self\.count is 1, but is not there after `restore`"),
        (BeginsAnew, r"BeginsAnew: self\.begun is True, but is not there after `restore`"),
    ],
)
def test_what_does_not_come_back_is_refused_early_and_for_one_peer(behaviour: type[Gossiping], reason: str) -> None:
    live(peer(behaviour, tries_state=False))
    it = peer(behaviour)
    with pytest.raises(SettingsError, match=f"behaviour {reason}"):
        live(it)


def test_trying_out_the_state_changes_nothing() -> None:
    tried, other = peer(Draws), peer(Draws, tries_state=False)
    for it in (tried, other):
        it.handle(Start())
        it.handle(Updated())
    assert tried.state() == other.state()
    assert tried.handle(Wake()) == other.handle(Wake())


def test_nobody_is_drawn_twice() -> None:
    it = peer(Twice)
    it.handle(Start())
    it.handle(Updated())
    with pytest.raises(SettingsError, match=r"its drawn returned \[1, 1\], a list: a peer stands in it twice"):
        it.handle(Wake())


def test_models_that_a_phase_leaves_behind_are_dropped_when_it_ends() -> None:
    """The second model is neither merged nor dropped."""
    ending = peer(Asking, rounds=1)
    assert Drop(CAME[1], "unused") in live(ending)
    assert ending.phase == "finished"
    assert not [action for action in live(peer(Asking)) if isinstance(action, Drop)]


def test_a_state_that_is_empty_at_first_is_tried_out_again_later() -> None:
    it = peer(Late)
    for event in (Start(), Updated(), *(Wake(), Pulled(CAME), Updated()) * 2):
        it.handle(event)
    with pytest.raises(SettingsError, match=r"Late: self\.seen is \{1, 2\}, but is \[1, 2\] after `restore`"):
        it.handle(Wake())  # the eighth event of gossip


def test_a_question_that_nothing_hears_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"its use returned Ask.* nothing hears its answer: override on_answered"):
        live(peer(Misspelt))


@pytest.mark.parametrize("tries_state", [False, True])
def test_models_that_are_merged_after_an_update_are_not_dropped_as_well(tries_state: bool) -> None:
    """They came by push while the peer was busy, and `on_updated`, which is ours, merged them."""
    it = peer(Plain, tries_state, schedule="async", rounds=2)
    it.handle(Start())
    done: list[Action] = it.handle(Updated())
    for version in (1, 2):  # the first two are merged at once, the other two after that update
        for owner in (1, 2):
            done += it.handle(Received(ModelRef(PeerId(owner), version), answer=False))
    done += it.handle(Updated())
    assert [action.models for action in done if isinstance(action, Update) and action.models] == [
        CAME,
        tuple(ModelRef(PeerId(owner), 2) for owner in (1, 2)),
    ]
    assert it.handle(Updated()) == [Finish()]


class Making(Gossiping):
    """Averages what came beside its own model, asks how good that is, and trains from it."""

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        blends = self.peer.blend("mean", models, [np.float32(0.5), 0.25, 0.25])  # type: ignore[arg-type]
        return [*blends, Ask("fit", Losses((self.peer.made["mean"],)))]

    def on_answered(self, name: str, answer: Any) -> list[Action]:
        return [self.peer.update((self.peer.made.pop("mean"),), may_stop=True, weights=(0.0, 1.0))]


class MakesByHand(Making):
    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        return [Blend(ModelRef(self.peer.me, -9), models, (1.0, 0.0, 0.0)), *super().use(models)]


class MakesOfOthers(Making):
    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        return [*self.peer.blend("odd", (ModelRef(PeerId(9), 1),), (0.5, 0.5)), *super().use(models)]


class Keeps(Making):
    """Trains from the first model that came, and keeps what it made."""

    def on_answered(self, name: str, answer: Any) -> list[Action]:
        return [self.peer.update((CAME[0],), may_stop=True)]


class UsesTwice(Making):
    def on_answered(self, name: str, answer: Any) -> list[Action]:
        made = self.peer.made.pop("mean")
        return [self.peer.update((made,), may_stop=True, weights=(0.0, 1.0)), Drop(made, "unused")]


def test_a_model_that_a_peer_makes_is_held_like_one_that_came() -> None:
    it = peer(Making)
    it.handle(Start())
    it.handle(Updated())
    it.handle(Wake())
    made = ModelRef(PeerId(0), -1)
    asked = it.handle(Pulled(CAME))
    assert asked == [Blend(made, CAME, (0.5, 0.25, 0.25)), Ask("fit", Losses((made,)))]
    assert all(type(weight) is float for weight in asked[0].weights)  # type: ignore[union-attr]
    (update,) = it.handle(Answered("fit", (0.5,)))
    assert isinstance(update, Update)
    assert update.models == (made,)


def test_what_a_peer_makes_outlives_a_phase_until_it_finishes() -> None:
    """The received models that the phase leaves behind are dropped as well."""
    for behaviour, left in ((Keeps, {CAME[1], ModelRef(PeerId(0), -1)}), (Making, set(CAME))):
        ending = peer(behaviour, rounds=1)
        assert {action.model for action in live(ending) if isinstance(action, Drop)} == left
        assert not ending.made
    going_on = peer(Keeps)
    live(going_on)
    assert going_on.made == {"mean": ModelRef(PeerId(0), -1)}
    assert not [action for action in going_on.enter("alone") if isinstance(action, Drop) and action.model.is_made]


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (MakesByHand, r"its use returned Blend.*: make models by self\.peer\.blend"),
        (MakesOfOthers, r"its use returned ModelRef\(owner=9.*: the peer does not hold it"),
        (UsesTwice, r"its on_answered returned ModelRef\(owner=0, version=-1\).*: the peer does not hold it"),
    ],
)
def test_models_that_are_not_there_are_refused(behaviour: type[Gossiping], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        live(peer(behaviour))

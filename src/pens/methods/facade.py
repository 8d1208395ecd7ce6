# SPDX-License-Identifier: Apache-2.0
"""`facade`: fair decentralised learning with one core and several heads (Biswas et al., SaTML 2025, arXiv:2410.02541).

Every peer has one core and k heads, which are the ends of one network. In each round it averages its core with all
cores that it received, and head c with all heads that came with the number c. It scores the core with each of its heads
on its own training data, trains it with the one that has the lowest loss, and sends these two and the head's number. So
peers form clusters by the heads that they choose. In the first rounds all layers are averaged as the core is.

A model on its way is the plain network, core and one head, and the number is a note beside it. The heads that a peer
did not choose lie in models that it makes beside its own one (`Blend`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pens.errors import SettingsError
from pens.methods.method import Method, Participants
from pens.protocol.gossiping import Gossiping
from pens.protocol.messages import Action, Ask, Losses, ModelRef, Note, PeerId
from pens.protocol.plan import Plan
from pens.protocol.starting import Starting
from pens.settings.section import Count, Section, Whole
from pens.settings.tree import RunSettings, Settings


class FacadeSettings(Section):
    """FACADE: how many heads there are, and when they are averaged."""

    title: ClassVar[str] = "facade"
    heads: Count = 2
    """k: how many heads each peer has, one for each cluster that is expected."""
    head: tuple[str, ...] = ("auto",)
    """The beginnings of the names of a head's parameters; auto: the last layer that is trained."""
    share_all: Whole = 10
    """In so many rounds at the beginning all layers are averaged as the core is (authors: 10)."""
    own_heads: bool = True
    """Whether a peer's own head counts in the average of each number, also where it did not train that head last
    (authors' code); else only heads that were trained in this round count, and the own one where none came."""
    all_reduce: bool = False
    """Whether in the last round a peer asks all that it can reach, and does not train: an average of each cluster's
    models, as far as their notes tell which cluster they chose. For the schedule rounds."""


@dataclass(frozen=True)
class _Told:
    """What the peers are told."""

    settings: FacadeSettings
    common: bool
    """Whether all peers begin with the same heads."""


class Beginning(Starting):
    """The first training: from the one of k untrained heads that fits best."""

    def begin(self) -> list[Action]:
        own, common = self.peer.plan.own.settings, self.peer.plan.own.common
        actions = self.peer.blend("0", (), (1.0,))  # the head that the own model has
        for number in range(1, own.heads):
            name = ("head", number) if common else ("head", number, self.peer.me)
            theirs = tuple((prefix, (0.0, 1.0)) for prefix in own.head)
            actions += self.peer.blend(str(number), (), (1.0, 0.0), theirs, untrained=name)
        return [*actions, Ask("losses", Losses(tuple(self.peer.made.values())))]

    def on_answered(self, name: str, answer: Sequence[float]) -> list[Action]:
        best = self.peer.made.pop(str(lowest(answer)))
        epochs = None if self.peer.plan.train_first else 0
        return [self.peer.update((best,), may_stop=False, epochs=epochs, weights=(0.0, 1.0))]


class Choosing(Gossiping):
    """Gossip of cores and heads."""

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        numbers = map(str, range(peer.plan.own.settings.heads))
        self.number = int(next((number for number in numbers if number not in peer.made), 0))
        """The number of the head that the own model has: the one that is not beside it."""
        self.chosen = self.number
        """The number of the head that it will have when the update in progress is complete."""
        self.received: tuple[ModelRef, ...] = ()

    def note(self) -> Note:
        return self.number

    @property
    def _reduces(self) -> bool:
        return self.peer.plan.own.settings.all_reduce and self.peer.updates == self.peer.plan.rounds - 1

    def drawn(self) -> Sequence[PeerId]:
        return tuple(self.peer.reachable) if self._reduces else super().drawn()

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        self.peer.busy, self.received = True, models
        numbers = range(self.peer.plan.own.settings.heads)
        blends = [action for number in numbers for action in self._blend(number, models)]
        return [*blends, Ask("losses", Losses(tuple(self.peer.made[str(number)] for number in numbers)))]

    def _blend(self, number: int, models: tuple[ModelRef, ...]) -> list[Action]:
        """The average of all cores, with the average of the heads of this number."""
        own, before = self.peer.plan.own.settings, self.peer.made.get(str(number))
        cores = [1.0] * (1 + len(models))
        heads = [float(of == number) for of in (self.number, *(self.peer.notes.get(m.owner) for m in models))]
        if before is not None:  # the own head of this number, which the own model does not have
            cores.append(0.0)
            heads.append(float(own.own_heads or not any(heads)))
        if self.peer.updates < own.share_all:
            heads = cores
        models = models if before is None else (*models, before)
        return self.peer.blend(str(number), models, _shares(cores), tuple((of, _shares(heads)) for of in own.head))

    def on_answered(self, name: str, answer: Sequence[float]) -> list[Action]:
        self.chosen = lowest(answer)
        models = (*self.received, self.peer.made.pop(str(self.chosen)))
        weights = (*[0.0] * len(models), 1.0)
        self.received = ()
        return [self.peer.update(models, may_stop=True, epochs=0 if self._reduces else None, weights=weights)]

    def on_updated(self) -> list[Action]:
        self.number = self.chosen
        return super().on_updated()

    def state(self) -> dict[str, Any]:
        return {"number": self.number, "chosen": self.chosen, "received": [list(model) for model in self.received]}

    def restore(self, state: dict[str, Any]) -> None:
        self.number, self.chosen = state["number"], state["chosen"]
        self.received = tuple(ModelRef(PeerId(owner), version) for owner, version in state["received"])


def lowest(losses: Sequence[float]) -> int:
    """The place of the lowest loss, the first of equal ones. One that is not a number is the highest."""
    return min(range(len(losses)), key=lambda place: math.inf if math.isnan(losses[place]) else losses[place])


def _shares(counts: Sequence[float]) -> tuple[float, ...]:
    return tuple(count / sum(counts) for count in counts)


class Facade(Method):
    """Peers share a core, and choose one of k heads."""

    name = "facade"
    about = "peers average one core with all, and heads with those who chose the same of k heads by their losses"
    colours = ("#96530f", "#f0b06a")
    section = FacadeSettings
    networked = True
    says_weights = True

    def resolve(self, settings: Settings) -> Settings:
        return settings.replace({"accept": "anyone"})

    def segments(self, settings: RunSettings) -> Sequence[str]:
        return settings.section(FacadeSettings).head

    def check(self, settings: RunSettings, who: Participants) -> None:
        who.check_enough("n_peers", settings.gossip.n_peers)
        if settings.gossip.merge != "mean":
            raise SettingsError(f"merge = {settings.gossip.merge!r}, but {self.name} averages models: set merge = mean")
        if settings.section(FacadeSettings).all_reduce and settings.gossip.schedule == "async":
            raise SettingsError("all_reduce = true, but schedule = async: there nobody can ask: set all_reduce = false")

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        told = _Told(settings.section(FacadeSettings), settings.model.init == "common")
        behaviours = {"starting": Beginning, "gossiping": Choosing}
        return replace(super().plan(settings, train, val, num_peers), behaviours=behaviours, notes=True, own=told)

# SPDX-License-Identifier: Apache-2.0
"""`dac`: decentralised adaptive clustering (Listo Zec et al. 2022, arXiv:2206.08839).

In every round a peer draws whom it asks by how well models of theirs do on its own training data: peer j with a
probability proportional to exp(τ · s_ij), where s_ij is one divided by the loss of j's model. It merges all models that
it drew. Of peers that it never asked it knows s from others: the similarity that its most similar acquaintance, among
those asked in this round, says about them (two hops). What nobody has told it yet counts as zero, so that the first
round is uniform.

That is the schedule `rounds`, as in the paper. Where models are pushed (`async`, real peers), nobody can be asked: a
peer sends its model to one that it draws so, and merges whatever comes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from pens.methods.method import Method, Participants
from pens.protocol.gossiping import Gossiping
from pens.protocol.messages import Action, Ask, Losses, ModelRef, Note, PeerId
from pens.protocol.plan import Plan
from pens.settings.section import NotNegative, Section
from pens.settings.space import LogUniform
from pens.settings.tree import RunSettings, Settings

_TOLD = 100  # similarities that a peer tells others: as many as fit a note


class DacSettings(Section):
    """DAC: how losses steer whom a peer asks next."""

    title: ClassVar[str] = "dac"
    tau: NotNegative = 30.0
    """τ: how strongly a peer prefers those whose models do well on its data; 0: not at all (paper: 30). With dac-var τ
    grows from 1 to this and one."""
    tau_growth: NotNegative = 0.2
    """dac-var alone: how fast τ grows with the rounds (b of the paper: 0.2)."""


class Asking(Gossiping):
    """Gossip whose neighbours are drawn anew in each round, by what is known of them."""

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self.known: dict[PeerId, float] = {}
        """s_ij of peers whose models were scored here, by the latest."""
        self.heard: dict[PeerId, float] = {}
        """s_ij of others, as an acquaintance told it."""
        self._asked: tuple[PeerId, ...] = ()

    def note(self) -> Note:
        best = sorted(self.known.items(), key=lambda item: -item[1])[:_TOLD]
        return [[peer, round(similarity, 6)] for peer, similarity in best]

    def drawn(self) -> Sequence[PeerId]:
        return self._draw(self.threshold())

    def someone(self) -> PeerId | None:
        return next(iter(self._draw(1)), None)

    def _draw(self, count: int) -> list[PeerId]:
        """So many of those that can be reached, without replacement, each with a probability proportional to exp(τ s):
        those with the largest τ s plus Gumbel noise."""
        tau, random = self.tau(), self.peer.random()
        keys = {p: tau * self.similarity(p) - math.log(-math.log(1 - random.random())) for p in self.peer.reachable}
        return sorted(sorted(keys, key=lambda p: -keys[p])[:count])

    def tau(self) -> float:
        """How strongly the peer prefers similar ones in this round."""
        return float(self.peer.plan.own.tau)

    def similarity(self, other: PeerId) -> float:
        return self.known.get(other, self.heard.get(other, 0.0))

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        self._asked = tuple(model.owner for model in models)
        asking = [Ask("losses", Losses(models), when="updated")] if models else []
        return [*asking, *super().use(models)]

    def on_answered(self, name: str, answer: Any) -> list[Action]:
        found = {peer: _similarity(loss) for peer, loss in zip(self._asked, answer, strict=True)}
        self.known |= found
        nearest = max(found, key=lambda peer: found[peer])
        for peer, similarity in _told(self.peer.notes.get(nearest)):
            if peer not in self.known and peer != self.peer.me:
                self.heard[peer] = similarity
        return []

    def state(self) -> dict[str, Any]:
        pairs = {"known": self.known, "heard": self.heard}
        return {**{name: list(map(list, of.items())) for name, of in pairs.items()}, "asked": list(self._asked)}

    def restore(self, state: dict[str, Any]) -> None:
        self.known, self.heard = ({PeerId(p): s for p, s in state[name]} for name in ("known", "heard"))
        self._asked = tuple(map(PeerId, state["asked"]))


def _similarity(loss: float) -> float:
    """s = 1 / loss. A loss that is not a number says that a model fits not at all; none counts for more than 1000."""
    return 1 / max(loss, 1e-3) if math.isfinite(loss) else 0.0


def _told(note: Note) -> list[tuple[PeerId, float]]:
    """What an acquaintance said, as far as it makes sense: a member may say anything."""
    pairs = [pair for pair in note if isinstance(pair, list) and len(pair) == 2] if isinstance(note, list) else []
    return [
        (PeerId(peer), min(float(similarity), 1e3))
        for peer, similarity in pairs[:_TOLD]
        if type(peer) is int and type(similarity) in (int, float) and similarity >= 0
    ]


class Dac(Method):
    """Each peer asks those whose models fit its data, more and more often."""

    name = "dac"
    about = "losses on a peer's own data steer whom it asks next, in every round, and what others say of the rest"
    colours = ("#7a3fa8", "#bf94e4")
    space = MappingProxyType({"tau": LogUniform(1.0, 300.0)})
    section = DacSettings
    networked = True
    scores = True

    def resolve(self, settings: Settings) -> Settings:
        return settings.replace({"accept": "anyone"})

    def check(self, settings: RunSettings, who: Participants) -> None:
        who.check_enough("n_peers", settings.gossip.n_peers)

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        return replace(
            super().plan(settings, train, val, num_peers),
            behaviours={"gossiping": Asking},
            notes=True,
            own=settings.section(DacSettings),
        )

# SPDX-License-Identifier: Apache-2.0
"""`fedfomo`: federated first-order model optimization (Zhang et al. 2021, arXiv:2012.08565), between peers.

In every round a peer asks some others for their models, and takes a step towards those that do better than its own on
its validation data: with losses L on these data, and ‖·‖ the length of a vector,

    w_j ∝ max(0, (L(θ) − L(θ_j)) / ‖θ_j − θ‖),   Σ w_j = 1,        θ ← θ + Σ w_j (θ_j − θ),

and trains the result. Without a better model it trains its own. Whom it asks, it learns: the affinity to a peer is the
sum of these quotients, negative ones included. Each of its choices is the peer with the highest affinity that is left,
or, with probability ε, any that is left; ε falls from round to round.

The paper's models come from a server; here they are pulled from the peers, and θ is the peer's own model as it was
trained (the authors' code compares with the model before that training, and has the trained one among the candidates).

Where models are pushed (`async`, real peers), nobody can be asked: a peer sends its model to one that it chooses so,
and uses whatever comes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from pens.methods.method import Method, Participants
from pens.protocol.gossiping import Gossiping
from pens.protocol.messages import Action, Ask, Distances, Drop, Losses, ModelRef, PeerId
from pens.protocol.plan import Plan
from pens.settings.section import NotNegative, Section
from pens.settings.tree import RunSettings, Settings

_HIGHEST_LOSS = 1e3  # higher losses, and those that are no numbers, are not told apart


class FedFomoSettings(Section):
    """FedFomo: whom peers ask for models."""

    title: ClassVar[str] = "fedfomo"
    epsilon: Annotated[float, Field(ge=0, le=1)] = 0.3
    """ε: the probability with which a peer asks any other instead of the one with the highest affinity (paper: 0.3)."""
    epsilon_decay: NotNegative = 0.05
    """By how much ε falls from round to round, down to 0 (paper: 0.05)."""


class Optimizing(Gossiping):
    """Gossip that steps towards better models."""

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self.affinity: dict[PeerId, float] = {}
        """The sum of the quotients of each peer that was ever asked."""
        self.received: tuple[ModelRef, ...] = ()
        self.gains: tuple[float, ...] = ()
        """By how much the loss of each received model is below that of the own one."""

    def drawn(self) -> Sequence[PeerId]:
        return sorted(self._choose(self.threshold()))

    def someone(self) -> PeerId | None:
        return next(iter(self._choose(1)), None)

    def _choose(self, count: int) -> list[PeerId]:
        """So many peers, one after the other; of equal affinities any."""
        random = self.peer.random()
        left = list(self.peer.reachable)
        random.shuffle(left)
        left.sort(key=lambda peer: -self.affinity.get(peer, 0.0))
        explores = [random.random() < self.epsilon() for _ in range(min(count, len(left)))]
        return [left.pop(random.randrange(len(left)) if anybody else 0) for anybody in explores]

    def epsilon(self) -> float:
        own = self.peer.plan.own
        return max(0.0, float(own.epsilon - own.epsilon_decay * self.peer.updates))

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        if not models:
            return super().use(models)
        self.received = models
        self.peer.busy = True  # models that come before the answers wait
        return [Ask("losses", Losses(models, on="val", own=True)), Ask("distances", Distances(models, "l2"))]

    def on_answered(self, name: str, answer: Any) -> list[Action]:
        if name == "losses":
            *losses, own = map(_bounded, answer)
            self.gains = tuple(own - loss for loss in losses)
            return []
        quotients = list(map(_quotient, self.gains, answer))
        for model, quotient in zip(self.received, quotients, strict=True):
            self.affinity[model.owner] = self.affinity.get(model.owner, 0.0) + quotient
        better = [(model, quotient) for model, quotient in zip(self.received, quotients, strict=True) if quotient > 0]
        drops = [Drop(m, "judged") for m, quotient in zip(self.received, quotients, strict=True) if quotient <= 0]
        if not better:
            return [*drops, *super().use(())]
        total = math.fsum(quotient for _, quotient in better)
        weights = (0.0, *(quotient / total for _, quotient in better))
        return [*drops, self.peer.update(tuple(model for model, _ in better), may_stop=True, weights=weights)]

    def state(self) -> dict[str, Any]:
        pairs = [[peer, total] for peer, total in self.affinity.items()]
        return {"affinity": pairs, "received": list(map(list, self.received)), "gains": list(self.gains)}

    def restore(self, state: dict[str, Any]) -> None:
        self.affinity = {PeerId(peer): total for peer, total in state["affinity"]}
        self.received = tuple(ModelRef(PeerId(owner), version) for owner, version in state["received"])
        self.gains = tuple(state["gains"])


def _bounded(loss: float) -> float:
    return min(loss, _HIGHEST_LOSS) if math.isfinite(loss) else _HIGHEST_LOSS


def _quotient(gain: float, distance: float) -> float:
    """The gain for each unit of the way. A model without a distance is no way to go."""
    return gain / distance if 0 < distance < math.inf else min(gain, 0.0)


class FedFomo(Method):
    """Each peer steps towards the models that do better than its own on its validation data."""

    name = "fedfomo"
    about = "FedFomo: peers step towards models that do better on their validation data, and ask for those more often"
    colours = ("#0f7a5c", "#5fd0ae")
    section = FedFomoSettings
    networked = True
    scores = True
    says_weights = True

    def resolve(self, settings: Settings) -> Settings:
        return settings.replace({"accept": "anyone", "score_on": "val"})

    def check(self, settings: RunSettings, who: Participants) -> None:
        who.check_enough("n_peers", settings.gossip.n_peers)

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        own, usual = settings.section(FedFomoSettings), super().plan(settings, train, val, num_peers)
        return replace(usual, behaviours={"gossiping": Optimizing}, own=own)

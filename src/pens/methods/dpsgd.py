# SPDX-License-Identifier: Apache-2.0
"""`dpsgd`: decentralised parallel SGD on a static graph (Lian et al. 2017), with Metropolis weights.

In every round a peer asks all its neighbours in the topology for their models. That of neighbour j counts as
1 / (1 + max(dᵢ, dⱼ)), where d is how many neighbours a peer has, and its own counts as the rest. Both ends of an edge
give it the same weight, so that merging keeps the mean of all models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pens.methods.method import Method
from pens.protocol.gossiping import Gossiping
from pens.protocol.messages import Action, ModelRef, Note
from pens.protocol.plan import Plan
from pens.settings.tree import RunSettings


def metropolis_weights(degree: int, others: Sequence[int]) -> tuple[float, ...]:
    """How much the models of a peer with so many neighbours and of some of these count, its own first. `others`: how
    many neighbours each of these has."""
    theirs = [1 / (1 + max(degree, other)) for other in others]
    return (1 - sum(theirs), *theirs)


class Averaging(Gossiping):
    """Gossip with all neighbours at once, each weighted by how many neighbours both have."""

    def note(self) -> Note:
        return len(self.peer.reachable)

    def drawn(self) -> Sequence[Any]:
        return self.peer.reachable

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        degrees = [self.peer.notes[model.owner] for model in models]
        weights = metropolis_weights(len(self.peer.reachable), degrees)
        return [replace(self.peer.update(models, may_stop=True), weights=weights)]


class Dpsgd(Method):
    """Each peer averages with all its neighbours in the topology."""

    name = "dpsgd"
    about = "in each round a peer averages with all its neighbours in the topology, by Metropolis weights"
    colours = ("#2f4f9e", "#8fa8f0")
    in_step = True
    says_weights = True

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        usual = super().plan(settings, train, val, num_peers)
        return replace(usual, behaviours={"gossiping": Averaging}, notes=True)

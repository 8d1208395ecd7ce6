# SPDX-License-Identifier: Apache-2.0
"""`deprl`: decentralised personalised learning with shared representations (DePRL, Xiong et al., AAAI 2024).

The body of the network is averaged with others, and each peer's head never leaves it. In every round a peer merges the
bodies that it received with its own, trains its head while the body stands still, and then its body while the head
stands still. Only bodies are sent.

Peers gossip as those of `random` do: each averages n_peers others' bodies and its own. With `topology = regular` and
n_peers = degree that is the averaging with equal weights over a graph of the paper.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pens.methods.method import Method, Participants
from pens.methods.partial import head_then_body, keeping
from pens.protocol.plan import Plan
from pens.settings.section import Count, Section
from pens.settings.tree import RunSettings, Settings

if TYPE_CHECKING:
    from pens.learning.rules import LearningRules


class DeprlSettings(Section):
    """DePRL: which part of the network is the head, and how long each part is trained."""

    title: ClassVar[str] = "deprl"
    head: tuple[str, ...] = ("auto",)
    """The beginnings of the names of the head's parameters; auto: the last layer that is trained."""
    head_epochs: Count = 3
    """Epochs of the head in each update, which come first (authors' code: 3)."""
    body_epochs: Count = 1
    """Epochs of the body in each update (authors' code: 1)."""


class Deprl(Method):
    """Gossip of bodies; heads are the peers' own."""

    name = "deprl"
    about = "the body of the network is averaged by gossip; heads never leave their peers, and are trained first"
    colours = ("#0f6b6b", "#5fc9c9")
    section = DeprlSettings
    networked = True

    def resolve(self, settings: Settings) -> Settings:
        """All peers begin with the same model, as in the authors' code: an average of unlike bodies that no head fits
        can leave nothing to train."""
        return settings.replace({"init": "common"})

    def check(self, settings: RunSettings, who: Participants) -> None:
        who.check_enough("n_peers", settings.gossip.n_peers)

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        own = settings.section(DeprlSettings)
        phases = head_then_body(own.head, own.head_epochs, own.body_epochs)
        return replace(super().plan(settings, train, val, num_peers), phases=phases)

    def learning(self, settings: RunSettings, seed: int) -> LearningRules:
        return keeping(super().learning(settings, seed), settings.section(DeprlSettings).head)

# SPDX-License-Identifier: Apache-2.0
"""`fedrep`: federated learning of a shared representation (FedRep, Collins et al. 2021, arXiv:2102.07078).

A server averages the bodies of the network, as that of `fedavg` averages whole networks, and each peer's head never
leaves it. A peer that is sent a body trains its head for it while the body stands still, then the body while the head
stands still, and sends the body back. After the last round every peer is sent the server's body.

Peers validate and test their own models, of which the best on validation data counts: what a peer trained, or the last
body with its head.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from pens.methods.fedavg import FedAvg, served
from pens.methods.partial import head_then_body, keeping
from pens.protocol.plan import Plan
from pens.settings.section import Count, Section
from pens.settings.tree import RunSettings, Settings

if TYPE_CHECKING:
    from pens.learning.rules import LearningRules


class FedrepSettings(Section):
    """FedRep: which part of the network is the head, and how long each part is trained."""

    title: ClassVar[str] = "fedrep"
    fedrep_participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of the peers that train in a round, at least one of them (r of the paper)."""
    head: tuple[str, ...] = ("auto",)
    """The beginnings of the names of the head's parameters; auto: the last layer that is trained."""
    head_epochs: Count = 10
    """Epochs of the head in each update, which come first (paper: 10)."""
    body_epochs: Count = 1
    """Epochs of the body in each update (paper: 1, and 5 where peers hold few classes of many)."""


class FedRep(FedAvg):
    """A server averages bodies; heads are the peers' own."""

    name = "fedrep"
    about = "personalised learning with a server, which averages bodies; heads never leave their peers"
    colours = ("#6e5a14", "#d6bd62")
    section = FedrepSettings

    def resolve(self, settings: Settings) -> Settings:
        return settings.replace(served(settings))

    def participation(self, settings: RunSettings) -> float:
        return settings.section(FedrepSettings).fedrep_participation

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        own = settings.section(FedrepSettings)
        phases = head_then_body(own.head, own.head_epochs, own.body_epochs)
        return replace(super().plan(settings, train, val, num_peers), phases=phases)

    def learning(self, settings: RunSettings, seed: int) -> LearningRules:
        return keeping(super().learning(settings, seed), settings.section(FedrepSettings).head)

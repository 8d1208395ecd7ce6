# SPDX-License-Identifier: Apache-2.0
"""`fedavg`: federated averaging with a server (McMahan et al. 2017, arXiv:1602.05629).

In every round the server sends its model to a random share of the peers. Each of them trains it on its own data and
sends the result back. The server's next model is their average, where a model counts as much as its peer has training
samples. After the last round every peer is sent the server's model.

Peers validate and test the server's model as it came (`validated = merged`), and keep none of their own. The server
decides how long training lasts, so that nobody stops early. A merge rule that takes no weights, such as `median`,
takes the place of the average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from pens.errors import SettingsError
from pens.merging.rule import chosen
from pens.methods.method import Method, Participants
from pens.protocol.behaviour import Behaviour
from pens.protocol.messages import Action, Finish, ModelRef, Note, PeerId, Send
from pens.protocol.plan import Plan
from pens.settings.section import Section
from pens.settings.tree import RunSettings, Settings

_LATEST = 0.2  # a round takes 1, of which training takes half; models travel twice
LAST = "last"
"""The note of a server beside its last model."""


class FedAvgSettings(Section):
    """FedAvg, and methods that have servers as it does."""

    title: ClassVar[str] = "fedavg"
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of the peers that train in a round, at least one of them (C of the paper)."""
    num_clusters: Annotated[int, Field(ge=2)] = 2
    """ifca alone: how many clusters there are thought to be; there is a model, and a server, for each (k of the
    paper)."""


class TrainingForServer(Behaviour):
    """A peer: train what the server sends, and send it back."""

    phase: ClassVar[str] = "gossiping"

    def note(self) -> Note:
        return self.peer.plan.own

    def on_received(self, model: ModelRef, answer: bool) -> list[Action]:
        is_last = self.peer.notes.get(model.owner) == LAST
        return [self.peer.update((model,), may_stop=True, epochs=0 if is_last else None)]

    def on_updated(self) -> list[Action]:
        self.peer.updates += 1
        (server,) = self.peer.reachable
        is_last = self.peer.notes.get(server) == LAST
        return self.peer.enter("finished") if is_last else [Send(server)]


@dataclass(frozen=True)
class _Serving:
    """What the server is told."""

    participation: float
    weighs: bool
    """Whether the merge rule takes weights."""


class Serving(Behaviour):
    """The server: send, wait until all have answered, average."""

    phase: ClassVar[str] = "gossiping"

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self._awaited = 0
        """How many peers were sent the model in this round."""

    def note(self) -> Note:
        return LAST if self.peer.updates >= self.peer.plan.rounds else None

    def on_wake(self) -> list[Action]:
        peers: Sequence[PeerId] = self.peer.reachable
        self._awaited = max(1, round(self.peer.plan.own.participation * len(peers)))
        places = sorted(self.peer.random().sample(range(len(peers)), self._awaited))
        return [Send(peers[place]) for place in places]

    def on_received(self, model: ModelRef, answer: bool) -> list[Action]:
        self.peer.save(model)
        if self.peer.num_saved < self._awaited:
            return []
        models = self.peer.take(self._awaited)
        samples = [self.peer.notes[model.owner] for model in models]
        weights = (0.0, *(count / sum(samples) for count in samples)) if self.peer.plan.own.weighs else None
        return [self.peer.update(models, may_stop=False, epochs=0, weights=weights)]

    def on_updated(self) -> list[Action]:
        self.peer.updates += 1
        if self.peer.updates < self.peer.plan.rounds:
            return []
        return [*(Send(peer) for peer in self.peer.reachable), Finish()]

    def state(self) -> dict[str, Any]:
        return {"awaited": self._awaited}

    def restore(self, state: dict[str, Any]) -> None:
        self._awaited = state["awaited"]


def served(settings: Settings) -> dict[str, object]:
    """Settings of peers that train what a server sends, for as long as it does."""
    return {"own_in_merge": False, "train_first": False, "patience": settings.gossip.rounds + 1}


class FedAvg(Method):
    """A server averages the models that peers train from its own."""

    name = "fedavg"
    about = "federated averaging: in each round peers train a server's model, and the server averages the results"
    colours = ("#4d6600", "#b5cf4a")
    section: type[Section] | None = FedAvgSettings
    in_step = True
    num_servers = 1
    further: ClassVar[Mapping[str, object]] = {}
    """What methods that differ from it set beside."""

    def resolve(self, settings: Settings) -> Settings:
        return settings.replace({**served(settings), "validated": "merged", **self.further})

    def check(self, settings: RunSettings, who: Participants) -> None:
        if settings.timing.latency > _LATEST:
            raise SettingsError(
                f"latency = {settings.timing.latency:g}, but a round of {self.name} sends models twice and trains in "
                f"between: set latency to at most {_LATEST:g}"
            )

    def reachable(self, me: PeerId, others: Sequence[PeerId], alike: Sequence[PeerId]) -> Sequence[PeerId]:
        """The server alone."""
        return ()

    def participation(self, settings: RunSettings) -> float:
        """The share of the peers that train in a round."""
        return settings.section(FedAvgSettings).participation

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        usual = super().plan(settings, train, val, num_peers)
        return replace(usual, behaviours={"gossiping": TrainingForServer}, notes=True, own=train)

    def server_plan(self, settings: RunSettings, num_peers: int) -> Plan:
        told = _Serving(self.participation(settings), chosen(settings).rule.takes_weights)
        return replace(super().plan(settings, 0, 0, num_peers), behaviours={"gossiping": Serving}, notes=True, own=told)

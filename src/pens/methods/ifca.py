# SPDX-License-Identifier: Apache-2.0
"""`ifca`: iterative federated clustering (Ghosh et al. 2020, arXiv:2006.04088), model averaging.

There is a model for each of k clusters. Each begins with random weights of its own, and has a server here. In every
round a random share of the peers is sent all k models. Each of these peers takes the model with the lowest loss on its
training data, trains it, and sends it back to where it came from. A server's next model is the plain average of what
came back; without any it keeps its model.

After the last round every peer is sent all models once more, and keeps the one that it chooses. Peers validate and test
the chosen model as it came (`validated = merged`), and the servers decide how long training lasts, as in `fedavg`. The
peers that chose the same server at the end are each other's neighbours in results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pens.methods.fedavg import LAST, FedAvg, FedAvgSettings
from pens.protocol.behaviour import Behaviour
from pens.protocol.messages import Action, Ask, Chose, Drop, Finish, Losses, ModelRef, Note, PeerId, Send, WakeAfter
from pens.protocol.plan import Plan
from pens.settings.tree import RunSettings

_TRAINING = 0.5  # of a round, which takes 1
_PAUSE = 0.05  # after all models have come back


class Choosing(Behaviour):
    """A peer: choose among the servers' models, train the chosen one, and send it back."""

    phase: ClassVar[str] = "gossiping"

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self.offered: tuple[ModelRef, ...] = ()
        self.server: PeerId | None = None
        """Whose model was chosen last."""

    def on_received(self, model: ModelRef, answer: bool) -> list[Action]:
        self.peer.save(model)
        if self.peer.num_saved < len(self.peer.reachable):
            return []
        self.offered = tuple(sorted(self.peer.take(self.peer.num_saved)))
        return [Ask("losses", Losses(self.offered))]

    def on_answered(self, name: str, answer: Any) -> list[Action]:
        losses = [math.inf if math.isnan(loss) else loss for loss in answer]
        chosen = self.offered[losses.index(min(losses))]
        self.server = chosen.owner
        drops = [Drop(model, "judged") for model in self.offered if model != chosen]
        return [*drops, self.peer.update((chosen,), may_stop=True, epochs=0 if self._is_last() else None)]

    def _is_last(self) -> bool:
        return self.server is not None and self.peer.notes.get(self.server) == LAST

    def on_updated(self) -> list[Action]:
        assert self.server is not None
        self.peer.updates += 1
        if not self._is_last():
            return [Send(self.server)]
        return [Chose((self.server,), "selection"), *self.peer.enter("finished")]

    def state(self) -> dict[str, Any]:
        return {"offered": list(map(list, self.offered)), "server": self.server}

    def restore(self, state: dict[str, Any]) -> None:
        self.offered = tuple(ModelRef(PeerId(owner), version) for owner, version in state["offered"])
        self.server = None if state["server"] is None else PeerId(state["server"])


@dataclass(frozen=True)
class _Hosting:
    """What a server is told."""

    participation: float
    wait: float
    """From the beginning of a round until all models have come back."""


class Hosting(Behaviour):
    """A server: send the model of its cluster, wait, and average what came back."""

    phase: ClassVar[str] = "gossiping"

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self._waits = False

    def note(self) -> Note:
        return LAST if self.peer.updates >= self.peer.plan.rounds else None

    def on_wake(self) -> list[Action]:
        self._waits = not self._waits
        if self._waits:
            return [*map(Send, self._drawn()), WakeAfter(self.peer.plan.own.wait)]
        return [self.peer.update(self.peer.take(self.peer.num_saved), may_stop=False, epochs=0)]

    def _drawn(self) -> list[PeerId]:
        """Who takes part in this round: all servers draw the same peers."""
        peers: Sequence[PeerId] = self.peer.reachable
        count = max(1, round(self.peer.plan.own.participation * len(peers)))
        places = sorted(self.peer.shared_random(self.peer.updates).sample(range(len(peers)), count))
        return [peers[place] for place in places]

    def on_received(self, model: ModelRef, answer: bool) -> list[Action]:
        self.peer.save(model)
        return []

    def on_updated(self) -> list[Action]:
        self.peer.updates += 1
        if self.peer.updates < self.peer.plan.rounds:
            return []
        return [*map(Send, self.peer.reachable), Finish()]

    def state(self) -> dict[str, Any]:
        return {"waits": self._waits}

    def restore(self, state: dict[str, Any]) -> None:
        self._waits = state["waits"]


class Ifca(FedAvg):
    """A server for each cluster, among which peers choose by their losses."""

    name = "ifca"
    about = "IFCA: in each round peers train, of the models of num_clusters servers, the one with the lowest loss"
    colours = ("#8a5a00", "#e0b060")
    num_servers = 2
    scores = True
    further: ClassVar[Mapping[str, object]] = {"init": "independent", "batch_norm": "merged"}
    """Models that began alike would stay alike: each server begins with its own. And peers compare models as they come,
    so that nothing of them may stay behind."""

    def servers(self, settings: RunSettings) -> int:
        return settings.section(FedAvgSettings).num_clusters

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        return replace(super().plan(settings, train, val, num_peers), behaviours={"gossiping": Choosing}, own=None)

    def server_plan(self, settings: RunSettings, num_peers: int) -> Plan:
        wait = _TRAINING + 2 * settings.timing.latency + _PAUSE
        told = _Hosting(settings.section(FedAvgSettings).participation, wait)
        return replace(super().server_plan(settings, num_peers), behaviours={"gossiping": Hosting}, own=told)

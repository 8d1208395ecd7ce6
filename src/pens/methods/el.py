# SPDX-License-Identifier: Apache-2.0
"""`el`: Epidemic Learning (de Vos et al. 2023, arXiv:2310.01972), in its form EL-Local.

In every round a peer sends its model to s others, drawn anew, without asking who else does. It merges its own model and
all that came, and trains. How many come differs: s on average, and none at times. Here s = n_peers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pens.errors import SettingsError
from pens.methods.method import Method, Participants
from pens.protocol.gossiping import Gossiping
from pens.protocol.messages import Action, Drop, ModelRef, Send, WakeAfter
from pens.protocol.plan import Plan
from pens.settings.tree import RunSettings

_LATEST = 0.4  # a round takes 1, of which training takes half
_PAUSE = 0.05  # after the models of a round have come


class Spreading(Gossiping):
    """Each round has two parts: the peer sends; and when all that was sent has come, it merges and trains."""

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self._sent = False
        """Whether the peer has sent in this round, and waits for what comes."""

    def on_wake(self) -> list[Action]:
        self._sent = not self._sent
        if self._sent:
            return [*(Send(other) for other in self.drawn()), WakeAfter(self.peer.plan.own)]
        return self.use(self.peer.take(self.peer.num_saved))

    def on_received(self, model: ModelRef, answer: bool) -> list[Action]:
        older = self.peer.save(model)
        return [Drop(older, "replaced")] if older else []

    def use_if_enough(self) -> list[Action]:
        """When to merge is a matter of time."""
        return []

    def state(self) -> dict[str, Any]:
        return {"sent": self._sent}

    def restore(self, state: dict[str, Any]) -> None:
        self._sent = state["sent"]


class El(Method):
    """Each peer sends its model to a few random others, and merges whatever comes."""

    name = "el"
    about = "Epidemic Learning: in each round a peer sends its model to n_peers random others, and merges all that came"
    colours = ("#b3261e", "#f28b82")
    in_step = True

    def check(self, settings: RunSettings, who: Participants) -> None:
        who.check_enough("n_peers", settings.gossip.n_peers, can="reach")
        if settings.timing.latency > _LATEST:
            raise SettingsError(
                f"latency = {settings.timing.latency:g}, but the models of a round of {self.name} have to come before "
                f"its training begins: set latency to at most {_LATEST:g}"
            )

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        usual = super().plan(settings, train, val, num_peers)
        return replace(usual, behaviours={"gossiping": Spreading}, own=settings.timing.latency + _PAUSE)

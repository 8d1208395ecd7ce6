# SPDX-License-Identifier: Apache-2.0
"""`least-heard`: each peer gossips with those whom it has not heard for the longest time.

Where models are pulled (`rounds`), a peer asks the `n_peers` others that it heard least recently. Where they are pushed
(`async`, real peers), it sends its model to the one that it heard, or sent a model to, least recently. Peers that it
never heard come first, and a random number decides between equals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pens


class Rotating(pens.Gossiping):
    """Gossip that remembers in which order it was in touch with others."""

    def __init__(self, peer: Any) -> None:
        super().__init__(peer)
        self.contacts: list[pens.PeerId] = []
        """Those whom the peer heard or sent to, the latest contact last."""

    def touch(self, other: pens.PeerId) -> None:
        """Note a contact with another peer."""
        self.contacts = [*(peer for peer in self.contacts if peer != other), other]

    def by_last_contact(self) -> list[pens.PeerId]:
        """The peers that can be reached, the least recently heard one first."""
        place, random = {peer: place for place, peer in enumerate(self.contacts)}, self.peer.random()
        return sorted(self.peer.reachable, key=lambda peer: (place.get(peer, -1), random.random()))

    def drawn(self) -> Sequence[pens.PeerId]:
        """Whom the peer asks for models in a round."""
        return sorted(self.by_last_contact()[: self.threshold()])

    def someone(self) -> pens.PeerId | None:
        """To whom the peer sends its model; None where nobody can be reached."""
        other = next(iter(self.by_last_contact()), None)
        if other is not None:
            self.touch(other)
        return other

    def on_pulled(self, models: tuple[pens.ModelRef, ...]) -> list[pens.Action]:
        for model in models:
            self.touch(model.owner)
        return super().on_pulled(models)

    def on_received(self, model: pens.ModelRef, answer: bool) -> list[pens.Action]:
        self.touch(model.owner)
        return super().on_received(model, answer)

    def state(self) -> dict[str, Any]:
        return {"contacts": list(self.contacts)}

    def restore(self, state: dict[str, Any]) -> None:
        self.contacts = [pens.PeerId(peer) for peer in state["contacts"]]


class LeastHeard(pens.Method):
    """Gossip that reaches every other peer before it repeats one."""

    name = "least-heard"
    about = "gossip with the peers that were not heard for the longest time"
    colours = ("#00707a", "#4fc3cf")
    networked = True

    def check(self, settings: pens.RunSettings, who: pens.Participants) -> None:
        who.check_enough("n_peers", settings.gossip.n_peers)

    def plan(self, settings: pens.RunSettings, train: int, val: int, num_peers: int) -> pens.Plan:
        return replace(super().plan(settings, train, val, num_peers), behaviours={"gossiping": Rotating})

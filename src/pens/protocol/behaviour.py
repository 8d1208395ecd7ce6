# SPDX-License-Identifier: Apache-2.0
"""A behaviour: what a peer does about each event during one phase of its life.

A peer has one behaviour at a time and enters the next one by its phase's name (`Peer.enter`). What outlives a phase
(neighbours, random draws, saved models, counters) belongs to the peer; a behaviour holds what only its phase needs.
Behaviours see their peer, the plan and the names of models: no tensors, clock, socket, file or logging.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

from pens.protocol.messages import Action, Drop, ModelRef, Note, PeerId, Request, Send, WakeAfter
from pens.protocol.situation import Situation


class Behaviour:
    """What every behaviour does unless it says otherwise: it wants no model, and waits."""

    phase: ClassVar[str]
    """The name of its phase, in records and logs."""

    def __init__(self, peer: Situation) -> None:
        self.peer = peer

    @property
    def progress(self) -> tuple[int, int]:
        """What is done of this phase, and how much there is at most."""
        return self.peer.updates, self.peer.plan.rounds

    # --- events -------------------------------------------------------------------------------------------------------

    def begin(self) -> list[Action]:
        """The phase begins; models that an earlier one saved are dropped already."""
        return []

    def note(self) -> Note:
        """What the peer says beside its model whenever it is sent or pulled, where the plan has notes. Receivers have
        it in `peer.notes`, by sender. On a real network it may take `pens.protocol.messages.NOTE_BYTES` as JSON."""
        return None

    def on_wake(self) -> list[Action]:
        """WAIT(Δ) is over; or, in rounds, a round begins."""
        return []

    def on_received(self, model: ModelRef, answer: bool) -> list[Action]:
        """ONRECEIVEMODEL: a pushed model came."""
        return [Drop(model, "unused")]

    def on_pulled(self, models: tuple[ModelRef, ...]) -> list[Action]:
        """Models that the peer requested came, all together."""
        return [Drop(model, "unused") for model in models]

    def on_updated(self) -> list[Action]:
        """The update in progress is complete."""
        return []

    def on_answered(self, name: str, answer: Any) -> list[Action]:
        """The answer to a question (`Ask`) of this name."""
        return []

    def leave(self) -> list[Action]:
        """The phase ends: drop the models that it kept."""
        return []

    def forget(self, peers: Sequence[PeerId]) -> list[Action]:
        """These others are dropped, because their models hurt: let go of what was kept or counted of them."""
        return []

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What changes during the phase, as plain data."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` described."""


class Talking(Behaviour):
    """MAIN of both listings, for phases in which a peer takes part: it sends, or requests, and waits."""

    def on_wake(self) -> list[Action]:
        peer = self.peer
        if peer.plan.pace == "pull":
            return self.begin_round()
        if not peer.reachable and peer.neighbours is peer.reachable:
            return [WakeAfter(peer.next_wait())]
        if not peer.neighbours and not (peer.plan.admit or peer.plan.trust):
            return []
        whom = self.someone()
        sends = [] if whom is None else [Send(whom)]
        return [*sends, WakeAfter(peer.next_wait()), *self.hold_out()]

    def someone(self) -> PeerId | None:
        """RANDOMPEER: a neighbour, or anybody without any; if that one is not reachable, another; None if none is."""
        peer = self.peer
        others = peer.neighbours or peer.reachable
        count = len(others)
        if not count:
            return None
        whom = others[int(peer.number() * count)]
        if others is peer.reachable or whom in peer.reachable:
            return whom
        there = [neighbour for neighbour in others if neighbour in peer.reachable]
        return there[int(peer.number() * len(there))] if there else None

    def begin_round(self) -> list[Action]:
        """In rounds: what to pull, or else to do."""
        return []

    def hold_out(self) -> list[Action]:
        """Where models are pushed: what a peer does that waits in vain."""
        return []


class Gathering(Talking):
    """Talking to gather models: so many of different senders are saved, and then used together."""

    def wanted(self) -> int:
        """Models that are waited for, if there are so many others."""
        raise NotImplementedError

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        """Enough models have come."""
        raise NotImplementedError

    def accepts(self, sender: PeerId) -> bool:
        """Whether a pushed model of this sender is wanted."""
        raise NotImplementedError

    def on_received(self, model: ModelRef, answer: bool) -> list[Action]:
        if not self.accepts(model.owner):
            return [Drop(model, "refused")]
        older = self.peer.save(model)
        return [Drop(older, "replaced"), *self.use_if_enough()] if older else self.use_if_enough()

    def on_pulled(self, models: tuple[ModelRef, ...]) -> list[Action]:
        """All that the peer requested, together: there is nothing to refuse, and nothing more to wait for."""
        drops: list[Action] = [Drop(older, "replaced") for older in self.peer.save_all(models)]
        return [*drops, *([] if self.peer.busy else self.use(self.peer.take(self.taken())))]

    def begin_round(self) -> list[Action]:
        return [Request(tuple(self.drawn()))]

    def drawn(self) -> Sequence[PeerId]:
        """RANDOMPEER, as often as models are waited for."""
        neighbours = self.peer.neighbours
        places = self.peer.random().sample(range(len(neighbours)), self.threshold())
        return [neighbours[place] for place in places]

    def threshold(self) -> int:
        """Models that the peer waits for: as many as it wants, or one of each neighbour if those are fewer."""
        return min(self.wanted(), len(self.peer.neighbours))

    def use_if_enough(self) -> list[Action]:
        peer = self.peer
        if peer.busy or not peer.num_saved or peer.num_saved < self.threshold():
            return []
        return self.use(peer.take(self.taken()))

    def taken(self) -> int:
        """How many of the saved models are used together: all of them."""
        return self.peer.num_saved

    def usual_waits(self) -> float:
        """Waits until enough models have come, if everybody is heard; without neighbours, at the pace of those who have
        some."""
        others = len(self.peer.neighbours or self.peer.reachable)
        return waits_for(min(self.wanted(), others), others)


@functools.cache
def waits_for(count: int, senders: int) -> float:
    """Waits until so many of N senders were heard, one random one per wait: N/N + N/(N − 1) + … + N/(N − n + 1)."""
    return sum(senders / (senders - i) for i in range(count))

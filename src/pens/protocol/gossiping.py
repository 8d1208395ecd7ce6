# SPDX-License-Identifier: Apache-2.0
"""Algorithm 1: gossip among neighbours. For PENS, its step 2; for `random` and `oracle`, all there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pens.protocol.admission import Admission
from pens.protocol.behaviour import Gathering, Talking
from pens.protocol.messages import Action, Drop, Finish, ModelRef, PeerId, Send
from pens.protocol.situation import Situation


class Gossiping(Gathering):
    """Merge as many models as are waited for, train, and so on for T updates.

    Trap: a pushed model comes from whoever chose the receiver, not from those whom the receiver chose. Only models of
    own neighbours are accepted, unless the plan says otherwise; the rest are dropped as refused, and counted.
    """

    phase: ClassVar[str] = "gossiping"

    def wanted(self) -> int:
        return self.peer.plan.n_peers

    def accepts(self, sender: PeerId) -> bool:
        return self.peer.plan.accept_anyone or sender in self.peer.neighbours

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        return [self.peer.update(models, may_stop=True)]

    def on_updated(self) -> list[Action]:
        self.peer.updates += 1
        self.peer.waits = 0
        return self.peer.enter("finished") if self.peer.updates >= self.peer.plan.rounds else self.use_if_enough()

    def hold_out(self) -> list[Action]:
        """Not in the listing: a peer may wait for neighbours that never chose it, and would wait for ever. So it merges
        what it has, or trains on alone."""
        peer = self.peer
        peer.waits += 1
        if peer.busy or peer.waits < peer.plan.give_up * self.usual_waits():
            return []
        return self.use(peer.take(peer.num_saved))


class Admitting(Gossiping):
    """Gossip that is open to those who come late, which is not in the paper: a stranger's model is answered with an own
    one, kept, and judged beside the neighbours' at the next update; who does well becomes a neighbour
    (docs/decisions/0018-late-joiners.md). A peer without neighbours judges strangers beside its own model."""

    def __init__(self, peer: Situation) -> None:
        super().__init__(peer)
        self.admission = Admission(peer.plan.admission_trials)

    def on_received(self, model: ModelRef, answer: bool) -> list[Action]:
        if model.owner in self.peer.neighbours:
            return super().on_received(model, answer)
        answers: list[Action] = [] if answer else [Send(model.owner, answer=True)]
        older = self.admission.meet(model)
        return [*answers, *([Drop(older, "replaced")] if older else [])]

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        asking = [] if not models and self.peer.neighbours else self.admission.ask(models)
        return [*asking, *super().use(models)]

    def on_answered(self, name: str, answer: Any) -> list[Action]:
        return self.admission.judge(self.peer, answer)

    def leave(self) -> list[Action]:
        return self.admission.leave()

    def forget(self, peers: Sequence[PeerId]) -> list[Action]:
        return self.admission.forget(peers)

    def state(self) -> dict[str, Any]:
        return self.admission.state()

    def restore(self, state: dict[str, Any]) -> None:
        self.admission.restore(state)


class Finished(Talking):
    """All updates are done. The peer goes on serving its model to others."""

    phase: ClassVar[str] = "finished"

    def begin(self) -> list[Action]:
        return [Finish()]

    def on_received(self, model: ModelRef, answer: bool) -> list[Action]:
        """Whoever is in step 1 hears those who are done so, where strangers may join."""
        is_stranger = self.peer.plan.admit and model.owner not in self.peer.neighbours
        answers: list[Action] = [Send(model.owner, answer=True)] if is_stranger and not answer else []
        return [*answers, Drop(model, "unused")]

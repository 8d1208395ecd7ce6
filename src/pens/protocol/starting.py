# SPDX-License-Identifier: Apache-2.0
"""A peer's first training, before it meets anybody."""

from __future__ import annotations

from typing import ClassVar

from pens.protocol.behaviour import Behaviour
from pens.protocol.messages import Action, WakeAfter


class Starting(Behaviour):
    """Train once on the own data (or not, as in the authors' code), and then go on as the plan says."""

    phase: ClassVar[str] = "starting"

    def begin(self) -> list[Action]:
        peer, plan = self.peer, self.peer.plan
        return [peer.update((), may_stop=False, keep=plan.keep)] if plan.train_first else self.on_updated()

    def on_updated(self) -> list[Action]:
        """Whoever can reach nobody at this moment trains alone, or waits for strangers where they may join."""
        peer, plan = self.peer, self.peer.plan
        if not peer.reachable and not plan.admit:
            return peer.enter("alone")
        if not peer.reachable:
            peer.neighbours = ()
        actions = peer.enter("searching" if plan.search and peer.reachable else "gossiping")
        if plan.pace == "push":
            actions.append(WakeAfter(plan.interval * peer.number()))  # a random phase
        return actions

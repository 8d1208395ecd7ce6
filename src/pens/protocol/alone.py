# SPDX-License-Identifier: Apache-2.0
"""Training without others: the baselines `local` and `central`, and a peer that has nobody to talk to."""

from __future__ import annotations

from typing import ClassVar

from pens.protocol.behaviour import Behaviour
from pens.protocol.messages import Action


class Alone(Behaviour):
    """One update after the other, for as long as gossip would last."""

    phase: ClassVar[str] = "alone"

    def begin(self) -> list[Action]:
        return [] if self.peer.plan.pace == "pull" else [self.peer.update((), may_stop=True)]

    def on_wake(self) -> list[Action]:
        return [self.peer.update((), may_stop=True)] if self.peer.plan.pace == "pull" else []

    def on_updated(self) -> list[Action]:
        self.peer.updates += 1
        return self.peer.enter("finished") if self.peer.updates >= self.peer.plan.rounds else self.begin()

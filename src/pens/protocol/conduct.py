# SPDX-License-Identifier: Apache-2.0
"""How others' models did in a peer's merges, and whom it drops for that (docs/decisions/0081).

Not in the paper, and only where the models of others are not trusted (`[trust] gate`). Learners say of every model that
came to be merged how it did (`Verdict`). A peer that sent too many bad ones is dropped: for a while nothing of it is
taken, it is no neighbour, and no rule makes it one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pens.protocol.messages import PeerId

Verdict = Literal["good", "hurts", "echo", "absurd", "twin"]
"""good: merged. hurts: left out of a merge, because it made that worse. echo: (nearly) a multiple of a model that the
peer itself sent. absurd: far larger or smaller than any model that training makes. twin: (nearly) a multiple of a model
of another sender beside it; who copied whom is not known, so nobody is blamed."""

VERDICTS: tuple[Verdict, ...] = ("good", "hurts", "echo", "absurd", "twin")
_BLAMED = ("hurts", "echo", "absurd")


@dataclass(frozen=True)
class ConductRules:
    """When a peer drops another."""

    strikes: int
    """After so many bad models, if they are more than half of the latest."""
    merges: int
    """For so many of its own merges; each time twice as many as the time before."""


@dataclass
class Conduct:
    """What one peer remembers of the models that others sent."""

    done: int = 0
    """Merges so far."""
    latest: dict[PeerId, list[bool]] = field(default_factory=dict)
    """Of each sender's latest models, which were bad."""
    until: dict[PeerId, int] = field(default_factory=dict)
    """Those who are dropped, and the merge at which that is over."""
    times: dict[PeerId, int] = field(default_factory=dict)
    """How often each was dropped."""

    def judge(self, verdicts: Iterable[tuple[PeerId, Verdict]], rules: ConductRules) -> tuple[PeerId, ...]:
        """Count one merge; returns those who are dropped from now on, in ascending order."""
        self.done += 1
        self.until = {peer: end for peer, end in self.until.items() if end > self.done}
        for peer, verdict in verdicts:
            if verdict != "twin":
                self.latest[peer] = [*self.latest.get(peer, []), verdict in _BLAMED][-2 * rules.strikes :]
        fallen = sorted(peer for peer, bad in self.latest.items() if has_fallen(bad, rules.strikes))
        for peer in fallen:
            self.times[peer] = self.times.get(peer, 0) + 1
            self.until[peer] = self.done + rules.merges * 2 ** min(self.times[peer] - 1, 20)
            del self.latest[peer]
        return tuple(fallen)

    def is_dropped(self, peer: PeerId) -> bool:
        """Whether nothing of this peer is taken."""
        return peer in self.until

    def state(self) -> list[Any]:
        """As plain data."""
        return [self.done, *([[peer, of] for peer, of in by.items()] for by in (self.latest, self.until, self.times))]

    @staticmethod
    def restored(state: Sequence[Any]) -> Conduct:
        """What `state` described."""
        done, latest, until, times = state
        return Conduct(done, *({PeerId(peer): of for peer, of in pairs} for pairs in (latest, until, times)))


def has_fallen(bad: Sequence[bool], strikes: int) -> bool:
    """Whether enough of a sender's latest models were bad, and more than half of them."""
    return sum(bad) >= strikes and 2 * sum(bad) > len(bad)


def is_clearly_worse(losses: Sequence[float], own: Sequence[float], margin: float) -> bool:
    """Whether a model loses more than the peer's own on the same samples, by more than so many standard errors of the
    mean difference. With fewer than two samples nobody can tell; a loss that is no number is worse than any."""
    differences = [a - b for a, b in zip(losses, own, strict=True)]
    if not all(map(math.isfinite, losses)):
        return True
    count = len(differences)
    if count < 2 or not all(map(math.isfinite, differences)):
        return False
    mean = math.fsum(differences) / count
    variance = math.fsum((each - mean) ** 2 for each in differences) / (count - 1)
    return mean > margin * math.sqrt(variance / count)

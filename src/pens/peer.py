# SPDX-License-Identifier: Apache-2.0
"""Peer.handle: the paper's two algorithms as decisions. Peers decide, drivers do.

Theory of operation. A peer goes through phases, and has one behaviour in each (`pens.protocol`):

    starting ── first training ──▶ searching ── T samplings ──▶ selecting ──▶ gossiping ── T updates ──▶ finished
                                   (PENS step 1)                              (Algorithm 1, PENS step 2)
             └──────────── random, oracle ─────────────────────────────────▶ gossiping
             └──────────── local, central ──────────────────────────────────▶ alone ───── T updates ──▶ finished

`handle` is synchronous and deterministic. It sees the peer's own state and the names of the models it was sent. Its
random choices come from streams named after the peer and a counter (`pens.rng`), so its whole state is a few numbers,
and the same events give the same actions under every driver. Where a choice depends on numbers, the peer asks for them
(`Ask`) and goes on when it is answered.

MAIN of both listings comes in two paces. `push`: wait Δ, send the own model to one random peer (the listing). `pull`:
at the beginning of a round, ask as many random peers as are needed for theirs (the schedule `rounds`). What happens on
receipt is the same in both.

A peer that heard too few others in step 1 to compare them begins step 2 without neighbours where strangers may join
(`Plan.admit`): it trains alone, goes on sending to everybody, and judges strangers beside its own model. Every phase
ends after a bounded number of waits and updates, whatever does or does not arrive.

Whom a peer may talk to can change while it lives (in a network, peers come and go): `reachable` is a view. Nobody is
sent to while it is not reachable, and whoever can reach nobody waits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pens import rng
from pens.messages import (
    Action,
    Answered,
    Drop,
    Event,
    ModelRef,
    PeerId,
    Pulled,
    Received,
    Start,
    Update,
    Updated,
    Wake,
)
from pens.protocol.alone import Alone
from pens.protocol.behaviour import Behaviour
from pens.protocol.gossiping import Admitting, Finished, Gossiping
from pens.protocol.searching import Search, Searching, Selecting
from pens.protocol.starting import Starting

Behaviours = Mapping[str, Callable[["Peer"], Behaviour]]

BEHAVIOURS: Behaviours = {
    behaviour.phase: behaviour for behaviour in (Starting, Searching, Selecting, Gossiping, Alone, Finished)
}
"""The behaviour in each phase, unless the plan has another."""


@dataclass(frozen=True)
class Plan:
    """What a peer has been told to do. The same for all peers of a run, but for the epochs of step 1."""

    pace: Literal["push", "pull"]
    rounds: int
    """T of gossiping or of training alone."""
    n_peers: int
    epochs: int
    search: Search | None
    """None: no step 1."""
    accept_anyone: bool = False
    interval: float = 1.0
    """Δ of WAIT(Δ)."""
    jitter: float = 0.0
    give_up: float = 3.0
    """How much longer than the usual number of waits a peer holds out for models that do not come."""
    admit: bool = False
    """Whether strangers may become neighbours in step 2. Only where models are pushed."""
    admission_trials: int = 6
    """After so many, a stranger may become a neighbour."""
    train_first: bool = True
    """Whether a peer trains before its first exchange."""
    behaviours: Behaviours = field(default_factory=dict)
    """Of phases in which a peer behaves otherwise than usual (`BEHAVIOURS`), and of those that the usual plan lacks."""

    def behaviour(self, phase: str) -> Callable[[Peer], Behaviour]:
        """What makes a peer's behaviour in a phase."""
        if self.admit and phase == Admitting.phase:
            return self.behaviours.get(phase, Admitting)
        return self.behaviours.get(phase) or BEHAVIOURS[phase]


class Peer:
    """One peer of the network: what outlives a phase. What it does is its behaviour's."""

    def __init__(self, me: PeerId, seed: int, plan: Plan, reachable: Sequence[PeerId]) -> None:
        """`reachable`: whom it may talk to, in ascending order. Empty when the first training ends: it trains alone."""
        self.me, self.plan = me, plan
        self._seed, self._key = seed, rng.key(seed, "peer", me)
        self.reachable = reachable
        self.neighbours: Sequence[PeerId] = reachable
        self.updates = 0
        """Updates done in this phase."""
        self.waits = 0
        """WAIT(Δ)s since step 1 began; in step 2, since the last update."""
        self.busy = False
        """Whether an update is in progress."""
        self._draws = 0  # random decisions taken so far
        self._saved: dict[PeerId, ModelRef] = {}  # SAVE(w_i): the newest model of each sender, oldest first
        self.behaviour = plan.behaviour("starting")(self)

    @property
    def phase(self) -> str:
        return self.behaviour.phase

    @property
    def progress(self) -> tuple[int, int]:
        """What is done of this phase, and how much there is at most: samplings in step 1, updates elsewhere."""
        return self.behaviour.progress

    def handle(self, event: Event) -> list[Action]:
        """What the peer wants done, now that this has happened to it."""
        match event:
            case Start():
                return self.behaviour.begin()
            case Wake():
                return self.behaviour.on_wake()
            case Received(model, answer):
                return self.behaviour.on_received(model, answer)
            case Pulled(models):
                return self.behaviour.on_pulled(models)
            case Updated():
                self.busy = False
                return self.behaviour.on_updated()
            case Answered(name, answer):
                return self.behaviour.on_answered(name, answer)

    # --- for behaviours -----------------------------------------------------------------------------------------------

    def enter(self, phase: str) -> list[Action]:
        """Begin a phase afresh: counters at zero, nothing saved."""
        kept = [*self._saved.values()]
        leftovers: list[Action] = [*(Drop(model, "unused") for model in kept), *self.behaviour.leave()]
        self.updates, self.waits, self._saved = 0, 0, {}
        self.behaviour = self.plan.behaviour(phase)(self)
        return [*leftovers, *self.behaviour.begin()]

    def update(
        self,
        models: tuple[ModelRef, ...],
        *,
        may_stop: bool,
        top_m: int | None = None,
        epochs: int | None = None,
        anew: bool = False,
    ) -> Update:
        """Merge and train: the peer is busy until that is done."""
        self.busy = True
        return Update(models, top_m, self.plan.epochs if epochs is None else epochs, may_stop, anew)

    @property
    def num_saved(self) -> int:
        """Senders of whom a model waits to be used."""
        return len(self._saved)

    def save(self, model: ModelRef) -> ModelRef | None:
        """SAVE(w_i): keep a received model; returns the sender's older one, which it replaces."""
        older = self._saved.pop(model.owner, None)
        self._saved[model.owner] = model
        return older

    def take(self, count: int) -> tuple[ModelRef, ...]:
        """The oldest saved models, which are no longer saved then."""
        senders = list(self._saved)[:count]
        return tuple(self._saved.pop(sender) for sender in senders)

    def next_wait(self) -> float:
        """Δ, with jitter."""
        return self.plan.interval * (1 + self.plan.jitter * (2 * self.number() - 1))

    def random(self) -> random.Random:
        """A stream for the next random decision."""
        self._draws += 1
        return rng.stream(self._seed, "peer", self.me, self._draws)

    def number(self) -> float:
        """The next random number.  0 … 1"""
        self._draws += 1
        return rng.number(self._key, self._draws)

    # --- state on disk -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that changes over a peer's life, as plain data."""
        return {
            "phase": self.phase,
            "updates": self.updates,
            "waits": self.waits,
            "draws": self._draws,
            "busy": self.busy,
            "saved": [[ref.owner, ref.version] for ref in self._saved.values()],
            "neighbours": None if self.neighbours is self.reachable else list(self.neighbours),
            "behaviour": self.behaviour.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` described."""
        self.updates, self.waits = state["updates"], state["waits"]
        self._draws, self.busy = state["draws"], state["busy"]
        self._saved = {PeerId(o): ModelRef(PeerId(o), v) for o, v in state["saved"]}
        if state["neighbours"] is not None:
            self.neighbours = tuple(PeerId(p) for p in state["neighbours"])
        self.behaviour = self.plan.behaviour(state["phase"])(self)
        self.behaviour.restore(state["behaviour"])

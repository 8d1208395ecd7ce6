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

Where the plan does not trust others' models (`Plan.trust`), a peer asks beside every update how the models did that it
merges, and drops those who keep sending bad ones: whatever the behaviour, nothing of theirs reaches it for a while.

Whom a peer may talk to can change while it lives (in a network, peers come and go): `reachable` is a view. Nobody is
sent to while it is not reachable, and whoever can reach nobody waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pens.protocol.alone import Alone
from pens.protocol.behaviour import Behaviour
from pens.protocol.conduct import Conduct
from pens.protocol.gossiping import Admitting, Finished, Gossiping
from pens.protocol.guarded import guarded
from pens.protocol.messages import (
    Action,
    Answered,
    Ask,
    Chose,
    Drop,
    Event,
    ModelRef,
    Note,
    PeerId,
    Pulled,
    Received,
    Request,
    Shun,
    Start,
    Update,
    Updated,
    Verdicts,
    Wake,
)
from pens.protocol.plan import Plan
from pens.protocol.searching import Searching, Selecting, Trying
from pens.protocol.situation import Situation
from pens.protocol.starting import Starting

BEHAVIOURS: Mapping[str, Callable[[Situation], Behaviour]] = {
    behaviour.phase: behaviour for behaviour in (Starting, Searching, Selecting, Trying, Gossiping, Alone, Finished)
}
"""The behaviour in each phase, unless the plan has another."""

CONDUCT = "pens: conduct"
"""The question how others' models did, beside those of behaviours."""


class Peer(Situation):
    """One peer of the network. What it does is its behaviour's."""

    def __init__(
        self, me: PeerId, seed: int, plan: Plan, reachable: Sequence[PeerId], tries_state: bool = False
    ) -> None:
        """`reachable`: whom it may talk to, in ascending order. Empty when the first training ends: it trains alone."""
        self.tries_state = tries_state
        super().__init__(me, seed, plan, reachable)
        self.behaviour = self._behaviour_in("starting")

    def _behaviour_in(self, phase: str) -> Behaviour:
        usual = Admitting if self.plan.admit and phase == Gossiping.phase else BEHAVIOURS.get(phase)
        make = self.plan.behaviours.get(phase, usual)
        assert make, f"the plan has no behaviour in phase {phase!r}"
        return guarded(make, self, phase)

    @property
    def phase(self) -> str:
        return self.behaviour.phase

    @property
    def progress(self) -> tuple[int, int]:
        """What is done of this phase, and how much there is at most: samplings in step 1, updates elsewhere."""
        return self.behaviour.progress

    def handle(self, event: Event) -> list[Action]:
        """What the peer wants done, now that this has happened to it."""
        if not self.plan.trust:
            return self._handle(event)
        match event:
            case Received(model) if self.conduct.is_dropped(model.owner):
                return [Drop(model, "refused")]
            case Answered(name, answer) if name == CONDUCT:
                return self._judge(answer)
            case _:
                return [wary for action in self._handle(event) for wary in self._warily(action)]

    def _warily(self, action: Action) -> list[Action]:
        """Ask how models did beside each update that merges some; request none of those who are dropped."""
        if isinstance(action, Update) and action.models:
            return [Ask(CONDUCT, Verdicts(), when="updated"), action]
        if isinstance(action, Request):
            return [Request(tuple(peer for peer in action.sources if not self.conduct.is_dropped(peer)))]
        return [action]

    def _judge(self, verdicts: Any) -> list[Action]:
        """Count how others' models did, and drop those whose models keep hurting."""
        assert self.plan.trust
        if not (fallen := self.conduct.judge(verdicts, self.plan.trust)):
            return []
        drops = self.behaviour.forget(fallen)
        if self.neighbours is self.reachable or not set(fallen) & set(self.neighbours):
            return [Shun(fallen), *drops]
        self.neighbours = tuple(peer for peer in self.neighbours if peer not in fallen)
        return [Shun(fallen), Chose(self.neighbours, "distrust"), *drops]

    def _handle(self, event: Event) -> list[Action]:
        """The same, whether or not others' models are trusted."""
        match event:
            case Start():
                return self.behaviour.begin()
            case Wake():
                return self.behaviour.on_wake()
            case Received(model, answer, note):
                if note is not None:
                    self.notes[model.owner] = note
                return self.behaviour.on_received(model, answer)
            case Pulled(models, notes):
                for model, note in zip(models, notes, strict=False):
                    if note is not None:
                        self.notes[model.owner] = note
                return self.behaviour.on_pulled(models)
            case Updated():
                self.busy = False
                return self.behaviour.on_updated()
            case Answered(name, answer):
                return self.behaviour.on_answered(name, answer)

    def note(self) -> Note:
        """What the peer says beside its model at this moment."""
        return self.behaviour.note() if self.plan.notes else None

    def enter(self, phase: str) -> list[Action]:
        """Begin a phase afresh: counters at zero, nothing saved."""
        leftovers: list[Action] = [*(Drop(model, "unused") for model in self.saved), *self.behaviour.leave()]
        if phase == Finished.phase:
            leftovers += [Drop(model, "unused") for model in self.made.values()]
            self.made = {}
        self.updates, self.waits, self._saved = 0, 0, {}
        self.behaviour = self._behaviour_in(phase)
        return [*leftovers, *self.behaviour.begin()]

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
            "made": [[name, ref.version] for name, ref in self.made.items()],
            "num_made": self._num_made,
            "notes": [[peer, note] for peer, note in self.notes.items()],
            "behaviour": self.behaviour.state(),
            **({"conduct": self.conduct.state()} if self.plan.trust else {}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` described."""
        self.updates, self.waits = state["updates"], state["waits"]
        self._draws, self.busy = state["draws"], state["busy"]
        self._saved = {PeerId(o): ModelRef(PeerId(o), v) for o, v in state["saved"]}
        self.made = {name: ModelRef(self.me, version) for name, version in state["made"]}
        self._num_made = state["num_made"]
        self.notes = {PeerId(peer): note for peer, note in state["notes"]}
        self.conduct = Conduct.restored(state["conduct"]) if "conduct" in state else Conduct()
        if state["neighbours"] is not None:
            self.neighbours = tuple(PeerId(p) for p in state["neighbours"])
        self.behaviour = self._behaviour_in(state["phase"])
        self.behaviour.restore(state["behaviour"])

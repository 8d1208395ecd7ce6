# SPDX-License-Identifier: Apache-2.0
"""Peer.handle: the paper's two algorithms as decisions. Peers decide, drivers do.

Theory of operation. A peer goes through phases:

    starting ── first training ──▶ searching ── T samplings ──▶ selecting ──▶ gossiping ── T updates ──▶ finished
                                   (PENS step 1)                              (Algorithm 1, PENS step 2)
             └──────────── random, oracle ─────────────────────────────────▶ gossiping
             └──────────── local, central ──────────────────────────────────▶ alone ───── T updates ──▶ finished

`handle` is synchronous and deterministic. It sees the peer's own state and the names of the models it was sent. Its
random choices come from streams named after the peer and a counter (`pens.rng`), so its whole state is a few numbers,
and the same events give the same actions under every driver.

MAIN of both listings comes in two paces. `push`: wait Δ, send the own model to one random peer (the listing). `pull`:
at the beginning of a round, ask as many random peers as are needed for theirs (the schedule `rounds`). What happens on
receipt is the same in both.

Trap: in step 2 a pushed model comes from whoever chose the receiver, not from those whom the receiver chose. Only
models of own neighbours are accepted, unless the plan says otherwise; the rest are dropped as refused, and counted.

With `Plan.admit`, which is not in the paper, step 2 is open to those who come late: a stranger's model is answered with
an own one, kept, and judged beside the neighbours' at the next update; who does well becomes a neighbour
(docs/decisions/0018-late-joiners.md). A peer that heard too few others in step 1 to compare them begins step 2 without
neighbours: it trains alone, goes on sending to everybody, and judges strangers beside its own model. Every phase ends
after a bounded number of waits and updates, whatever does or does not arrive.

Whom a peer may talk to can change while it lives (in a network, peers come and go): `reachable` is a view. Nobody is
sent to while it is not reachable, and whoever can reach nobody waits.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pens import rng
from pens.messages import (
    Action,
    Drop,
    Event,
    Finish,
    Judge,
    ModelRef,
    PeerId,
    Pulled,
    Received,
    Request,
    Score,
    Select,
    Selected,
    Send,
    Start,
    Update,
    Updated,
    Wake,
    WakeAfter,
)

Phase = Literal["starting", "searching", "selecting", "gossiping", "alone", "finished"]

_STRANGERS = 16  # models of strangers that are kept until they are judged


@dataclass(frozen=True)
class Search:
    """PENS step 1 (Algorithm 2)."""

    n_sampled: int
    m: int
    rounds: int
    samplings_per_round: int
    epochs: int
    """May differ between peers, with the number of samples that each holds."""
    anew: bool = False
    """Not in the paper: step 2 begins with another model than step 1 ended with."""


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
    train_first: bool = True
    """Whether a peer trains before its first exchange."""


class Peer:
    """One peer of the network."""

    def __init__(self, me: PeerId, seed: int, plan: Plan, reachable: Sequence[PeerId]) -> None:
        """`reachable`: whom it may talk to, in ascending order. Empty when the first training ends: it trains alone."""
        self.me, self.plan = me, plan
        self._seed, self._key = seed, rng.key(seed, "peer", me)
        self._reachable = reachable
        self.neighbours: Sequence[PeerId] = reachable
        self.phase: Phase = "starting"
        self.updates = 0
        """Updates done in this phase."""
        self.waits = 0
        """WAIT(Δ)s since step 1 began; in step 2, since the last update."""
        self._samplings = 0  # of the current round
        self._draws = 0  # random decisions taken so far
        self._busy = False  # an update is in progress
        self._buffer: dict[PeerId, ModelRef] = {}  # SAVE(w_i): the newest model of each sender, oldest first
        self._strangers: dict[PeerId, ModelRef] = {}  # likewise, of those to be judged

    @property
    def progress(self) -> tuple[int, int]:
        """What is done of this phase, and how much there is at most: samplings in step 1, updates elsewhere."""
        if self.phase != "searching" or not self.plan.search:
            return self.updates, self.plan.rounds
        each = self.plan.search.samplings_per_round
        return (self.updates + self._busy) * each + self._samplings, self.plan.search.rounds * each

    def handle(self, event: Event) -> list[Action]:
        """What the peer wants done, now that this has happened to it."""
        match event:
            case Start():
                return self._update((), top_m=None) if self.plan.train_first else self._after_first_training()
            case Wake():
                return self._main()
            case Received(model, answer):
                return self._on_receive_model(model, answer)
            case Pulled(models):
                return self._on_pulled(models)
            case Updated():
                return self._on_updated()
            case Selected(neighbours):
                return self._on_selected(neighbours)

    # --- MAIN, both algorithms ---------------------------------------------------------------------------------------

    def _main(self) -> list[Action]:
        if self.plan.pace == "pull":
            return self._begin_round()
        if self.neighbours is self._reachable and not self._reachable:
            return [WakeAfter(self._next_wait())]
        if not self.neighbours and not self.plan.admit:
            return []
        whom = self._someone()
        sends = [] if whom is None else [Send(whom)]
        return [*sends, WakeAfter(self._next_wait()), *self._hold_out()]

    def _someone(self) -> PeerId | None:
        """RANDOMPEER: a neighbour, or anybody without any; if that one is not reachable, another; None if none is."""
        others = self.neighbours or self._reachable
        if not others:
            return None
        whom = others[int(self._number() * len(others))]
        if others is self._reachable or whom in self._reachable:
            return whom
        there = [neighbour for neighbour in others if neighbour in self._reachable]
        return there[int(self._number() * len(there))] if there else None

    def _hold_out(self) -> list[Action]:
        """Not in the listing: whoever waits in vain goes on. About one model comes per wait, so waits can be counted.

        In step 2 a peer may wait for neighbours that never chose it, and would wait for ever: it merges what it has, or
        trains on alone. Step 1 ends with what it has counted, and where that is nothing, with what it has received.
        """
        if self.phase not in ("searching", "gossiping"):
            return []
        self.waits += 1
        if self._busy or self.waits < self.plan.give_up * self._usual_waits():
            return []
        if self.phase == "searching" and self.plan.search:
            return [*self._compare_the_few(self.plan.search), *self._end_phase()]
        return self._update(self._take(len(self._buffer)), top_m=None)

    def _compare_the_few(self, search: Search) -> list[Action]:
        """Step 1 ends before n_sampled models have ever come: compare those that have.

        The top m of m models or fewer would be no choice. Where strangers may become neighbours later, nobody is taken
        for want of others.
        """
        enough = search.m + 1 if self.plan.admit else 1
        if self.updates or self._samplings or len(self._buffer) < enough:
            return []
        return [Score(self._take(len(self._buffer)), search.m)]

    def _usual_waits(self) -> float:
        """Waits until an update of step 2, or until the end of step 1, if everybody is heard."""
        others = len(self.neighbours or self._reachable)  # without neighbours, at the pace of those who have some
        waits = waits_for(min(self._wanted(), others), others)
        if self.phase == "searching" and self.plan.search:
            return waits * self.plan.search.rounds * self.plan.search.samplings_per_round
        return waits

    def _begin_round(self) -> list[Action]:
        if self.phase == "alone":
            return self._update((), top_m=None)
        return self._sample() if self.phase in ("searching", "gossiping") else []

    def _sample(self) -> list[Action]:
        """RANDOMPEER, as often as models are waited for."""
        places = self._random().sample(range(len(self.neighbours)), self._threshold())
        return [Request(tuple(self.neighbours[place] for place in places))]

    def _next_wait(self) -> float:
        return self.plan.interval * (1 + self.plan.jitter * (2 * self._number() - 1))

    # --- ONRECEIVEMODEL, both algorithms -----------------------------------------------------------------------------

    def _on_receive_model(self, model: ModelRef, answer: bool) -> list[Action]:
        if self.plan.admit and self.phase in ("gossiping", "finished") and model.owner not in self.neighbours:
            return self._meet(model, answer)
        if self.phase not in ("searching", "gossiping"):
            return [Drop(model, "unused")]
        if not self._accepts(model.owner):
            return [Drop(model, "refused")]
        older = self._buffer.pop(model.owner, None)
        self._buffer[model.owner] = model
        return [*([Drop(older, "replaced")] if older else []), *self._merge_if_full()]

    def _on_pulled(self, models: tuple[ModelRef, ...]) -> list[Action]:
        """As many as were waited for, of different peers, all of them asked: there is nothing to refuse or replace."""
        for model in models:
            self._buffer[model.owner] = model
        return self._merge_if_full()

    def _meet(self, model: ModelRef, answer: bool) -> list[Action]:
        """A stranger's model: answer it, and keep it to be judged. Whoever is in step 1 hears those in step 2 so."""
        answers: list[Action] = [] if answer else [Send(model.owner, answer=True)]
        if self.phase == "finished":
            return [*answers, Drop(model, "unused")]
        older = self._strangers.pop(model.owner, None)
        if older is None and len(self._strangers) == _STRANGERS:
            older = self._strangers.pop(next(iter(self._strangers)))
        self._strangers[model.owner] = model
        return [*answers, *([Drop(older, "replaced")] if older else [])]

    def _accepts(self, sender: PeerId) -> bool:
        return self.phase == "searching" or self.plan.accept_anyone or sender in self.neighbours

    def _threshold(self) -> int:
        """Models that the peer waits for: n_sampled in step 1, else n_peers, or all neighbours if they are fewer."""
        return min(self._wanted(), len(self.neighbours))

    def _wanted(self) -> int:
        return self.plan.search.n_sampled if self.phase == "searching" and self.plan.search else self.plan.n_peers

    def _merge_if_full(self) -> list[Action]:
        if self._busy or not self._buffer or len(self._buffer) < self._threshold():
            return []
        if self.phase == "searching" and self.plan.search:
            return self._compare(self.plan.search)
        return self._update(self._take(len(self._buffer)), top_m=None)

    def _compare(self, search: Search) -> list[Action]:
        """Algorithm 2, n_sampled models received: count the top m, and merge those of a round's last sampling."""
        models = self._take(max(1, self._threshold()))
        self._samplings += 1
        if self._samplings < search.samplings_per_round:
            more = self._sample() if self.plan.pace == "pull" else self._merge_if_full()
            return [Score(models, search.m), *more]
        self._samplings = 0
        return self._update(models, top_m=search.m)

    def _take(self, count: int) -> tuple[ModelRef, ...]:
        """The oldest saved models, which leave the buffer."""
        senders = list(self._buffer)[:count]
        return tuple(self._buffer.pop(sender) for sender in senders)

    # --- updates and phases ------------------------------------------------------------------------------------------

    def _update(self, models: tuple[ModelRef, ...], top_m: int | None) -> list[Action]:
        self._busy = True
        searching = self.plan.search if self.phase == "searching" else None
        epochs = searching.epochs if searching else self.plan.epochs
        update = Update(models, top_m, epochs, may_stop=self.phase in ("gossiping", "alone"))
        return [*self._judge(models), update] if self._strangers else [update]

    def _judge(self, models: tuple[ModelRef, ...]) -> list[Action]:
        """Strangers are judged beside the neighbours whose models are merged: not in an update that merges none, unless
        the peer has no neighbours at all, and its own model takes their place."""
        if not models and self.neighbours:
            return []
        strangers, self._strangers = tuple(self._strangers.values()), {}
        return [Judge(strangers, models)]

    def _on_updated(self) -> list[Action]:
        self._busy = False
        if self.phase == "starting":
            return self._after_first_training()
        self.updates += 1
        if self.phase == "gossiping":
            self.waits = 0
        if self.updates >= self._rounds():
            return self._end_phase()
        if self.phase == "alone":
            return [] if self.plan.pace == "pull" else self._update((), top_m=None)
        return self._merge_if_full()

    def _on_selected(self, neighbours: tuple[PeerId, ...]) -> list[Action]:
        if self.phase != "selecting":  # the answer to `Judge`
            self.neighbours = neighbours
            return []
        self.neighbours = neighbours
        entering = self._enter("gossiping" if neighbours or self.plan.admit else "alone")
        return [*entering, *self._begin_again()] if neighbours else entering

    def _begin_again(self) -> list[Action]:
        """As at the start, where the plan wants step 2 to begin with another model."""
        if not (self.plan.search and self.plan.search.anew):
            return []
        self._busy = True
        return [Update((), None, self.plan.epochs, may_stop=True, anew=True)]

    def _after_first_training(self) -> list[Action]:
        if not self._reachable and not self.plan.admit:
            return self._enter("alone")
        if not self._reachable:
            self.neighbours = ()
        actions = self._enter("searching" if self.plan.search and self._reachable else "gossiping")
        if self.plan.pace == "push":
            actions.append(WakeAfter(self.plan.interval * self._number()))  # a random phase
        return actions

    def _rounds(self) -> int:
        return self.plan.search.rounds if self.phase == "searching" and self.plan.search else self.plan.rounds

    def _end_phase(self) -> list[Action]:
        return (
            [*self._enter("selecting"), Select()] if self.phase == "searching" else [*self._enter("finished"), Finish()]
        )

    def _enter(self, phase: Phase) -> list[Action]:
        """Begin a phase afresh: counters at zero, nothing saved."""
        kept = [*self._buffer.values(), *self._strangers.values()]
        leftovers: list[Action] = [Drop(model, "unused") for model in kept]
        self.phase, self.updates, self.waits, self._samplings = phase, 0, 0, 0
        self._buffer, self._strangers = {}, {}
        if phase == "alone" and self.plan.pace == "push":
            return [*leftovers, *self._update((), top_m=None)]
        return leftovers

    def _random(self) -> random.Random:
        self._draws += 1
        return rng.stream(self._seed, "peer", self.me, self._draws)

    def _number(self) -> float:
        self._draws += 1
        return rng.number(self._key, self._draws)

    # --- state on disk -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that changes over a peer's life, as plain data."""
        return {
            "phase": self.phase,
            "updates": self.updates,
            "waits": self.waits,
            "samplings": self._samplings,
            "draws": self._draws,
            "busy": self._busy,
            "buffer": [[ref.owner, ref.version] for ref in self._buffer.values()],
            "strangers": [[ref.owner, ref.version] for ref in self._strangers.values()],
            "neighbours": None if self.neighbours is self._reachable else list(self.neighbours),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Become what `state` described."""
        self.phase, self.updates, self.waits = state["phase"], state["updates"], state["waits"]
        self._samplings, self._draws, self._busy = state["samplings"], state["draws"], state["busy"]
        self._buffer = {PeerId(o): ModelRef(PeerId(o), v) for o, v in state["buffer"]}
        self._strangers = {PeerId(o): ModelRef(PeerId(o), v) for o, v in state["strangers"]}
        if state["neighbours"] is not None:
            self.neighbours = tuple(PeerId(p) for p in state["neighbours"])


@functools.cache
def waits_for(count: int, senders: int) -> float:
    """Waits until so many of N senders were heard, one random one per wait: N/N + N/(N − 1) + … + N/(N − n + 1)."""
    return sum(senders / (senders - i) for i in range(count))

"""Simulator: drives all peers of a run in virtual time, and computes their updates in batches.

Theory of operation. There is one event loop for both schedules.

`async`: peers wake themselves (WAIT(Δ)), messages take the links' latency, updates the links' training time.
`rounds`: a metronome wakes every active peer at times 1, 2, 3, …; requests are answered at once, from the models as
they are at that moment; updates complete half a unit later. All peers of a round thus pull from one snapshot.

Virtual time is cut into windows: a round, or a few waits. Within a window events run ahead of the numbers: updates are
only recorded. At the end of each window everything recorded is computed, in batches, and only there does the simulator
look at numbers (who has stopped early), save its state or stop. Windows are a property of the settings, so neither the
batch size nor an interruption can change what happens. The one exception is a peer that selects its neighbours: for it,
all that is recorded is computed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from pens.learners import Learners
from pens.links import Links
from pens.messages import (
    Action,
    Drop,
    Event,
    Finish,
    ModelRef,
    PeerId,
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
from pens.metrics import Traffic
from pens.peer import Peer
from pens.policies import SelectionRule, choose_neighbours
from pens.scheduler import EventQueue

Trace = Callable[[float, PeerId, Event, list[Action]], None]


@dataclass(frozen=True)
class Schedule:
    """What drives virtual time."""

    metronome: bool
    """`rounds`: the simulator wakes the peers, once per window."""
    window: float
    """Virtual time between two looks at the numbers."""
    links: Links


class Simulator:
    """All peers of one run."""

    def __init__(
        self,
        peers: Sequence[Peer],
        learners: Learners,
        schedule: Schedule,
        selection: SelectionRule | None,
        trace: Trace | None = None,
    ) -> None:
        self.peers, self.learners = peers, learners
        self._schedule, self._selection, self._trace = schedule, selection, trace
        self._queue = EventQueue()
        self._windows = 0
        self.current = [learners.first_model(p.me) for p in peers]
        self._coming: list[ModelRef | None] = [None] * len(peers)
        self.traffic = Traffic(len(peers))
        self.fallbacks: list[PeerId] = []
        """Peers that selected nobody more than expected."""
        self.selections: dict[PeerId, tuple[PeerId, ...]] = {}
        """The neighbours that each peer chose at the end of step 1."""
        for peer in peers:
            self._queue.put(0.0, peer.me, Start())

    @property
    def now(self) -> float:
        return self._queue.now

    def is_over(self) -> bool:
        """Whether every peer has finished its updates or stopped early."""
        return all(self._is_done(peer) for peer in self.peers)

    def _is_done(self, peer: Peer) -> bool:
        return peer.phase == "finished" or self.learners.stop_times[peer.me] <= self.now

    def run_window(self) -> None:
        """Let one window of virtual time pass, and compute what happened in it."""
        if self._schedule.metronome and self._windows:
            for peer in self.peers:
                if not self._is_done(peer):
                    self._queue.put(0.0, peer.me, Wake())
        self._windows += 1
        end = self._windows * self._schedule.window
        while upcoming := self._queue.next_before(end):
            self._handle(*upcoming)
        self.learners.compute()

    def _handle(self, me: PeerId, event: Event) -> None:
        if isinstance(event, Updated):
            self._exchange_model(me)
        if isinstance(event, Received):
            self.traffic.received[me] += 1
        actions = self.peers[me].handle(event)
        if self._trace:
            self._trace(self.now, me, event, actions)
        for action in actions:
            self._act(me, action)

    def _act(self, me: PeerId, action: Action) -> None:
        match action:
            case Send(to):
                self._deliver(me, to, self._schedule.links.latency)
            case Request(sources):
                for source in sources:
                    self._deliver(source, me, 0.0)
            case WakeAfter(delay):
                self._queue.put(delay, me, Wake())
            case Score():
                self.learners.record_score(me, action, self.now)
            case Update():
                delay = self._schedule.links.training_delay(action.epochs)
                delay = 0.5 if self._schedule.metronome else delay
                coming = self.learners.record_update(me, self.current[me], action, self.now + delay)
                self._coming[me] = coming
                self.traffic.begin_update(me, coming.version)
                self._queue.put(delay, me, Updated())
            case Select():
                self._handle(me, Selected(self._select(me)))
            case Drop(model, why):
                self.learners.release(model)
                self.traffic.refused[me] += why == "refused"
            case Finish():
                pass

    def _deliver(self, sender: PeerId, receiver: PeerId, delay: float) -> None:
        """Put the sender's model, as it is now, on its way."""
        model = self.learners.retain(self.current[sender])
        self.traffic.sent[sender] += 1
        self._queue.put(delay, receiver, Received(model))

    def _exchange_model(self, me: PeerId) -> None:
        coming = self._coming[me]
        assert coming
        self.learners.release(self.current[me])
        self.current[me], self._coming[me] = coming, None

    def _select(self, me: PeerId) -> tuple[PeerId, ...]:
        assert self._selection, "a peer that searches needs a selection rule"
        self.learners.compute()
        selection = choose_neighbours(self.learners.tallies[me], self._selection)
        self.selections[me] = selection.neighbours
        if selection.fallback:
            self.fallbacks.append(me)
        return selection.neighbours

    def progress(self) -> float:
        """The share of all updates that is done, with early stops counted as done.  0 … 1"""
        return float(np.mean([1.0 if self._is_done(p) else _share_done(p) for p in self.peers]))

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything that changes, messages in flight included. Only between windows."""
        learners, tensors = self.learners.state()
        data = {
            "learners": learners,
            "queue": self._queue.state(),
            "windows": self._windows,
            "peers": [peer.state() for peer in self.peers],
            "current": [ref.version for ref in self.current],
            "coming": [ref.version if ref else None for ref in self._coming],
            "traffic": self.traffic.state(),
            "fallbacks": self.fallbacks,
            "selections": [[peer, list(neighbours)] for peer, neighbours in self.selections.items()],
        }
        return data, {**tensors, "traffic": self.traffic.at_update.state()}

    def restore(self, data: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Become what `state` described."""
        self.learners.restore(data["learners"], tensors)
        self._queue.restore(data["queue"])
        self._windows = data["windows"]
        for peer, state in zip(self.peers, data["peers"], strict=True):
            peer.restore(state)
        self.current = [ModelRef(PeerId(p), v) for p, v in enumerate(data["current"])]
        self._coming = [None if v is None else ModelRef(PeerId(p), v) for p, v in enumerate(data["coming"])]
        self.traffic.restore(data["traffic"])
        self.traffic.at_update.restore(tensors["traffic"])
        self.fallbacks = [PeerId(p) for p in data["fallbacks"]]
        self.selections = {PeerId(p): tuple(PeerId(n) for n in neighbours) for p, neighbours in data["selections"]}


def _share_done(peer: Peer) -> float:
    searching = peer.plan.search.rounds if peer.plan.search else 0
    before = searching if peer.phase in ("gossiping", "selecting") else 0
    return (before + peer.updates) / (searching + peer.plan.rounds)

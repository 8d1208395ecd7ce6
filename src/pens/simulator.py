# SPDX-License-Identifier: Apache-2.0
"""Simulator: drives all peers of a run in virtual time, and computes their updates in batches.

Theory of operation. There is one event loop for both schedules.

`async`: peers wake themselves (WAIT(Δ)), messages take the links' latency, updates the links' training time.
`rounds`: a metronome wakes every active peer at times 1, 2, 3, …; requests are answered at once, from the models as
they are at that moment; updates complete half a unit later. All peers of a round thus pull from one snapshot. Where
they take turns instead, each one wakes when the update of the one before it is complete.

Events run ahead of the numbers: updates are only recorded. In `rounds` they run to the end of the round; in `async`
until a few updates per peer are recorded, since the more are known, the more of them can be computed together. Then
one batch is computed: all updates whose inputs are known. Numbers come back to the events at one place, a peer that
selects its neighbours: no event after that is looked at until its comparisons are computed, and not more than those.
Where strangers are judged, that is at the end of the update that they were judged with.

A run is over when every peer has finished its updates or stopped early. Events ran ahead of that moment, too, but what
happened after it is not counted. So nothing depends on how far they ran: neither batches nor an interruption, which can
come between any two of them, change what happens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from pens.calls import Work
from pens.learners import Learners
from pens.links import Links
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
from pens.metrics import Traffic
from pens.peer import Peer
from pens.policies import SelectionRule, admitted, choose_neighbours
from pens.scheduler import EventQueue

Trace = Callable[[float, PeerId, Event, list[Action]], None]


@dataclass(frozen=True)
class Schedule:
    """What drives virtual time."""

    metronome: bool
    """`rounds`: the simulator wakes the peers, at times 1, 2, 3, …"""
    links: Links
    updates_ahead: int = 2
    """`async`: how many updates per peer are recorded before some are computed."""
    in_turn: bool = False
    """`rounds`: one peer after the other, in the order of their numbers."""


def advance_together(simulators: Sequence[Simulator]) -> None:
    """One batch of each of several runs that share a workshop, computed as one."""
    workshop = simulators[0].learners.workshop
    workshop.carry_out([s.advance() for s in simulators], [s.look_ahead for s in simulators])


class Simulator:
    """All peers of one run."""

    def __init__(
        self,
        peers: Sequence[Peer],
        learners: Learners,
        schedule: Schedule,
        selection: SelectionRule | None,
        trace: Trace | None = None,
        admission_trials: int = 0,
    ) -> None:
        """`admission_trials`: after so many, a stranger may become a neighbour, where the plan has peers judge them."""
        self.peers, self.learners = peers, learners
        self._admission_trials = admission_trials
        self._schedule, self._selection, self._trace = schedule, selection, trace
        self._queue = EventQueue()
        self._rounds = 0
        self.current = [learners.first_model(p.me) for p in peers]
        self._coming: list[ModelRef | None] = [None] * len(peers)
        self._selecting: PeerId | None = None
        self._judging: set[PeerId] = set()
        self._num_going = len(peers)
        self._finish_times = [math.inf] * len(peers)
        self.traffic = Traffic(len(peers), math.inf if schedule.metronome else 0.0)
        self.fallbacks: set[PeerId] = set()
        """Peers that selected nobody more than expected."""
        self.selections: dict[PeerId, tuple[PeerId, ...]] = {}
        """The neighbours that each peer chose at the end of step 1."""
        self.admissions: list[tuple[float, PeerId, tuple[PeerId, ...]]] = []
        """When a peer's neighbours became which, in step 2; events ran ahead of the end of the run."""
        for peer in peers:
            self._queue.put(0.0, peer.me, Start())

    @property
    def now(self) -> float:
        """Virtual time; once the run is over, that of its end."""
        return self._queue.now if self._schedule.metronome else min(self._queue.now, self._end())

    def is_over(self) -> bool:
        """Whether every peer has finished its updates or stopped early, and all events until then are handled."""
        return self._end() < self._queue.now

    def _end(self) -> float:
        """When the last peer was done; infinite as long as one is not."""
        return max(self._done_time(peer) for peer in self.peers)

    def _done_time(self, peer: Peer) -> float:
        """When a peer stopped early or finished its updates, all of them computed; infinite before."""
        stopped = self.learners.stop_times[peer.me]
        if stopped < math.inf or self.learners.jobs.next_update(peer.me):
            return stopped
        return self._finish_times[peer.me]

    # --- running ahead, and computing ---------------------------------------------------------------------------------

    def advance(self) -> Work:
        """Let events run ahead, and compute one batch of updates."""
        if self._schedule.metronome and not self.learners.jobs.num_updates and self._selecting is None:
            self._begin_round()
        self._num_going = sum(self._is_going(peer.me) for peer in self.peers)
        end = self._rounds if self._schedule.metronome else math.nextafter(self._end(), math.inf)
        self._run_ahead(end)
        while self._selecting is not None:
            yield from self.learners.compare()
            if not self.learners.jobs.is_scored(self._selecting):
                break
            self._answer_selection(self._selecting)
            self._run_ahead(end)
        yield from self.learners.compute_batch()
        self.traffic.settle(self._certain_until())

    def _begin_round(self) -> None:
        if self._rounds:
            turn = 0.5 / len(self.peers) if self._schedule.in_turn else 0.0
            for place, peer in enumerate(self.peers):
                if self._done_time(peer) > self.now:
                    self._queue.put(place * turn, peer.me, Wake())
        self._rounds += 1

    def _run_ahead(self, end: float) -> None:
        """Handle all events before `end`, or until enough updates are recorded where it is not known; but no further
        than to a peer that selects its neighbours and has to wait for numbers."""
        while self._selecting is None and (end < math.inf or not self._has_recorded_enough()):
            upcoming = self._queue.next_before(end)
            if not upcoming:
                return
            self._handle(*upcoming)

    def look_ahead(self) -> None:
        """In `async`, let events run ahead while a device computes."""
        if not self._schedule.metronome:
            self._run_ahead(math.inf)

    def _has_recorded_enough(self) -> bool:
        return self.learners.jobs.num_updates >= self._schedule.updates_ahead * self._num_going

    def _is_going(self, me: PeerId) -> bool:
        """Whether a peer will record more updates that are work."""
        return self._finish_times[me] == self.learners.stop_times[me] == math.inf

    def _answer_selection(self, me: PeerId) -> None:
        """Tell a peer that selects its neighbours whom it found, or that judged strangers whom it admits."""
        self._selecting = None
        if me not in self._judging:
            self._handle(me, Selected(self._select(me)))
            return
        self._judging.remove(me)
        self._handle(me, Selected(self._admit(me)))
        self._handle(me, Updated())

    def _await_judgement(self, me: PeerId) -> None:
        """An update is complete, and the strangers that came before it are judged, or have to be first."""
        self._selecting = me
        if self.learners.jobs.is_scored(me):
            self._answer_selection(me)

    def _certain_until(self) -> float:
        """A time before which the run cannot have ended."""
        jobs = (self.learners.jobs.next_update(p.me) for p in self.peers if self._done_time(p) == math.inf)
        return max((job.time if job else self._queue.now for job in jobs), default=self._end())

    def _handle(self, me: PeerId, event: Event) -> None:
        if isinstance(event, Updated):
            if me in self._judging:
                self._await_judgement(me)
                return
            self._exchange_model(me)
        if isinstance(event, Received):
            self.traffic.count("received", me, self._queue.now)
        if isinstance(event, Pulled):
            self.traffic.count("received", me, self._queue.now, len(event.models))
        actions = self.peers[me].handle(event)
        if self._trace:
            self._trace(self._queue.now, me, event, actions)
        for action in actions:
            self._act(me, action)

    def _act(self, me: PeerId, action: Action) -> None:
        match action:
            case Send(to, answer):
                self._queue.put(self._schedule.links.latency, to, Received(self._sent_by(me), answer))
            case Request(sources):
                self._queue.put(0.0, me, Pulled(tuple(map(self._sent_by, sources))))
            case WakeAfter(delay):
                self._queue.put(delay, me, Wake())
            case Score():
                self.learners.record_score(me, action)
            case Judge():
                self._judging.add(me)
                answered = self._queue.now + self._training_delay(self.peers[me].plan.epochs)
                self.learners.record_judgement(me, self.current[me], action, answered)
            case Update():
                delay = self._training_delay(action.epochs)
                coming = self.learners.record_update(me, self.current[me], action, self._queue.now + delay)
                self._coming[me] = coming
                self.traffic.begin_update(me, coming.version)
                self._queue.put(delay, me, Updated())
            case Select():
                self._selecting = me
            case Drop(model, why):
                self.learners.release(model)
                if why == "refused":
                    self.traffic.count("refused", me, self._queue.now)
            case Finish():
                self._num_going -= self._is_going(me)
                self._finish_times[me] = self._queue.now

    def _sent_by(self, sender: PeerId) -> ModelRef:
        """The sender's model, as it is now, on its way."""
        self.traffic.count("sent", sender, self._queue.now)
        return self.learners.retain(self.current[sender])

    def _training_delay(self, epochs: int) -> float:
        if not self._schedule.metronome:
            return self._schedule.links.training_delay(epochs)
        return 0.25 / len(self.peers) if self._schedule.in_turn else 0.5

    def _exchange_model(self, me: PeerId) -> None:
        coming = self._coming[me]
        assert coming
        self.learners.release(self.current[me])
        self.current[me], self._coming[me] = coming, None

    def _select(self, me: PeerId) -> tuple[PeerId, ...]:
        assert self._selection, "a peer that searches needs a selection rule"
        selection = choose_neighbours(self.learners.tallies[me], self._selection)
        self.selections[me] = selection.neighbours
        if selection.fallback:
            self.fallbacks.add(me)
        return selection.neighbours

    def _admit(self, me: PeerId) -> tuple[PeerId, ...]:
        """The neighbours of a peer, with the strangers that have become some."""
        before = tuple(self.peers[me].neighbours)
        after = tuple(sorted({*before, *admitted(self.learners.trials[me], self._admission_trials)}))
        if after != before:
            self.admissions.append((self._queue.now, me, after))
        return after

    def neighbours(self) -> dict[PeerId, tuple[PeerId, ...]]:
        """Of each peer that selected, at the end of the run."""
        return {**self.selections, **{peer: after for time, peer, after in self.admissions if time <= self.now}}

    def judged(self) -> list[int]:
        """Models of strangers that each peer scored in step 2."""
        return [self.learners.trials[peer.me].until(self.now) for peer in self.peers]

    def progress(self) -> float:
        """The share of all updates that is done, with early stops counted as done.  0 … 1"""
        return float(np.mean([1.0 if self._done_time(p) < math.inf else self._share_done(p) for p in self.peers]))

    def _share_done(self, peer: Peer) -> float:
        """Of a peer that goes on."""
        searching = peer.plan.search.rounds if peer.plan.search else 0
        return self.learners.num_computed(peer.me) / (1 + searching + peer.plan.rounds)

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything that changes, messages in flight and recorded updates included. Only between batches."""
        learners, tensors = self.learners.state()
        data = {
            "learners": learners,
            "queue": self._queue.state(),
            "rounds": self._rounds,
            "selecting": self._selecting,
            "judging": sorted(self._judging),
            "finish_times": self._finish_times,
            "peers": [peer.state() for peer in self.peers],
            "current": [ref.version for ref in self.current],
            "coming": [ref.version if ref else None for ref in self._coming],
            "traffic": self.traffic.state(),
            "fallbacks": sorted(self.fallbacks),
            "selections": [[peer, list(neighbours)] for peer, neighbours in self.selections.items()],
            "admissions": [[time, peer, list(neighbours)] for time, peer, neighbours in self.admissions],
        }
        return data, {**tensors, "traffic": self.traffic.at_update.state()}

    def restore(self, data: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Become what `state` described."""
        self.learners.restore(data["learners"], tensors)
        self._queue.restore(data["queue"])
        self._rounds, self._selecting = data["rounds"], data["selecting"]
        self._judging = {PeerId(p) for p in data["judging"]}
        self._finish_times = list(data["finish_times"])
        for peer, state in zip(self.peers, data["peers"], strict=True):
            peer.restore(state)
        self.current = [ModelRef(PeerId(p), v) for p, v in enumerate(data["current"])]
        self._coming = [None if v is None else ModelRef(PeerId(p), v) for p, v in enumerate(data["coming"])]
        self.traffic.restore(data["traffic"])
        self.traffic.at_update.restore(tensors["traffic"])
        self.fallbacks = {PeerId(p) for p in data["fallbacks"]}
        self.selections = {PeerId(p): tuple(PeerId(n) for n in neighbours) for p, neighbours in data["selections"]}
        self.admissions = [(time, PeerId(p), tuple(map(PeerId, ns))) for time, p, ns in data["admissions"]]

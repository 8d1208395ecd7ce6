# SPDX-License-Identifier: Apache-2.0
"""Simulator: drives all peers of a run in virtual time, and computes their updates in batches.

Theory of operation. There is one event loop for both schedules.

`async`: peers wake themselves (WAIT(Δ)), messages take the links' latency, updates the links' training time.
`rounds`: a metronome wakes every active peer at times 1, 2, 3, …; requests are answered at once, from the models as
they are at that moment; updates complete half a unit later, or at once where nothing is trained. All peers of a round
thus pull from one snapshot. Where they take turns instead, each one wakes when the update of the one before it is
complete.

Events run ahead of the numbers: updates are only recorded. In `rounds` they run to the end of the round; in `async`
until a few updates per peer are recorded, since the more are known, the more of them can be computed together. Then
one batch is computed: all updates whose inputs are known. Numbers come back to the events at one place, an answer to a
peer that asked (`Ask`): when the answer is due, no event after it is looked at until what was asked for is computed,
and not more than that. Other peers whose questions came before wait at the same time, and are computed with it.

A run is over when every peer has finished its updates or stopped early. Events ran ahead of that moment, too, but what
happened after it is not counted. So nothing depends on how far they ran: neither batches nor an interruption, which can
come between any two of them, change what happens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from pens.learning.executor import Work
from pens.learning.learners import Learners
from pens.protocol.messages import (
    Action,
    Answered,
    Ask,
    Blend,
    Chose,
    Compare,
    Drop,
    Event,
    Finish,
    ModelRef,
    PeerId,
    Pulled,
    Received,
    Request,
    Send,
    Shun,
    Start,
    Trace,
    Update,
    Updated,
    Wake,
    WakeAfter,
)
from pens.protocol.peer import Peer
from pens.simulation.links import Links
from pens.simulation.message_counts import MessageCounts
from pens.simulation.scheduler import EventQueue, decode_event, encode_event

_SEARCHING = ("starting", "searching", "selecting")


@dataclass(frozen=True)
class Schedule:
    """How virtual time passes."""

    metronome: bool
    """`rounds`: the simulator wakes the peers, at times 1, 2, 3, …"""
    links: Links
    updates_ahead: int = 2
    """`async`: how many updates per peer are recorded before some are computed."""
    in_turn: bool = False
    """`rounds`: one peer after the other, in the order of their numbers."""


def advance_together(simulators: Sequence[Simulator]) -> None:
    """Compute one batch of each of several runs that share an executor, as one batch."""
    executor = simulators[0].learners.executor
    executor.carry_out([s.advance() for s in simulators], [s.look_ahead for s in simulators])


class Simulator:
    """All peers of one run."""

    def __init__(
        self,
        peers: Sequence[Peer],
        learners: Learners,
        schedule: Schedule,
        trace: Trace | None = None,
    ) -> None:
        self.peers, self.learners = peers, learners
        self._names = learners.names
        self._schedule, self._trace = schedule, trace
        self._has_attackers = learners.forger.attackers is not None
        self._has_notes = any(peer.plan.notes for peer in peers)
        self._queue = EventQueue()
        self._rounds = 0
        self.current = [learners.first_model(p.me) for p in peers]
        self._coming: list[ModelRef | None] = [None] * len(peers)
        self._awaited: tuple[PeerId, Event] | None = None
        """The event that cannot be handled before something is computed."""
        self._due: dict[PeerId, list[str]] = {}
        """Questions that are answered when the update in progress is complete, by name."""
        self._num_going = len(peers)
        self._finish_times = [math.inf] * len(peers)
        self.traffic = MessageCounts(len(peers), math.inf if schedule.metronome else 0.0)
        self.fallbacks: set[PeerId] = set()
        """Peers that selected no peer more often than expected."""
        self.selections: dict[PeerId, tuple[PeerId, ...]] = {}
        """The neighbours that each peer chose at the end of step 1."""
        self.admissions: list[tuple[float, PeerId, tuple[PeerId, ...]]] = []
        """(time, peer, neighbours) of each change in step 2, by admission or distrust; events ran ahead of the end of
        the run."""
        self.shunned: list[tuple[float, PeerId, tuple[PeerId, ...]]] = []
        """(time, peer, others) whenever a peer dropped others, likewise."""
        for peer in peers:
            self._queue.put(0.0, peer.me, Start())

    @property
    def now(self) -> float:
        """Virtual time; of a run that is over, the time of its end."""
        return self._queue.now if self._schedule.metronome else min(self._queue.now, self._end())

    def is_over(self) -> bool:
        """Whether every peer has finished its updates or stopped early, and all events until then are handled."""
        return self._end() < self._queue.now

    def _end(self) -> float:
        """When the last peer was done; infinite while one is not."""
        return max(self._done_time(peer) for peer in self.peers)

    def _done_time(self, peer: Peer) -> float:
        """When a peer stopped early or finished its updates, all of them computed; infinite before."""
        stopped = self.learners.by_peer[peer.me].stop_time
        if stopped < math.inf or self.learners.jobs.next_update(peer.me):
            return stopped
        return self._finish_times[peer.me]

    # --- running ahead, and computing ---------------------------------------------------------------------------------

    def advance(self) -> Work:
        """Let events run ahead, and compute one batch of updates."""
        if self._schedule.metronome and not self.learners.jobs.num_updates and self._awaited is None:
            self._begin_round()
        self._num_going = sum(self._is_going(peer.me) for peer in self.peers)
        end = self._rounds if self._schedule.metronome else math.nextafter(self._end(), math.inf)
        self._run_ahead(end)
        while self._awaited is not None:
            yield from self.learners.compare()
            if not self.learners.is_answered(self._awaited[0]):
                break
            me, event = self._awaited
            self._awaited = None
            self._handle(me, event)
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
        than to an answer that is not computed yet."""
        while self._awaited is None and (end < math.inf or not self._has_recorded_enough()):
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
        return self._finish_times[me] == self.learners.by_peer[me].stop_time == math.inf

    def _certain_until(self) -> float:
        """A time before which the run cannot have ended."""
        jobs = (self.learners.jobs.next_update(p.me) for p in self.peers if self._done_time(p) == math.inf)
        return max((job.time if job else self._queue.now for job in jobs), default=self._end())

    def _handle(self, me: PeerId, event: Event) -> None:
        if isinstance(event, Received):
            self.traffic.count("received", me, self._queue.now)
        elif isinstance(event, Updated):
            if not self._answer_all_due(me):
                self._awaited = me, event
                return
            self._exchange_model(me)
        elif isinstance(event, Answered):
            if not self.learners.is_answered(me):
                self._awaited = me, event
                return
            event = Answered(event.name, self.learners.answer(me, event.name))
        elif isinstance(event, Pulled):
            self.traffic.count("received", me, self._queue.now, len(event.models))
        self._tell(me, event)

    def _answer_all_due(self, me: PeerId) -> bool:
        """Answer a peer's questions that are due when its update is complete; False: not all are computed yet."""
        if me not in self._due:
            return True
        if not self.learners.is_answered(me):
            return False
        for name in self._due.pop(me):
            self._tell(me, Answered(name, self.learners.answer(me, name)))
        return True

    def _tell(self, me: PeerId, event: Event) -> None:
        """Let a peer handle an event, and carry out its actions."""
        actions = self.peers[me].handle(event)
        if self._trace:
            self._trace(self._queue.now, me, event, actions)
        for action in actions:
            self._act(me, action, actions)

    def _act(self, me: PeerId, action: Action, actions: Sequence[Action]) -> None:
        match action:
            case Send(to, answer):
                note = self.peers[me].note() if self._has_notes else None
                received = Received(self._sent_by(me, to), answer, note)
                self._queue.put(self._schedule.links.latency, to, received)
            case WakeAfter(delay):
                self._queue.put(delay, me, Wake())
            case Request(sources):
                notes = tuple(self.peers[s].note() for s in sources) if self._has_notes else ()
                self._queue.put(0.0, me, Pulled(self._sent_by_each(sources, me), notes))
            case Compare():
                self.learners.record_comparison(me, self.current[me], action)
            case Blend():
                self.learners.record_blend(me, self.current[me], action)
            case Ask():
                self._ask(me, action, actions)
            case Update():
                delay = self._training_delay(action.epochs)
                coming = self.learners.record_update(me, self.current[me], action, self._queue.now + delay)
                self._coming[me] = coming
                self.traffic.begin_update(me, coming.version)
                self._queue.put(delay, me, Updated())
            case Chose(neighbours, by):
                self._note_neighbours(me, neighbours, by)
            case Shun(others):
                self.shunned.append((self._queue.now, me, others))
            case Drop(model, why):
                self._names.release(model)
                if why == "refused":
                    self.traffic.count("refused", me, self._queue.now)
            case Finish():
                self._num_going -= self._is_going(me)
                self._finish_times[me] = self._queue.now

    def _ask(self, me: PeerId, ask: Ask, actions: Sequence[Action]) -> None:
        delay = 0.0
        if ask.when == "updated":
            delay = next(self._training_delay(action.epochs) for action in actions if isinstance(action, Update))
            self._due.setdefault(me, []).append(ask.name)
        else:
            self._queue.put(0.0, me, Answered(ask.name, None))
        self.learners.record_question(me, self.current[me], ask, self._queue.now + delay)

    def _note_neighbours(self, me: PeerId, neighbours: tuple[PeerId, ...], by: str) -> None:
        if by in ("admission", "distrust"):
            self.admissions.append((self._queue.now, me, neighbours))
            return
        self.selections[me] = neighbours
        if by == "fallback":
            self.fallbacks.add(me)

    def _sent_by(self, sender: PeerId, to: PeerId) -> ModelRef:
        """The sender's model, as it is now, on its way; or what an attacker sends in its place."""
        self.traffic.count("sent", sender, self._queue.now)
        return self._model_for(to, sender) if self._has_attackers else self._names.retain(self.current[sender])

    def _model_for(self, to: PeerId, sender: PeerId) -> ModelRef:
        """What a sender sends to a peer, retained once, where some attack."""
        own, forger = self.current[sender], self.learners.forger
        if not forger.attacks(sender):
            return self._names.retain(own)
        return forger.record(sender, own, self.current[to], self.peers[sender].phase in _SEARCHING)

    def _sent_by_each(self, senders: Sequence[PeerId], to: PeerId) -> tuple[ModelRef, ...]:
        """The models of several different senders likewise."""
        current = self.current
        self.traffic.count_sent(senders, self._queue.now)
        if self._has_attackers:
            return tuple([self._model_for(to, sender) for sender in senders])
        return self._names.retain_all(tuple([current[sender] for sender in senders]))

    def _training_delay(self, epochs: int) -> float:
        if not self._schedule.metronome or not epochs:
            return self._schedule.links.training_delay(epochs)
        return 0.25 / len(self.peers) if self._schedule.in_turn else 0.5

    def _exchange_model(self, me: PeerId) -> None:
        coming = self._coming[me]
        assert coming
        self._names.release(self.current[me])
        self.current[me], self._coming[me] = coming, None

    def neighbours(self) -> dict[PeerId, tuple[PeerId, ...]]:
        """The neighbours of each peer that selected, at the end of the run."""
        return {**self.selections, **{peer: after for time, peer, after in self.admissions if time <= self.now}}

    def asked(self) -> list[int]:
        """For each peer, the number of models whose losses it asked for."""
        return [learner.num_asked(self.now) for learner in self.learners.by_peer.values()]

    def progress(self) -> float:
        """The share of all updates that is done, with early stops counted as done.  0 … 1"""
        return float(np.mean([1.0 if self._done_time(p) < math.inf else self._share_done(p) for p in self.peers]))

    def _share_done(self, peer: Peer) -> float:
        """The share of its updates that a peer has done which goes on."""
        searching = peer.plan.search.rounds if peer.plan.search else 0
        return self.learners.by_peer[peer.me].num_computed / (1 + searching + peer.plan.rounds)

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything that changes, messages in flight and recorded updates included. Only between batches."""
        learners, tensors = self.learners.state()
        data = {
            "learners": learners,
            "queue": self._queue.state(),
            "rounds": self._rounds,
            "awaited": self._awaited and [self._awaited[0], *encode_event(self._awaited[1])],
            "due": [[peer, names] for peer, names in sorted(self._due.items())],
            "finish_times": self._finish_times,
            "peers": [peer.state() for peer in self.peers],
            "current": [ref.version for ref in self.current],
            "coming": [ref.version if ref else None for ref in self._coming],
            "traffic": self.traffic.state(),
            "fallbacks": sorted(self.fallbacks),
            "selections": [[peer, list(neighbours)] for peer, neighbours in self.selections.items()],
            "admissions": [[time, peer, list(neighbours)] for time, peer, neighbours in self.admissions],
            "shunned": [[time, peer, list(others)] for time, peer, others in self.shunned],
        }
        return data, {**tensors, "traffic": self.traffic.at_update.state()}

    def restore(self, data: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Become what `state` described."""
        self.learners.restore(data["learners"], tensors)
        self._queue.restore(data["queue"])
        self._rounds, self._awaited = data["rounds"], None
        if data["awaited"]:
            peer_id, *event = data["awaited"]
            self._awaited = PeerId(peer_id), decode_event(*event)
        self._due = {PeerId(p): list(names) for p, names in data["due"]}
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
        self.shunned = [(time, PeerId(p), tuple(map(PeerId, ns))) for time, p, ns in data.get("shunned", [])]

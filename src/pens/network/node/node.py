# SPDX-License-Identifier: Apache-2.0
"""Node: drives one peer on asyncio, over any transport. The networked twin of the simulator.

Theory of operation. The same `Peer` decides; a node carries out. Everything but the computing happens in the event
loop, one thing after the other: a model that came, a wait that is over, a job that is done each become an event, and
the actions that the peer answers with are begun at once. What is to be computed goes into a queue; `_learn` works it
off, one job at a time, on a bench beside the loop (`pens.network.node.learning`).

    transport ──▶ take_model ──▶ Received ─┐               ┌─▶ Send ──▶ outbox ──▶ transport
    timer ─────────────────────▶ Wake ─────┼─▶ Peer.handle ┼─▶ WakeAfter ──▶ timer
    _learn ────────▶ Updated, Answered ────┘               └─▶ Compare, Ask, Update ──▶ queue ──▶ _learn

Whom the peer can reach is the membership's live view. A peer that starts before the others would be alone: the end of
its first training is held back until enough others are known.

After every update, and when neighbours are selected, the whole state goes to disk before the next job begins, jobs
that wait and received models included. So whoever is killed repeats the job in progress, from the same models and
random streams.

A peer that has done its updates, or stopped early, goes on serving its model until it is told to stop, or until nobody
it knows needs it any more. Meanwhile it may train one more model on its own data alone, to tell what the others brought
it (`pens.network.node.control`).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from pens.engine.devices import peak_memory_bytes
from pens.errors import OtherNetwork, PayloadError, RunDirError
from pens.learning.curves import UpdateRecord
from pens.learning.learners import Learners
from pens.network.members.gossiper import Gossiper
from pens.network.members.membership import Membership
from pens.network.members.misfits import REMEDY, Misfits, Occasions
from pens.network.members.reachable import Reachable
from pens.network.node.control import AloneControl, Control, ControlRules
from pens.network.node.learning import Learning
from pens.network.node.outbox import Outbox
from pens.network.node.past import Past, compose_records
from pens.network.node.progress import Progress
from pens.network.node.state import Job, PeerFolder, decode_job, encode_job
from pens.network.node.status import PeerCounts, Status
from pens.network.transport.codec import decode_note, encode_note
from pens.network.transport.interface import Address, MemberRecord, Parcel, Reception, Transport, TransportError
from pens.protocol.messages import (
    Action,
    Answered,
    Ask,
    Chose,
    Compare,
    Drop,
    Event,
    Finish,
    ModelRef,
    Note,
    PeerId,
    Received,
    Request,
    Send,
    Start,
    Update,
    Updated,
    Wake,
    WakeAfter,
)
from pens.protocol.peer import Peer

Trace = Callable[[float, PeerId, Event, list[Action]], None]

_LARGE_PAYLOAD = 4 << 20  # bytes; such a payload is read beside the event loop
_GRACE_S = 1.0
_log = logging.getLogger("pens.network.node")


@dataclass(frozen=True)
class NodeRules:
    """What a node is told beyond its peer's plan."""

    wait_for: int = 1
    """Others that must be known before the first training ends."""
    linger_s: float | None = None
    """Stop so long after everyone that is known has finished; None: when told to."""
    gossip_s: float = 1.0
    max_held: int = 256
    """Received models that wait to be used; with more of them, senders hear BUSY."""
    outgoing: int = 2
    """Models that wait to be sent to one member."""


class Node:
    """One peer in a real network. Offers the transport its `Inbox`."""

    def __init__(
        self,
        peer: Peer,
        reachable: Reachable,
        learning: Learning,
        membership: Membership,
        transport: Transport,
        number: Callable[[str], PeerId],
        rules: NodeRules,
        folder: PeerFolder | None = None,
        advertise: Address | None = None,
        trace: Trace | None = None,
        control: ControlRules | None = None,
    ) -> None:
        """`reachable`: the view that the peer was given. `number`: the number of a member, from its name.

        `control`: train one more model in the end, on the peer's own data alone.
        """
        self.peer, self._reachable, self._learning = peer, reachable, learning
        self.membership, self._transport, self._number = membership, transport, number
        self._rules, self._folder, self._advertise, self._trace = rules, folder, advertise, trace
        self.counts, self._past = PeerCounts(), Past()
        self._gossiper = Gossiper(membership, transport, self._on_news)
        self._outbox = Outbox(transport, membership.find, self._on_sent, rules.outgoing)
        self._misfits, self._occasions = Misfits(), Occasions()
        self._control = Control(learning, control) if control else None
        self._alone: AloneControl | None = None
        self._progress = Progress()
        self._names: dict[PeerId, str] = {}
        self._chosen: tuple[PeerId, ...] = ()  # neighbours, as the log was told
        self._jobs: deque[Job] = deque()
        self._due: list[str] = []  # questions that are answered when the next update is complete
        self._training = self._closing = self._begun = False
        self._training_s = 0.0
        self._last_update: float | None = None
        self._something = asyncio.Event()  # to do, or to look at
        self._over = asyncio.Event()
        self._fault: Exception | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._all_finished: float = math.inf  # since when
        self._born = 0.0
        self.status: Status | None = None
        """As it was a moment ago; may be read from other threads."""

    # --- a life -------------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """From start, or from where an earlier life ended, until told to stop or needed no more."""
        self._born = self._now
        address = await self._transport.start(self)
        learner = asyncio.create_task(self._learn())
        tasks = [learner, *(asyncio.create_task(c) for c in (self._gossip_on(), stop.wait(), self._over.wait()))]
        try:
            self._begin_membership(address)
            self._begin()
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if self._fault:
                raise self._fault
        finally:
            await self._end(learner, tasks)

    def _begin_membership(self, address: Address) -> None:
        self.membership.move(self._advertise or address)
        if self._folder:
            known = self._folder.load_membership()
            if known:
                with _as_this_peer_wrote(self._folder):
                    self.membership.restore(known, self._now)
            self._folder.save_membership(self.membership.state(self._now))

    def _begin(self) -> None:
        saved = self._folder.load() if self._folder else None
        if saved and self._folder:
            with _as_this_peer_wrote(self._folder):
                self._restore(*saved)
            _log.info("goes on", extra={"phase": self.peer.phase, "step": self._learning.current.version})
        else:
            self._handle(Start())
        self._past.lives += 1
        self._begun = True

    async def _end(self, learner: asyncio.Task[None], tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Finish the job in progress, save, and say goodbye."""
        self._closing = True
        self._something.set()
        if self._wake:
            self._wake.cancel()
        for task in tasks:
            if task is not learner:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            if self._is_sound(learner) and self.peer.phase != "starting":
                await self._save(final=True)
        finally:
            await self._outbox.close()
            await self._gossiper.say_goodbye()
            await self._transport.stop(_GRACE_S)

    def _is_sound(self, learner: asyncio.Task[None]) -> bool:
        """Whether what is in memory may replace what is on disk."""
        return self._begun and not self._fault and (learner.cancelled() or learner.exception() is None)

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def seconds(self) -> float:
        """Of all lives."""
        return self._past.seconds + self._now - self._born

    # --- events and actions -------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        self._look_around()
        actions = self.peer.handle(event)
        if self._trace:
            self._trace(self._now, self.peer.me, event, actions)
        for action in actions:
            self._act(action)

    def _look_around(self) -> None:
        """Bring the peer's view of the others up to date: of those whose models it can use."""
        alive = [record.name for record in self.membership.members(self._now, "alive")]
        there = {self._number(name): name for name in alive if name not in self._misfits}
        self._names |= there
        self._reachable.become(tuple(there))

    def _act(self, action: Action) -> None:
        match action:
            case Send(to, answer):
                self._send(to, answer)
            case WakeAfter(delay):
                self._wake_after(delay)
            case Compare() | Ask() | Update():
                if isinstance(action, Ask):
                    self._learning.keep_for(action)
                self._jobs.append(action)
                self._something.set()
            case Chose(neighbours, by):
                self._tell_neighbours(neighbours, by)
            case Drop(model, why):
                self._learning.let_go(model)
                self.counts.refused += why == "refused"
            case Finish():
                self._tell_finished()
            case Request():
                raise AssertionError("a node's peer pushes, it does not ask")

    def _send(self, to: PeerId, answer: bool) -> None:
        payload = self._learning.payload
        if payload is not None and to in self._names:
            version, note = self._learning.current.version, encode_note(self.peer.note())
            self._outbox.put(self._names[to], Parcel(version, payload, answer, note))

    def _on_sent(self, name: str, parcel: Parcel, outcome: Reception | TransportError) -> None:
        if outcome is Reception.TAKEN:
            self.counts.sent += 1
            self.counts.bytes_out += len(parcel.payload)
            self.membership.heard(name, self._now)
            self._misfits.remove(name)
            return
        self.counts.failed += 1
        if outcome is Reception.OTHER_NETWORK:
            self._note_misfit(name, "it cannot use the model that we sent")
        if outcome is Reception.REFUSED and self._occasions.is_due("refuses", name, self._now):
            _log.warning("member refuses our models", extra={"member": name})
        if isinstance(outcome, TransportError):
            if self.membership.status(name, self._now) == "alive":
                _log.info("member cannot be reached", extra={"member": name, "why": str(outcome)})
            self.membership.failed(name, self._now)

    def _wake_after(self, delay: float) -> None:
        self._wake = asyncio.get_running_loop().call_later(delay, self._on_wake)

    def _on_wake(self) -> None:
        if not self._closing:
            self._handle_or_end(Wake())

    def _handle_or_end(self, event: Event) -> None:
        """For events that come from timers and transports, which would swallow an error: the node ends with it."""
        try:
            self._handle(event)
        except Exception as error:
            self._fault = self._fault or error
            self._over.set()
            raise

    def _tell_finished(self) -> None:
        if not self.membership.me.finished:
            self.membership.finish()
            _log.info("finished", extra={"step": self._learning.current.version, **self._accuracies()})

    def _accuracies(self) -> dict[str, float]:
        """On validation data, as far as they are known: of the model that is kept, and of what was alone."""
        known = {
            "kept_val_accuracy": self._learning.val_accuracy,
            "first_val_accuracy": self._first_val_accuracy,
            "alone_val_accuracy": self._alone.val_accuracy if self._alone else None,
        }
        return {name: round(accuracy, 4) for name, accuracy in known.items() if accuracy is not None}

    @property
    def _first_val_accuracy(self) -> float | None:
        """After the first training, before any model of another peer; None where there is no such training."""
        if not self.peer.plan.train_first:
            return None
        curves = self._learners.history.table()
        return float(curves[0, UpdateRecord._fields.index("val_accuracy")]) if len(curves) else None

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def _learn(self) -> None:
        """Work off jobs, until the node ends."""
        while not self._closing:
            if self._jobs:
                self._training, begun = True, self._now
                await self._do(self._jobs[0])
                self._training, self._training_s = False, self._training_s + self._now - begun
            elif self._is_comparing:
                await self._compare_alone()
            else:
                await self._wait_for_something()

    @property
    def _is_comparing(self) -> bool:
        """Whether the peer has finished, and what training alone comes to is not known yet."""
        return self._control is not None and self._alone is None and self.membership.me.finished

    async def _compare_alone(self) -> None:
        """One update of the control; after its last, tell what came of it."""
        assert self._control
        self._alone = await self._control.update()
        if self._alone:
            tested = {"accuracy": self._learning.accuracy, "alone_accuracy": self._alone.accuracy}
            told = {name: round(value, 4) for name, value in tested.items() if value is not None}
            _log.info("compared with training alone", extra={**self._accuracies(), **told})
            await self._save()

    def _on_news(self) -> None:
        self._something.set()

    async def _wait_for_something(self) -> None:
        self._something.clear()
        await self._something.wait()

    async def _do(self, job: Job) -> None:
        match job:
            case Compare():
                await self._learning.compare(job)
                self._jobs.popleft()
            case Ask():
                await self._ask(job)
            case Update():
                await self._update(job)

    async def _ask(self, job: Ask) -> None:
        await self._learning.ask(job, self.seconds)
        self._jobs.popleft()
        if job.when == "updated":
            self._due.append(job.name)
            return
        self._answer(job.name)
        await self._save()

    def _answer(self, name: str) -> None:
        self._handle(Answered(name, self._learners.answer(self.peer.me, name)))

    async def _update(self, job: Update) -> None:
        del self._past.received[self._learning.current.version :]
        self._past.received.append(self.counts.received)
        await self._learning.update(job, self.seconds)
        self._past.completed.append(self.seconds)
        self._last_update = self._now
        if self.peer.phase == "starting" and not await self._enough_are_known():
            return
        self._jobs.popleft()
        while self._due:
            self._answer(self._due.pop(0))
        if self._learners.has_stopped(self.peer.me):
            self._tell_finished()
        self._handle(Updated())
        await self._save()

    async def _enough_are_known(self) -> bool:
        """Wait for others to come; False: the node ends before."""
        while len(self.membership.members(self._now, "alive")) < self._rules.wait_for and not self._closing:
            await self._wait_for_something()
        return not self._closing

    @property
    def _learners(self) -> Learners:
        return self._learning.learners

    def _tell_neighbours(self, neighbours: tuple[PeerId, ...], by: str) -> None:
        if by == "admission":
            new = sorted(set(neighbours) - set(self._chosen))
            _log.info("admitted", extra={"neighbours": self._named(new)})
        elif neighbours:
            _log.info("selected", extra={"neighbours": self._named(neighbours), "fallback": by == "fallback"})
        else:
            _log.warning("too few models came to compare", extra={"received": self.counts.received, "neighbours": []})
        self._chosen = neighbours

    def _named(self, peers: Sequence[PeerId]) -> list[str]:
        return [self._names.get(peer, str(peer)) for peer in peers]

    # --- what others send (Inbox) -------------------------------------------------------------------------------------

    def wants(self, sender: str, size: int) -> Reception:
        """Asked before a model of this many bytes is received."""
        if sender == self.membership.me.name:
            return Reception.REFUSED
        most = self._learning.max_payload_bytes
        if size > most:
            self._note_misfit(sender, f"its model has {size} bytes, ours at most {most}")
            return Reception.OTHER_NETWORK
        full = self._closing or self._learning.num_held >= self._rules.max_held
        return Reception.BUSY if full else Reception.TAKEN

    async def take_model(self, sender: str, parcel: Parcel) -> Reception:
        """A model came."""
        verdict = self.wants(sender, len(parcel.payload))
        if verdict is not Reception.TAKEN:
            return verdict
        try:
            if len(parcel.payload) > _LARGE_PAYLOAD:
                row = await asyncio.to_thread(self._learning.read, parcel.payload)
            else:
                row = self._learning.read(parcel.payload)
            note = decode_note(parcel.note)
        except OtherNetwork as error:
            self._note_misfit(sender, f"its model does not fit: {error}")
            return Reception.OTHER_NETWORK
        except PayloadError as error:
            self.counts.malformed += 1
            if self._occasions.is_due("malformed", sender, self._now):
                _log.warning("model refused", extra={"member": sender, "reason": str(error)})
            return Reception.REFUSED
        self._misfits.remove(sender)
        self._receive(sender, parcel, row, note)
        return Reception.TAKEN

    def _note_misfit(self, member: str, why: str) -> None:
        """Models go neither way between this peer and a member: counted each time, told once an hour."""
        self.counts.other_network += 1
        self._misfits.add(member, why)
        if self._occasions.is_due("network", member, self._now):
            _log.warning("member has another network", extra={"member": member, "why": why, "remedy": REMEDY})

    def _receive(self, sender: str, parcel: Parcel, row: Tensor, note: Note) -> None:
        owner = self._number(sender)
        self._names[owner] = sender
        self.membership.heard(sender, self._now)
        self.counts.received += 1
        self.counts.bytes_in += len(parcel.payload)
        ref = ModelRef(owner, parcel.version)
        self._learning.hold(ref, row)
        self._handle_or_end(Received(ref, parcel.answer, note))

    async def gossip(self, sender: str, records: Sequence[MemberRecord]) -> Sequence[MemberRecord]:
        """Somebody says what it knows, and asks for what we know."""
        self._gossiper.hear(sender, records)
        return self.membership.records(self._now)

    # --- gossip -------------------------------------------------------------------------------------------------------

    async def _gossip_on(self) -> None:
        while True:
            self._gossiper.call()
            self._look_whether_over()
            self._tell_progress()
            self.status = self._now_status()
            await asyncio.sleep(self._rules.gossip_s)

    def _look_whether_over(self) -> None:
        """Whether everybody has finished, and that for long enough."""
        mine = self.membership.me.finished and not self._is_comparing
        finished = mine and self.membership.everyone_finished(self._now, but=self._misfits)
        self._all_finished = min(self._all_finished, self._now) if finished else math.inf
        if self._rules.linger_s is not None and self._now - self._all_finished >= self._rules.linger_s:
            self._over.set()

    # --- what is told -------------------------------------------------------------------------------------------------

    def _tell_progress(self) -> None:
        """Soon after each phase began, then more and more seldom."""
        if self.membership.me.finished or not self._progress.is_due(self.peer.phase, self._now):
            return
        members = len(self.membership.members(self._now, "alive"))
        if self.peer.phase == "starting":
            about: dict[str, object] = {"trained": bool(self._learning.payload), "wait_for": self._rules.wait_for}
        else:
            done, most = self.peer.progress
            about = {"samplings" if self.peer.phase == "searching" else "updates": f"{done} of {most}"}
        extra = {"phase": self.peer.phase, **about, "members": members, "received": self.counts.received}
        _log.info("progress", extra={**extra, **self._accuracies()})

    def _now_status(self) -> Status:
        curves = self._learners.history.table()
        everyone = self.membership.members(self._now, "alive", "suspect", "dropped", "left")
        return Status(
            name=self.membership.me.name,
            phase=self.peer.phase,
            updates=self.peer.updates,
            version=self._learning.current.version,
            done=self.membership.me.finished,
            training=self._training,
            neighbours=tuple(self._named(self.peer.neighbours)),
            members={r.name: str(self.membership.status(r.name, self._now)) for r in everyone},
            val_accuracy=float(curves[-1, UpdateRecord._fields.index("val_accuracy")]) if len(curves) else None,
            val_loss=float(curves[-1, UpdateRecord._fields.index("val_loss")]) if len(curves) else None,
            last_update=self._last_update,
            training_s=self._training_s,
            accuracy=self._learning.accuracy,
            counts=replace(self.counts),
            merged=self._learners.merges[self.peer.me].total(),
            scored=self._num_scored(),
            first_val_accuracy=self._first_val_accuracy,
            kept_val_accuracy=self._learning.val_accuracy,
            alone_val_accuracy=self._alone.val_accuracy if self._alone else None,
            misfits=self._misfits.among(r.name for r in self.membership.members(self._now, "alive")),
            refusals=dict(self._transport.traffic.refusals),
            due=self._now + self._rules.gossip_s,
        )

    def _told(self, final: bool) -> dict[str, Any]:
        """What goes into result.json."""
        learners, me = self._learners, self.peer.me
        selected = self.peer.neighbours is not self._reachable
        return {
            **asdict(self.counts),
            "name": self.membership.me.name,
            "final": final,
            "phase": self.peer.phase,
            "updates": self._learning.current.version,
            "done": self.membership.me.finished,
            "stopped_early": learners.has_stopped(me),
            "accuracy": self._learning.accuracy,
            "val_accuracy": self._learning.val_accuracy,
            "first_val_accuracy": self._first_val_accuracy,
            "alone": asdict(self._alone) if self._alone else None,
            "neighbours": sorted(self._named(self.peer.neighbours)) if selected else None,
            "merged": learners.merges[me].total(),
            "scored": self._num_scored(),
            "bytes_sent": self.counts.bytes_out,
            "seconds": self.seconds,
            "lives": self._past.lives,
            "peak_memory_bytes": peak_memory_bytes(learners.models.device),
            "warnings": self._warnings(),
        }

    def _warnings(self) -> list[str]:
        undone = self._learners.setbacks[self.peer.me]
        return [f"{undone} update(s) undone, the loss was not a finite number"] if undone else []

    def _num_scored(self) -> int:
        me = self.peer.me
        return self._learners.scored[me] + self._learners.num_asked(me, math.inf)

    # --- state on disk ------------------------------------------------------------------------------------------------

    async def _save(self, final: bool = False) -> None:
        """State and records as they are now; returns when they are on disk."""
        if not self._folder:
            return
        folder, (data, tensors) = self._folder, self._state()
        records = compose_records(self._learning, self._past, self._names, self._told(final))
        members = self.membership.state(self._now)

        def write() -> None:
            folder.save(data, tensors)
            folder.save_membership(members)
            folder.write(records)

        await self._learning.bench.do(write, 0)

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything that changes. Only between jobs."""
        data, tensors = self._learning.state()
        wake_in = max(0.0, self._wake.when() - self._now) if self._wake else None
        state = {
            "learning": data,
            "peer": self.peer.state(),
            "jobs": [encode_job(job) for job in self._jobs],
            "due": self._due,
            "chosen": list(self._chosen),
            "names": [[peer, name] for peer, name in self._names.items()],
            "counts": asdict(self.counts),
            "past": {**asdict(self._past), "seconds": self.seconds},
            "finished": self.membership.me.finished,
            "alone": asdict(self._alone) if self._alone else None,
            "wake_in": wake_in,
        }
        return state, tensors

    def _restore(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Become what `_state` described."""
        self._learning.restore(state["learning"], tensors)
        self.peer.restore(state["peer"])
        self._jobs.extend(decode_job(job) for job in state["jobs"])
        self._due = list(state["due"])
        self._chosen = tuple(PeerId(peer) for peer in state["chosen"])
        self._names = {PeerId(peer): name for peer, name in state["names"]}
        self.counts, self._past = PeerCounts(**state["counts"]), Past(**state["past"])
        self._alone = AloneControl(**state["alone"]) if state.get("alone") else None
        if state["finished"]:
            self._tell_finished()
        if state["wake_in"] is not None:
            self._wake_after(state["wake_in"])
        self._something.set()


@contextmanager
def _as_this_peer_wrote(folder: PeerFolder) -> Iterator[None]:
    """A state that was read whole, but is not what this peer would have written, is said to be so."""
    try:
        yield
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        raise RunDirError(
            f"{folder.folder}: the state in it is not of these settings, or of another version of pens ({error!r}): "
            "choose another state folder, or delete that one to begin anew"
        ) from error

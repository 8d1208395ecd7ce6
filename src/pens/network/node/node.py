# SPDX-License-Identifier: Apache-2.0
"""Node: drives one peer on asyncio, over any transport. The networked counterpart of the simulator.

Theory of operation. The same `Peer` decides; a node carries out. Everything but the computing happens in the event
loop, one thing after the other: a model that came, a wait that is over, a job that is done each become an event, and
the actions that the peer answers with are begun at once. What is to be computed goes into a `JobQueue`, which carries
out one job at a time on a bench beside the loop (`node.learning`).

    transport ──▶ Exchange ──▶ Received ─┐               ┌─▶ Send ──▶ Exchange ──▶ transport
    timer ───────────────────▶ Wake ─────┼─▶ Peer.handle ┼─▶ WakeAfter ──▶ timer
    JobQueue ────▶ Updated, Answered ────┘               └─▶ Compare, Ask, Update ──▶ JobQueue

Whom the peer can reach is the membership's live view, and beside it neighbours and senders of models. A peer that
starts before the others would be alone: the end of its first training is held back until enough others are known.

After every update, and when neighbours are selected, the whole state goes to disk before the next job begins, jobs
that wait and received models included. So a peer that is killed repeats the job in progress, from the same models and
random streams.

A peer that has done its updates, or stopped early, goes on serving its model until it is told to stop, or until no
member that it knows needs it any more. Meanwhile it may train one more model on its own data alone, to tell what the
others' models brought it (`node.control`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

from pens.errors import SettingsError
from pens.learning.learners import Learners
from pens.network.members.agreement import Agreement
from pens.network.members.gossiper import Gossiper
from pens.network.members.membership import Membership
from pens.network.members.reachable import Reachable
from pens.network.node.account import Account
from pens.network.node.audit import AuditLog
from pens.network.node.control import Control, ControlRules
from pens.network.node.exchange import Exchange
from pens.network.node.job_queue import JobQueue, QueueCalls
from pens.network.node.learning import Learning
from pens.network.node.parts import NodeParts, NodeRules
from pens.network.node.past import compose_records
from pens.network.node.snapshot import restore_snapshot, take_snapshot
from pens.network.node.state import PeerFolder
from pens.network.node.status import PeerCounts, Status
from pens.network.transport.interface import Address, MemberRecord, Transport
from pens.network.transport.terms import Terms
from pens.protocol.messages import (
    Action,
    Ask,
    Blend,
    Chose,
    Compare,
    Drop,
    Event,
    Finish,
    PeerId,
    Request,
    Send,
    Shun,
    Start,
    Trace,
    Update,
    Wake,
    WakeAfter,
)
from pens.protocol.peer import Peer

_GRACE_S = 1.0


class Node:
    """One peer in a real network."""

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
        terms: Terms | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """`reachable`: the view that the peer was given. `number`: the number of a member, from its name.

        `control`: train one more model in the end, on the peer's own data alone. `audit`: None: it is turned off.
        `terms`: what the peer says of itself before models are exchanged; None: nothing, so that it fits all others.
        """
        terms = terms or Terms()
        self.parts = NodeParts(peer, reachable, learning, membership, transport, number, rules, terms)
        if audit:
            audit.on_failure = self._fail
            self.parts.audit = audit
        self._folder, self._advertise, self._trace = folder, advertise, trace
        self.account = Account(self.parts)
        calls = QueueCalls(self._handle, self._finish, self._save)
        self.queue = JobQueue(self.parts, self.account, Control(learning, control) if control else None, calls)
        self._gossiper = Gossiper(membership, transport, self.queue.wake)
        self.exchange = Exchange(self.parts, self._gossiper, self._handle_or_end)
        self.agreement = Agreement(terms, self.exchange.hear_terms)
        self.begun = False
        """The peer has begun, or gone on where an earlier life ended."""
        self._over = asyncio.Event()
        self._fault: Exception | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._all_finished: float = math.inf  # since when, on the event loop's clock
        self.status: Status | None = None
        """The status of a moment ago; may be read from other threads."""

    @property
    def peer(self) -> Peer:
        return self.parts.peer

    @property
    def membership(self) -> Membership:
        return self.parts.membership

    @property
    def learning(self) -> Learning:
        return self.parts.learning

    @property
    def learners(self) -> Learners:
        return self.parts.learners

    @property
    def counts(self) -> PeerCounts:
        return self.parts.counts

    # --- a life -------------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Live from the start, or from where an earlier life ended, until told to stop or needed no more."""
        self.parts.started = self.parts.now
        address = await self.parts.transport.start(self.exchange, self.agreement)
        work = asyncio.create_task(self.queue.work())
        tasks = [work, *(asyncio.create_task(c) for c in (self._gossip_on(), stop.wait(), self._over.wait()))]
        try:
            self._begin_membership(address)
            if self._begin():
                await self._save()  # a power cut may have torn the records
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if self._fault:
                raise self._fault
        finally:
            await self._end(work, tasks)
        if not work.cancelled():
            work.result()  # the job in progress may have failed after the stop

    def _begin_membership(self, address: Address) -> None:
        self.membership.move(self._advertise or address)
        if self._folder:
            known = self._folder.load_membership()
            if known:
                self.membership.restore(known, self.parts.now)
            self._folder.save_membership(self.membership.state(self.parts.now))

    def _begin(self) -> bool:
        """Start, or go on where an earlier life ended; whether one did."""
        saved = self._folder.load() if self._folder else None
        if saved and self._folder:
            with self._folder.reading_state():
                self._restore(*saved)
            self.account.log_resumed()
        else:
            self._handle(Start())
        self.parts.past.lives += 1
        self.parts.audit.life = self.parts.past.lives
        self.parts.audit.note("begins", version=self.learning.current.version, phase=self.peer.phase)
        self.begun = True
        return bool(saved)

    async def _end(self, work: asyncio.Task[None], tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Finish the job in progress, save, and leave the federation."""
        self.parts.closing = True
        self.queue.wake()
        if self._wake:
            self._wake.cancel()
        for task in tasks:
            if task is not work:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            if self._is_sound(work) and self.peer.phase != "starting":
                await self._save(final=True)
                self.parts.audit.note("ends", version=self.learning.current.version)
        finally:
            await self.exchange.close()
            await self._gossiper.say_goodbye()
            await self.parts.transport.stop(_GRACE_S)

    def _is_sound(self, work: asyncio.Task[None]) -> bool:
        """Whether what is in memory may replace what is on disk."""
        return self.begun and not self._fault and (work.cancelled() or work.exception() is None)

    # --- events and actions -------------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        self._look_around()
        actions = self.peer.handle(event)
        self._keep_neighbours()
        if self._trace:
            self._trace(self.parts.now, self.peer.me, event, actions)
        for action in actions:
            self._act(action)

    def _look_around(self) -> None:
        """Bring the peer's view of the others up to date: those that are there and whose models it can use."""
        parts = self.parts
        there = self._numbered(parts.alive())
        besides = self._numbered(parts.membership.guests(parts.now))
        parts.names |= there | besides
        parts.reachable.become(tuple(there), tuple(besides))

    def _numbered(self, records: Sequence[MemberRecord]) -> dict[PeerId, str]:
        """The numbers and names of members whose models this peer can use."""
        return {self.parts.number(r.name): r.name for r in records if r.name not in self.parts.misfits}

    def _keep_neighbours(self) -> None:
        """Keep track of the neighbours, if there are some that the peer chose."""
        parts, neighbours = self.parts, self.peer.neighbours
        chosen = () if neighbours is parts.reachable else neighbours
        parts.membership.keep_neighbours([parts.names[peer] for peer in chosen if peer in parts.names])

    def _act(self, action: Action) -> None:
        match action:
            case Send(to, answer):
                self.exchange.send(to, answer)
            case WakeAfter(delay):
                self._wake_after(delay)
            case Compare() | Ask() | Blend() | Update():
                self.queue.put(action)
            case Chose(neighbours, by):
                self.account.log_neighbours(neighbours, by)
                self.parts.audit.note("neighbours", members=self.parts.named(neighbours), by=by)
            case Shun(others):
                self.account.note_dropped(others)
                self.parts.audit.note("dropped", members=self.parts.named(others))
            case Drop(model) if model.is_made:
                self.queue.put(action)  # after the jobs that are about it
            case Drop(model, why):
                self.learning.let_go(model)
                if why == "refused":
                    self.counts.refused += 1
                    (member,) = self.parts.named([model.owner])
                    self.parts.audit.note_refused(member, "not a neighbour", self.parts.now)
            case Finish():
                self._finish()
            case Request():
                raise SettingsError(
                    "a behaviour requests models, but real peers only send them: return pens.Send(…) in place of "
                    "pens.Request(…), and answer in `on_received` by pens.Send(model.owner, answer=True)"
                )

    def _wake_after(self, delay: float) -> None:
        self._wake = asyncio.get_running_loop().call_later(delay, self._on_wake)

    def _on_wake(self) -> None:
        if not self.parts.closing:
            self._handle_or_end(Wake())

    def _handle_or_end(self, event: Event) -> None:
        """Handle an event from a timer or a transport; these would swallow an error, so the node ends with it."""
        try:
            self._handle(event)
        except Exception as error:
            self._fail(error)
            raise

    def _fail(self, error: Exception) -> None:
        """End the node with this error. What is on disk stays as it is."""
        self._fault = self._fault or error
        self._over.set()

    def _finish(self) -> None:
        if not self.membership.me.finished:
            self.membership.finish()
            self.account.log_finished()

    # --- gossip, and the end ------------------------------------------------------------------------------------------

    async def _gossip_on(self) -> None:
        while True:
            self._gossiper.call()
            self._look_whether_over()
            self.account.log_joined()
            self.account.log_progress()
            self.status = self.account.status()
            await asyncio.sleep(self.parts.rules.gossip_s)

    def _look_whether_over(self) -> None:
        """End if all members that are known have finished, and long enough ago."""
        now, linger_s = self.parts.now, self.parts.rules.linger_s
        mine = self.membership.me.finished and not self.queue.is_comparing
        finished = mine and self.membership.everyone_finished(now, but=self.parts.misfits)
        self._all_finished = min(self._all_finished, now) if finished else math.inf
        if linger_s is not None and now - self._all_finished >= linger_s:
            self._over.set()

    # --- state on disk ------------------------------------------------------------------------------------------------

    async def _save(self, final: bool = False) -> None:
        """Write the state and the records to disk as they are now."""
        if not self._folder:
            return
        parts, folder = self.parts, self._folder
        wake_in = max(0.0, self._wake.when() - parts.now) if self._wake else None
        state, tensors = take_snapshot(parts, self.queue, self.account, wake_in)
        records = compose_records(parts.learning, parts.past, parts.names, self.account.result(final))
        members = parts.membership.state(parts.now)

        def write() -> None:
            folder.save(state, tensors)
            folder.save_membership(members)
            folder.write(records)

        await parts.learning.bench.do(write, 0)

    def _restore(self, state: dict[str, Any], tensors: dict[str, Any]) -> None:
        restore_snapshot(self.parts, self.queue, self.account, state, tensors)
        self._keep_neighbours()
        if state["finished"]:
            self._finish()
        if state["wake_in"] is not None:
            self._wake_after(state["wake_in"])

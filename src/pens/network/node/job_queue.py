# SPDX-License-Identifier: Apache-2.0
"""The queue of jobs that a peer wants computed: one at a time, in order, beside the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from pens.network.node.account import Account
from pens.network.node.control import Control
from pens.network.node.encoded_jobs import PeerJob
from pens.network.node.parts import NodeParts
from pens.protocol.messages import Answered, Ask, Blend, Compare, Drop, Event, PeerId, Update, Updated


@dataclass(frozen=True)
class QueueCalls:
    """The functions of a node that its queue calls."""

    handle: Callable[[Event], None]
    """Give the peer an event, and carry out its actions."""
    finish: Callable[[], None]
    """The peer has done its updates, or stopped early."""
    save: Callable[[], Awaitable[None]]
    """Write the state and the records to disk."""


class JobQueue:
    """Carries out jobs until the node ends; when the peer has finished, trains the control."""

    def __init__(self, parts: NodeParts, account: Account, control: Control | None, calls: QueueCalls) -> None:
        """`control`: one more model, trained in the end on the peer's own data alone."""
        self._parts, self._account, self._control, self._calls = parts, account, control, calls
        self.jobs: deque[PeerJob] = deque()
        self.due: list[str] = []
        """Questions that are answered when the next update is complete."""
        self._something = asyncio.Event()  # set when there may be something to do

    def put(self, job: PeerJob) -> None:
        """Carry out a job after those that already wait."""
        if isinstance(job, Ask | Blend):
            self._parts.learning.keep_for(job)
        self.jobs.append(job)
        self.wake()

    def restore(self, jobs: Iterable[PeerJob], due: Iterable[str]) -> None:
        """Go on with the jobs and questions of an earlier life, whose models are held already."""
        self.jobs.extend(jobs)
        self.due = list(due)
        self.wake()

    def wake(self) -> None:
        """Let the queue see whether there is something to do: a job, news of other members, or the end."""
        self._something.set()

    async def work(self) -> None:
        """Carry out jobs, until the node ends."""
        times = self._parts.times
        while not self._parts.closing:
            if self.jobs:
                times.in_progress, begun = True, self._parts.now
                await self._do(self.jobs[0])
                times.in_progress, times.total_s = False, times.total_s + self._parts.now - begun
            elif self.is_comparing:
                await self._compare_alone()
            else:
                await self._wait_for_something()

    @property
    def is_comparing(self) -> bool:
        """Whether the peer has finished, and the control is not trained to its end yet."""
        return self._control is not None and self._parts.alone is None and self._parts.membership.me.finished

    async def _compare_alone(self) -> None:
        """Train the control for one update; after its last, log how good it is."""
        assert self._control
        self._parts.alone = await self._control.update()
        if self._parts.alone:
            self._account.log_compared()
            await self._calls.save()

    async def _wait_for_something(self) -> None:
        self._something.clear()
        await self._something.wait()

    async def _do(self, job: PeerJob) -> None:
        match job:
            case Compare():
                await self._parts.learning.compare(job)
                self.jobs.popleft()
            case Blend():
                await self._parts.learning.blend(job)
                self.jobs.popleft()
            case Drop():
                self._parts.learning.let_go(job.model)
                self.jobs.popleft()
            case Ask():
                await self._ask(job)
            case Update():
                await self._update(job)

    async def _ask(self, job: Ask) -> None:
        await self._parts.learning.ask(job, self._parts.seconds)
        self.jobs.popleft()
        if job.when == "updated":
            self.due.append(job.name)
            return
        self._answer(job.name)
        await self._calls.save()

    def _answer(self, name: str) -> None:
        self._calls.handle(Answered(name, self._parts.learners.answer(self._parts.peer.me, name)))

    async def _update(self, job: Update) -> None:
        parts = self._parts
        del parts.past.received[parts.learning.current.version :]
        parts.past.received.append(parts.counts.received)
        before = Counter(parts.learners.by_peer[parts.peer.me].merges)
        await parts.learning.update(job, parts.seconds)
        self._note_merged(job, before)
        parts.past.completed.append(parts.seconds)
        parts.times.last_update = parts.now
        self._account.log_undone()
        if parts.peer.phase == "starting" and not await self._enough_are_known():
            return
        self.jobs.popleft()
        while self.due:
            self._answer(self.due.pop(0))
        if parts.learners.by_peer[parts.peer.me].has_stopped:
            self._calls.finish()
        self._calls.handle(Updated())
        await self._calls.save()

    def _note_merged(self, job: Update, before: Counter[PeerId]) -> None:
        """Write into the audit log whose models the update merged. `before`: how often each was merged before it."""
        parts = self._parts
        merged = parts.learners.by_peer[parts.peer.me].merges - before
        about = [(*parts.named([ref.owner]), ref.version) for ref in job.models if merged[ref.owner]]
        models = [{"member": member, "version": version} for member, version in about]
        parts.audit.note("merged", version=parts.learning.current.version, models=models)

    async def _enough_are_known(self) -> bool:
        """Wait until enough other members are known that fit by their terms; False: the node ends before."""
        while self._num_fitting() < self._parts.rules.wait_for and not self._parts.closing:
            await self._wait_for_something()
        return not self._parts.closing

    def _num_fitting(self) -> int:
        parts = self._parts
        return sum(parts.misfits.by_terms(record.name) is None for record in parts.alive())

# SPDX-License-Identifier: Apache-2.0
"""What one real peer computes: its own model and those it was sent, one job at a time, beside the event loop.

Theory of operation. A received model is held here as plain numbers until the peer wants it compared or merged, and is
handed to `Learners` only then. So one job at a time uses `Learners`, and nothing else does: it needs no lock, and the
event loop goes on receiving and sending while a thread trains. The payload that the peer sends is made when an update
ends; all receivers are sent the same bytes until the next one.

A `Bench` carries out work: in a thread, or, in tests in virtual time, at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch
from torch import Tensor

from pens.engine.batches import SampleStack
from pens.engine.layout import Layout
from pens.errors import PayloadError
from pens.learning.executor import Evaluate, Work, evaluate
from pens.learning.learners import Learners
from pens.network.transport.codec import decode, encode, largest_payload, model_shape
from pens.protocol.messages import Ask, Blend, Compare, ModelRef, PeerId, Update, received_in
from pens.settings.schema import WireForm
from pens.tasks.metric import ACCURACY, Measure


class Bench(Protocol):
    """Carries out work for a peer."""

    async def do(self, work: Callable[[], None], epochs: int) -> None:
        """Carry out `work`, and return when it is done. `epochs`: of training in it."""
        ...


class ThreadBench:
    """A bench with one thread, so that the event loop goes on meanwhile."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "learning")

    async def do(self, work: Callable[[], None], epochs: int) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Wait for the work in progress."""
        self._thread.shutdown()


class Learning:
    """The models of one peer, and what it computes with them."""

    def __init__(
        self,
        me: PeerId,
        learners: Learners,
        bench: Bench,
        form: WireForm,
        test: SampleStack | None = None,
        measure: Measure = ACCURACY,
    ) -> None:
        """`test`: samples on which the kept model is measured; no decision depends on it. `measure`: the main metric of
        the task."""
        self.measure = measure
        self.me, self.learners = me, learners
        self.bench, self._form, self._test = bench, form, test
        self._engine = learners.executor.engine
        self._layout: Layout = self._engine.network.stored
        self._expected = model_shape(self._layout.tensors(torch.zeros(self._layout.size)))
        self.max_payload_bytes = largest_payload(self._expected)
        self._held: dict[ModelRef, Tensor] = {}
        self._uses: Counter[ModelRef] = Counter()
        self.current = learners.first_model(me)
        self.payload: bytes | None = None
        """The current model as bytes; None before the first training, and where its numbers cannot be sent."""
        self.accuracy: float | None = None
        """The main metric (accuracy in classification) of the model that the peer keeps, on the test samples."""
        self.val_accuracy: float | None = None
        """The main metric of the model that the peer keeps, on its validation samples."""
        self.further: dict[str, float] = {}
        """The task's other metrics of that model, by name, on the test samples."""
        self._tested_row: int | None = None

    # --- received models ----------------------------------------------------------------------------------------------

    @property
    def num_held(self) -> int:
        """Received models that wait to be used."""
        return self._uses.total()

    def read(self, payload: bytes) -> Tensor:
        """A payload as a row of numbers; PayloadError if it is not a model of this network.  → [size]"""
        tensors = decode(payload, self._expected)
        return torch.cat([tensors[p.name].reshape(-1) for p in (*self._layout.trained, *self._layout.kept)])

    def hold(self, ref: ModelRef, row: Tensor) -> None:
        """Hold a received model until it is used or let go."""
        self._held.setdefault(ref, row)
        self._uses[ref] += 1

    def let_go(self, ref: ModelRef) -> None:
        if ref.is_made:
            self.learners.names.release(ref)
            return
        self._uses[ref] -= 1
        if not self._uses[ref]:
            del self._uses[ref], self._held[ref]

    def _give(self, refs: tuple[ModelRef, ...]) -> None:
        """Hand received models over to the learners, which let go of them when they are done."""
        for ref in _received(refs):
            self.learners.names.take_in(ref, self._held[ref])
            self.let_go(ref)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def compare(self, action: Compare) -> None:
        """Compare models, and count the m best as selected."""
        self._give(action.models)
        self.learners.record_comparison(self.me, self.current, action)
        await self.bench.do(lambda: self.compute(self.learners.compare()), 0)

    def keep_for(self, job: Ask | Blend) -> None:
        """Hold the models that a question or blend is about until it is computed, even if the peer drops them."""
        self._uses.update(_received(_about(job)))

    async def ask(self, ask: Ask, time: float) -> None:
        """Compute the answer to a question of the peer."""
        self._give(_about(ask))
        self.learners.record_question(self.me, self.current, ask, time)
        self.learners.names.release_all(_received(_about(ask)))
        await self.bench.do(lambda: self.compute(self.learners.compare()), 0)

    async def blend(self, action: Blend) -> None:
        """Make a model of the peer's own."""
        self._give(action.models)
        self.learners.record_blend(self.me, self.current, action)
        self.learners.names.release_all(_received(action.models))
        await self.bench.do(lambda: self.compute(self.learners.compare()), 0)

    async def update(self, action: Update, time: float) -> None:
        """Merge, train and validate; afterwards the new model is the current one."""
        self._give(action.models)
        coming = self.learners.record_update(self.me, self.current, action, time)
        packed: list[bytes | None] = []

        def work() -> None:
            self.compute(self.learners.compute_batch())
            packed.append(self._pack(coming))
            self._measure()

        await self.bench.do(work, action.epochs)
        self.learners.names.release(self.current)
        self.current, (self.payload,) = coming, packed

    def compute(self, work: Work) -> None:
        """Carry out work of this peer's learners; called on the bench."""
        self.learners.executor.carry_out([work], [lambda: None])

    def _pack(self, ref: ModelRef) -> bytes | None:
        (row,) = self.learners.models.read([self.learners.names.row(ref)])
        tensors, travelling = self._layout.tensors(row), self.learners.travelling
        for name in () if travelling is None else tensors.keys() - set(travelling):
            tensors[name].zero_()  # it stays here, and messages have one form
        try:
            return encode(tensors, self._form)
        except PayloadError:
            return None

    def _measure(self) -> None:
        """Measure the model that the peer keeps, if it is another one than before."""
        (row,) = self.learners.tested_rows()
        if row != self._tested_row:
            self._tested_row = row
            self.val_accuracy, self.accuracy, self.further = self.measured(self.learners)

    def measured(self, learners: Learners) -> tuple[float, float | None, dict[str, float]]:
        """The main metric of the kept model on validation samples, and on test samples where there are any; and the
        other metrics on these, by name."""
        (row,) = learners.tested_rows()
        found: list[float] = []

        def work() -> Work:
            validation = yield from evaluate(Evaluate("val", [row], [0]))
            found.append(float(validation.score[0]))

        self.compute(work())
        if not self._test:
            return found[0], None, {}
        tested = self._engine.evaluate(learners.models, [row], self._test, [0], further=True)
        return found[0], float(tested.score[0]), {name: float(values[0]) for name, values in tested.further.items()}

    # --- what is told -------------------------------------------------------------------------------------------------

    def tested_model(self) -> dict[str, Tensor]:
        """The model that the peer keeps, as `load_state_dict` takes it."""
        rows = self.learners.models.read(self.learners.tested_rows())
        return {name: t[0].cpu() for name, t in self._engine.network.state(rows).items()}

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything here that changes, received models included; call it only between jobs."""
        learners, tensors = self.learners.state()
        held = sorted(self._uses.items())
        rows = [self._held[ref] for ref, _ in held]
        data = {
            "learners": learners,
            "current": self.current.version,
            "held": [[*ref, uses] for ref, uses in held],
        }
        models = torch.stack(rows) if rows else torch.empty((0, self._layout.size))
        return data, {**tensors, "held": models}

    def restore(self, data: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go on from what `state` returned in an earlier life."""
        self.learners.restore(data["learners"], dict(tensors))
        self.current = ModelRef(self.me, data["current"])
        self._held, self._uses = {}, Counter()
        for (owner, version, uses), row in zip(data["held"], tensors["held"], strict=True):
            ref = ModelRef(PeerId(owner), version)
            self._held[ref], self._uses[ref] = row.clone(), uses
        self.payload = self._pack(self.current) if self.current.version else None
        self._measure()


def _about(job: Ask | Blend) -> tuple[ModelRef, ...]:
    """The models that a question or blend is about."""
    return job.models if isinstance(job, Blend) else received_in(job.query)


def _received(refs: Iterable[ModelRef]) -> list[ModelRef]:
    """Those that came from others."""
    return [ref for ref in refs if not ref.is_made]

"""The numbers of a group of peers: their data, models, scores and validation history.

Theory of operation. A driver does not compute an update when it begins. It records it (which models go in, which comes
out, when) and goes on; who sends what to whom does not depend on any model's values until a peer selects its
neighbours. `compute` then works off all that is recorded, in batches: everything whose inputs are known, then
everything that became known by that, and so on. A model's name (`ModelRef`) exists from the moment its update is
recorded, its values from the moment that it is computed.

Each update reads the peer's own samples and the models named in it, and nothing else, so any order of computation that
respects the names gives the same result. What depends on a peer's own past (early stopping, its best model) depends on
its own updates only, and those form a chain.

A peer that stopped early answers later updates with its best model and no work: it keeps serving that model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pens import rng
from pens.config import StoppingSettings
from pens.data.scenarios import PeerData
from pens.engine.batches import SampleStack
from pens.engine.optimizers import Recipe
from pens.engine.stack import ModelStack
from pens.engine.training import Engine
from pens.ledger import Ledger
from pens.messages import ModelRef, PeerId, Score, Update
from pens.policies import EarlyStopping, Tally, select_top_m


@dataclass(frozen=True)
class Scoring:
    """A recorded piece of work: compare models."""

    peer: PeerId
    time: float
    models: tuple[ModelRef, ...]
    top_m: int | None
    """How many of the models are chosen, by their scores; None: all, without scores."""
    before: int
    """Updates that the peer had begun before: in step 1, the round."""

    @property
    def needs(self) -> tuple[ModelRef, ...]:
        return self.models


@dataclass(frozen=True)
class Updating(Scoring):
    """A recorded piece of work: compare, merge and train."""

    epochs: int
    may_stop: bool
    own: ModelRef
    """The peer's own model before."""
    out: ModelRef
    """The one that comes out."""

    @property
    def needs(self) -> tuple[ModelRef, ...]:
        return (self.own, *self.models)


Job = Scoring | Updating


@dataclass(frozen=True)
class UpdateRecord:
    """One update that was computed, for the learning curves."""

    time: float
    peer: PeerId
    version: int
    searching: bool
    merged: int
    train_loss: float
    val_loss: float
    val_accuracy: float


@dataclass(frozen=True)
class LearningRules:
    """What all peers of a run have in common."""

    recipe: Recipe
    stopping: StoppingSettings
    own_in_merge: bool
    seed: int
    max_batch: int = 0
    """At most so many jobs at once; 0: all that are ready."""


class Learners:
    """Executes scorings and updates for all peers of a simulation, or for the one peer of a node."""

    def __init__(self, engine: Engine, data: Sequence[PeerData], first_models: Tensor, rules: LearningRules) -> None:
        """`first_models` [peer, size]: each peer's untrained model."""
        device = first_models.device
        self.engine, self.rules = engine, rules
        self.models = ModelStack(engine.network.size, device)
        self._train = SampleStack([d.train for d in data], device)
        self._val = SampleStack([d.val for d in data], device)
        self._rows: dict[ModelRef, int] = {}
        self._uses: Counter[ModelRef] = Counter()
        self._versions = [0] * len(data)
        self._latest = [ModelRef(PeerId(p), 0) for p in range(len(data))]
        self._best: list[ModelRef | None] = [None] * len(data)
        self._stopping = [self._fresh_stopping() for _ in data]
        self._may_stop = [False] * len(data)
        self.stop_times = [np.inf] * len(data)
        """When each peer stopped early, in virtual time."""
        self.tallies = [Tally() for _ in data]
        self.merges: list[Counter[PeerId]] = [Counter() for _ in data]
        """How often each peer merged a model of each other."""
        self.scored = [0] * len(data)
        self.comparisons = Ledger("peer", "round", "sender", "chosen")
        """Every comparison of step 1: in which round, whose model, and whether it was among the top m."""
        self.history: list[UpdateRecord] = []
        self.setbacks: Counter[PeerId] = Counter()
        """Updates undone because the loss was not finite."""
        self.num_updates = self.num_batches = 0
        self._pending: list[Job] = []
        for ref, row in zip(self._latest, self.models.add(first_models), strict=True):
            self._rows[ref], self._uses[ref] = row, 1

    # --- names --------------------------------------------------------------------------------------------------------

    def first_model(self, peer: PeerId) -> ModelRef:
        """The name of a peer's untrained model, retained once for the caller."""
        return ModelRef(peer, 0)

    def retain(self, ref: ModelRef) -> ModelRef:
        """Keep a model alive until it is released once more."""
        self._uses[ref] += 1
        return ref

    def release(self, ref: ModelRef) -> None:
        self._uses[ref] -= 1
        if self._uses[ref] == 0:
            del self._uses[ref]
            if ref in self._rows:
                self.models.release(self._rows.pop(ref))

    # --- recording ----------------------------------------------------------------------------------------------------

    def record_score(self, peer: PeerId, action: Score, time: float) -> None:
        """The models were retained for the peer; they are released when the job is done."""
        self._pending.append(Scoring(peer, time, action.models, action.m, self._versions[peer]))

    def record_update(self, peer: PeerId, own: ModelRef, action: Update, time: float) -> ModelRef:
        """Likewise. Returns the name of the model that will come out, retained once for the caller."""
        self._versions[peer] += 1
        out = self.retain(ModelRef(peer, self._versions[peer]))
        what = (action.models, action.top_m, out.version - 1, action.epochs, action.may_stop)
        job = Updating(peer, time, *what, self.retain(own), out)
        self._pending.append(job)
        return out

    # --- computing ----------------------------------------------------------------------------------------------------

    def compute(self) -> None:
        """Work off all that is recorded, in as few batches as the dependencies allow."""
        while self._pending:
            ready = [job for job in self._pending if self._is_ready(job)]
            ready = ready[: self.rules.max_batch or None]
            self._compute_batch(ready)
            done = {id(job) for job in ready}
            self._pending = [job for job in self._pending if id(job) not in done]

    def _is_ready(self, job: Job) -> bool:
        return all(ref in self._rows for ref in job.needs)

    def _compute_batch(self, jobs: list[Job]) -> None:
        for job in jobs:
            if isinstance(job, Updating) and job.may_stop and not self._may_stop[job.peer]:
                self._begin_stopping(job.peer)
        idle = [job for job in jobs if isinstance(job, Updating) and self.has_stopped(job.peer)]
        busy = [job for job in jobs if not (isinstance(job, Updating) and self.has_stopped(job.peer))]
        chosen = self._choose(busy)
        updates = [(job, models) for job, models in zip(busy, chosen, strict=True) if isinstance(job, Updating)]
        for epochs in sorted({job.epochs for job, _ in updates}):
            alike = [(job, models) for job, models in updates if job.epochs == epochs]
            self._update([job for job, _ in alike], [models for _, models in alike], epochs)
        for job in idle:
            self._set(job, self._rows[self._best[job.peer] or job.own])
        for job in jobs:
            for ref in job.needs:
                self.release(ref)

    def _choose(self, jobs: list[Job]) -> list[tuple[ModelRef, ...]]:
        """The models that each job merges: all of them, or the top m by loss on the peer's own training data."""
        pairs = list(dict.fromkeys((ref, job.peer) for job in jobs if job.top_m is not None for ref in job.models))
        losses: dict[tuple[ModelRef, PeerId], float] = {}
        if pairs:
            rows, slots = [self._rows[ref] for ref, _ in pairs], [peer for _, peer in pairs]
            evaluation = self.engine.evaluate(self.models, rows, self._train, slots)
            losses = dict(zip(pairs, evaluation.loss.tolist(), strict=True))
        return [self._top_m(job, losses) if job.top_m is not None else job.models for job in jobs]

    def _top_m(self, job: Job, losses: dict[tuple[ModelRef, PeerId], float]) -> tuple[ModelRef, ...]:
        assert job.top_m is not None
        senders = [ref.owner for ref in job.models]
        best = select_top_m(senders, [losses[ref, job.peer] for ref in job.models], job.top_m)
        self.tallies[job.peer].add(senders, [senders[i] for i in best])
        self.scored[job.peer] += len(senders)
        for i, sender in enumerate(senders):
            self.comparisons.add(job.peer, job.before, sender, i in best)
        return tuple(job.models[i] for i in best)

    def _update(self, jobs: list[Updating], chosen: list[tuple[ModelRef, ...]], epochs: int) -> None:
        """Merge, train, validate, keep the best, as one batch."""
        slots: list[int] = [job.peer for job in jobs]
        mixed = self.models.mix([self._merge_group(job, refs) for job, refs in zip(jobs, chosen, strict=True)])
        keys = [rng.key(self.rules.seed, "update", job.peer, job.out.version) for job in jobs]
        trained = self.engine.train(mixed, self._train, slots, keys, epochs, self.rules.recipe)
        self.num_updates += len(jobs)
        self.num_batches += 1
        new_rows = self.models.add(trained.rows)
        for i, job in enumerate(jobs):
            if not np.isfinite(trained.loss[i]):
                self.models.release(new_rows[i])
                new_rows[i] = self.models.retain(self._rows[job.own])
                self.setbacks[job.peer] += 1
        validation = self.engine.evaluate(self.models, new_rows, self._val, slots)
        for i, (job, refs) in enumerate(zip(jobs, chosen, strict=True)):
            self._set(job, new_rows[i])
            self.models.release(new_rows[i])
            if np.isfinite(trained.loss[i]):
                self.merges[job.peer].update(ref.owner for ref in refs)
            numbers = (float(trained.loss[i]), float(validation.loss[i]), float(validation.accuracy[i]))
            self._observe(job, len(refs), *numbers)

    def _merge_group(self, job: Updating, chosen: tuple[ModelRef, ...]) -> list[int]:
        """Algorithm 1, MERGE_SAVED_MODELS: the received models and, unless configured otherwise, the peer's own."""
        refs = (job.own, *chosen) if self.rules.own_in_merge or not chosen else chosen
        return [self._rows[ref] for ref in refs]

    def _set(self, job: Updating, row: int) -> None:
        """Give the job's model its values."""
        self._latest[job.peer] = job.out
        self._rows[job.out] = self.models.retain(row)

    def _observe(self, job: Updating, merged: int, train_loss: float, val_loss: float, val_accuracy: float) -> None:
        """Early stopping, the best model, and the learning curve."""
        record = UpdateRecord(
            job.time, job.peer, job.out.version, not job.may_stop, merged, train_loss, val_loss, val_accuracy
        )
        self.history.append(record)
        stopping = self._stopping[job.peer]
        if stopping.observe(val_loss, val_accuracy):
            self._keep_as_best(job.peer, job.out)
        if self.has_stopped(job.peer):
            self.stop_times[job.peer] = job.time
            self._serve_best(job.peer, job.out)

    def _keep_as_best(self, peer: PeerId, ref: ModelRef) -> None:
        older, self._best[peer] = self._best[peer], self.retain(ref)
        if older:
            self.release(older)

    def _serve_best(self, peer: PeerId, ref: ModelRef) -> None:
        """The update that stops a peer ends with its best model: from now on it serves that one."""
        best = self._best[peer]
        assert best
        self.models.release(self._rows[ref])
        self._rows[ref] = self.models.retain(self._rows[best])

    # --- early stopping -----------------------------------------------------------------------------------------------

    def has_stopped(self, peer: PeerId) -> bool:
        """Whether a peer's updates are no work any more."""
        return self._may_stop[peer] and self._stopping[peer].stopped

    def _begin_stopping(self, peer: PeerId) -> None:
        """From here on early stopping applies, and the past does not count."""
        self._may_stop[peer] = True
        self._stopping[peer] = self._fresh_stopping()

    def _fresh_stopping(self) -> EarlyStopping:
        rules = self.rules.stopping
        return EarlyStopping(rules.stop_on, rules.window, rules.patience)

    # --- results ------------------------------------------------------------------------------------------------------

    def tested_rows(self) -> list[int]:
        """The row of each peer's model that is to be tested: the best on validation data, or the last."""
        refs = self._latest if self.rules.stopping.tested == "last" else self._best
        return [self._rows[ref or latest] for ref, latest in zip(refs, self._latest, strict=True)]

    def sorted_history(self) -> list[UpdateRecord]:
        """All updates in virtual time, whatever order they were computed in."""
        return sorted(self.history, key=lambda r: (r.time, r.peer, r.version))

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything that changes, as plain data and tensors. Only between computations."""
        assert not self._pending, "compute before saving"
        refs = sorted(self._rows, key=lambda ref: (ref.owner, ref.version))
        rows = sorted(set(self._rows.values()))
        place = {row: i for i, row in enumerate(rows)}
        history = np.array(
            [[r.time, r.peer, r.version, r.searching, r.merged, r.train_loss, r.val_loss, r.val_accuracy]
             for r in self.history],
            np.float64,
        ).reshape(-1, 8)  # fmt: skip
        data = {
            "refs": [[ref.owner, ref.version, place[self._rows[ref]], self._uses[ref]] for ref in refs],
            "versions": self._versions,
            "latest": [ref.version for ref in self._latest],
            "best": [ref.version if ref else None for ref in self._best],
            "stopping": [asdict(s) for s in self._stopping],
            "may_stop": self._may_stop,
            "stop_times": self.stop_times,
            "tallies": [[_pairs(t.selected), _pairs(t.sampled), t.samplings] for t in self.tallies],
            "merges": [_pairs(m) for m in self.merges],
            "scored": self.scored,
            "setbacks": _pairs(self.setbacks),
            "num_updates": self.num_updates,
            "num_batches": self.num_batches,
        }
        tensors = {"models": self.models.read(rows), "history": torch.from_numpy(history)}
        return data, {**tensors, "comparisons": self.comparisons.state()}

    def restore(self, data: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Become what `state` described."""
        device = self.models.device
        self.models = ModelStack(self.engine.network.size, device)
        rows = self.models.add(tensors["models"].to(device))
        self._rows, self._uses = {}, Counter()
        for owner, version, place, uses in data["refs"]:
            ref = ModelRef(PeerId(owner), version)
            self._rows[ref], self._uses[ref] = self.models.retain(rows[place]), uses
        for row in rows:
            self.models.release(row)
        self._versions = list(data["versions"])
        self._latest = [ModelRef(PeerId(p), v) for p, v in enumerate(data["latest"])]
        self._best = [None if v is None else ModelRef(PeerId(p), v) for p, v in enumerate(data["best"])]
        self._stopping = [EarlyStopping(**s) for s in data["stopping"]]
        self._may_stop, self.stop_times = list(data["may_stop"]), list(data["stop_times"])
        self.tallies = [Tally(_counter(selected), _counter(sampled), n) for selected, sampled, n in data["tallies"]]
        self.merges = [_counter(m) for m in data["merges"]]
        self.scored, self.setbacks = list(data["scored"]), _counter(data["setbacks"])
        self.num_updates, self.num_batches = data["num_updates"], data["num_batches"]
        self.comparisons.restore(tensors["comparisons"])
        self.history = [
            UpdateRecord(t, PeerId(int(p)), int(v), bool(s), int(m), *losses)
            for t, p, v, s, m, *losses in tensors["history"].tolist()
        ]


def _pairs(counter: Counter[PeerId]) -> list[list[int]]:
    return [[peer, count] for peer, count in counter.items()]


def _counter(pairs: list[list[int]]) -> Counter[PeerId]:
    return Counter({PeerId(peer): count for peer, count in pairs})

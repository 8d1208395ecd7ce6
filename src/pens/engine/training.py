"""Local training, scoring and evaluation of many models at once; and one at a time, to check against (law 1).

Peers are independent, so the gradient of the sum of their losses holds each peer's own gradient in its own row: one
forward and one backward pass serve all. Work is cut into chunks of models (training) or of models and samples
(evaluation), whose activations fit the memory that is given, and which a CPU's cores share (`pens.engine.cores`). There
no bit of a result depends on the cut (law 3): every operation treats a peer's row alike however many rows there are,
with one exception, matrix products of a single matrix, so a stack of one is computed as two. On a GPU the library picks
its algorithm by the number of rows, and results agree up to rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pens.config import EngineSettings
from pens.data.samples import Array
from pens.engine.batches import SampleStack, plan_visits
from pens.engine.cores import Cores
from pens.engine.devices import DOTS, lowering_levels, memory_bytes, prepare_device
from pens.engine.native import can_compile
from pens.engine.network import StackedNetwork
from pens.engine.optimizers import Recipe
from pens.engine.stack import ModelStack
from pens.engine.update import StackUpdate, rounded_up, sample_losses
from pens.nets import NetFactory

_LARGE_SAMPLE_BYTES = 64 << 10  # activations of one sample: the digits network has 17 kB, the paper's over 300
_SHARE_BYTES = 4 << 20  # a core's share of a step; below, Python's lock takes what a second core would bring
_SAMPLES_AT_ONCE = 64  # per model in an evaluation; fixed, so that no bit depends on the memory given


@dataclass(frozen=True)
class Trained:
    """What an update gave: new models, and each one's mean training loss over its last epoch. The loss is not finite
    where any step's loss or any resulting weight was not."""

    rows: Tensor
    loss: Array


@dataclass(frozen=True)
class Evaluation:
    """Mean loss and accuracy of each model on its samples."""

    loss: Array
    accuracy: Array


class Engine(Protocol):
    """What the learners need. Rows of models in, rows or numbers out."""

    network: StackedNetwork

    def train(
        self,
        rows: Tensor,
        data: SampleStack,
        slots: Sequence[int],
        keys: Sequence[int],
        epochs: int,
        recipe: Recipe,
    ) -> Trained:
        """Train model i on the samples of slot i, in the order of key i.  rows [model, size]"""

    def evaluate(self, models: ModelStack, rows: Sequence[int], data: SampleStack, slots: Sequence[int]) -> Evaluation:
        """Run model rows[i] over all samples of slots[i]."""


class StackEngine:
    """All models at once."""

    def __init__(self, network: StackedNetwork, memory_bytes: int, evaluator: LoopEngine | None = None) -> None:
        """`evaluator`: who scores and evaluates instead, where that is faster."""
        self.network = network
        self.memory_bytes = memory_bytes
        self._evaluator = evaluator
        self._cores = Cores(network)
        self._recorded: dict[tuple[int, int, Recipe], StackUpdate] = {}
        self._recorded_for: SampleStack | None = None
        self._pool: Any = None
        self._records = network.device.type == "cuda"

    def train(
        self, rows: Tensor, data: SampleStack, slots: Sequence[int], keys: Sequence[int], epochs: int, recipe: Recipe
    ) -> Trained:
        recipe = replace(recipe, batch_size=data.fitting(recipe.batch_size))
        per_model = self.network.bytes_per_sample * recipe.batch_size + 5 * 4 * self.network.size

        def work(network: StackedNetwork, chunk: range) -> tuple[Tensor, Tensor]:
            pick = self._filled_up(chunk, len(data.counts))
            some_slots, some_keys = [slots[i] for i in pick], [keys[i] for i in pick]
            visits = plan_visits(
                data, some_slots, torch.tensor(some_keys, device=rows.device), epochs, recipe.batch_size
            )
            update = self._update(network, data, recipe, len(pick), len(visits))
            new_rows, loss = update.run(rows[pick], some_slots, visits)
            return new_rows[: len(chunk)], loss[: len(chunk)]

        parts = self._cores.map(work, self._cut(len(rows), per_model))
        return Trained(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]).cpu().numpy())

    def _cut(self, total: int, bytes_each: int) -> list[range]:
        """Chunks that fit the memory while all cores work, one for each core that is worth its calls."""
        fitting = self.memory_bytes // self._cores.count // bytes_each
        shares = min(self._cores.count, max(1, total * bytes_each // _SHARE_BYTES))
        return list(_chunks(total, min(fitting, -(-total // shares))))

    def _filled_up(self, chunk: range, everybody: int) -> list[int]:
        """The chunk's models, and on a GPU some of them again, up to a size for which a step may be recorded."""
        size = rounded_up(len(chunk), everybody) if self._records else len(chunk)
        size = max(size, 2)
        return [*chunk, *[chunk[0]] * (size - len(chunk))]

    def _update(
        self, network: StackedNetwork, data: SampleStack, recipe: Recipe, num_models: int, num_steps: int
    ) -> StackUpdate:
        """An update of that shape: recorded once and kept until other data come, or on a CPU a fresh one."""
        if not self._records:
            return StackUpdate(network, data, recipe, num_models, num_steps)
        if self._recorded_for is not data:
            self._recorded, self._recorded_for = {}, data
            self._pool = torch.cuda.graph_pool_handle()
        shape = (num_models, num_steps, recipe)
        if shape not in self._recorded:
            update = StackUpdate(network, data, recipe, num_models, num_steps)
            try:
                update.record(self._pool)
            except RuntimeError as error:  # the network does something that cannot be recorded: call it step by step
                self._records = False
                warnings.warn(f"{self.network.name} cannot be recorded as a CUDA graph: {error}", stacklevel=2)
                return StackUpdate(network, data, recipe, num_models, num_steps)
            self._recorded[shape] = update
        return self._recorded[shape]

    def evaluate(self, models: ModelStack, rows: Sequence[int], data: SampleStack, slots: Sequence[int]) -> Evaluation:
        if self._evaluator:
            return self._evaluator.evaluate(models, rows, data, slots)
        longest = max(data.counts[s] for s in slots)
        samples = min(longest, _SAMPLES_AT_ONCE)

        @torch.no_grad()
        def work(network: StackedNetwork, chunk: range) -> Evaluation:
            pick = [*chunk] if len(chunk) > 1 else [*chunk, *chunk]
            tensors = network.tensors(models.read([rows[i] for i in pick]))
            slot = torch.tensor([slots[i] for i in pick], device=models.device)
            runs = [_run(network, tensors, data, slot, slice(c.start, c.stop)) for c in _chunks(longest, samples)]
            losses, hits = (torch.cat(column, 1)[: len(chunk)].cpu().numpy() for column in zip(*runs, strict=True))
            return _summed(losses, hits, [data.counts[slots[i]] for i in chunk])

        parts = self._cores.map(work, self._cut(len(rows), self.network.bytes_per_sample * samples))
        return Evaluation(np.concatenate([p.loss for p in parts]), np.concatenate([p.accuracy for p in parts]))


class LoopEngine:
    """One model after the other, with torch's own optimizers and the network as its author wrote it: slow, and plain
    enough to be trusted. What every other engine is compared with."""

    def __init__(self, network: StackedNetwork) -> None:
        self.network = network

    def train(
        self,
        rows: Tensor,
        data: SampleStack,
        slots: Sequence[int],
        keys: Sequence[int],
        epochs: int,
        recipe: Recipe,
    ) -> Trained:
        results = [
            self._train_one(row.clone(), data, slot, key, epochs, recipe)
            for row, slot, key in zip(rows, slots, keys, strict=True)
        ]
        return Trained(torch.stack([r for r, _ in results]), np.array([loss for _, loss in results], np.float32))

    def _train_one(
        self, row: Tensor, data: SampleStack, slot: int, key: int, epochs: int, recipe: Recipe
    ) -> tuple[Tensor, float]:
        recipe = replace(recipe, batch_size=data.fitting(recipe.batch_size))
        tensors = self.network.tensors(row)  # views: what changes them changes the row
        for place in self.network.trained:
            tensors[place.name].requires_grad_()
        optimizer = _torch_optimizer(recipe, [tensors[p.name] for p in self.network.trained])
        total = health = 0.0
        visits = plan_visits(data, [slot], torch.tensor([key], device=row.device), epochs, recipe.batch_size)
        for step in range(len(visits)):
            index = visits.index[step, 0][visits.weight[step, 0] > 0]
            if not len(index):
                continue
            logits = self.network.single(tensors, data.x[slot, index], visits.keys[step, 0], train=True)
            loss = F.cross_entropy(logits, data.y[slot, index])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            health += loss.item()
            total += loss.item() * visits.share[step, 0].item()
        return row, total if np.isfinite(health) and bool(row.isfinite().all()) else float("nan")

    @torch.no_grad()
    def evaluate(self, models: ModelStack, rows: Sequence[int], data: SampleStack, slots: Sequence[int]) -> Evaluation:
        losses = np.zeros((len(rows), data.longest), np.float32)
        hits = np.zeros((len(rows), data.longest), bool)
        for i, (row, slot) in enumerate(zip(rows, slots, strict=True)):
            count, tensors = data.counts[slot], self.network.tensors(models.read([row])[0])
            for c in (slice(c.start, c.stop) for c in _chunks(count, 1000)):
                y = data.y[slot, c]
                logits = self.network.single(tensors, data.x[slot, c], torch.zeros_like(y[0]), train=False)
                losses[i, c] = F.cross_entropy(logits, y, reduction="none").cpu().numpy()
                hits[i, c] = (logits.argmax(-1) == y).cpu().numpy()
        return _summed(losses, hits, [data.counts[s] for s in slots])


def new_engine(
    factory: NetFactory, example: Tensor, num_classes: int, settings: EngineSettings, num_visits: float
) -> Engine:
    """The engine for a network on the device where `example` lies.

    `num_visits`: samples that a run visits in training, each as often as it does.
    """
    device = example.device
    prepare_device(device, settings.precision)
    alone = StackedNetwork(factory, example, num_classes, stacked=False)
    if settings.backend == "loop":
        return LoopEngine(alone)
    compiled = device.type == "cpu" and can_compile(settings.compile, num_visits * alone.bytes_per_sample)
    levels = lowering_levels(device, compiled)
    network = StackedNetwork(factory, example, num_classes, True, levels, DOTS[settings.precision])
    evaluator = None
    if device.type == "cpu" and network.level != "native" and alone.bytes_per_sample > _LARGE_SAMPLE_BYTES:
        evaluator = LoopEngine(alone)  # without a backward pass it is faster alone, by the library's convolutions
    return StackEngine(network, memory_bytes(device, settings.memory_mb), evaluator)


def _run(
    network: StackedNetwork, tensors: dict[str, Tensor], data: SampleStack, slot: Tensor, samples: slice
) -> tuple[Tensor, Tensor]:
    """Loss and correctness of each sample.  → [model, sample] each"""
    y = data.y[slot, samples]
    logits = network.logits(tensors, data.x[slot, samples], torch.zeros_like(slot), train=False)
    return sample_losses(logits, y), logits.argmax(-1) == y


def _summed(losses: Array, hits: Array, counts: list[int]) -> Evaluation:
    """Means over each model's real samples, summed in double precision.  [model, sample]"""
    count = np.array(counts)
    real = np.arange(losses.shape[1]) < count[:, None]
    return Evaluation(
        np.where(real, losses, 0).sum(1, dtype=np.float64) / count, np.where(real, hits, False).sum(1) / count
    )


def _chunks(total: int, size: int) -> Iterator[range]:
    size = max(1, min(size, total))
    return (range(start, min(start + size, total)) for start in range(0, total, size))


def _torch_optimizer(recipe: Recipe, parameters: list[Tensor]) -> torch.optim.Optimizer:
    if recipe.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay)
    return torch.optim.SGD(parameters, lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)

# SPDX-License-Identifier: Apache-2.0
"""Engines: train, score and evaluate many models, all at once (`StackEngine`) or one after the other (`LoopEngine`).

The loop is what the stack is checked against (law 1). Peers are independent, so the gradient of the sum of their losses
holds each peer's own gradient in its own row: one forward and one backward pass serve all peers. Work is cut into
chunks of models (training) or of models and samples (evaluation), whose activations fit the given memory. On a CPU the
cores share the chunks (`pens.engine.cores`), and no bit of a result depends on how the work was cut (law 3): every
operation gives the same row for a peer however many rows there are. The one exception is the product of a single
matrix, so a stack of one model is computed as a stack of two. On a GPU libraries choose an algorithm by the number of
rows, and results agree up to rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pens import rng
from pens.data.samples import Array
from pens.engine.batches import SampleStack, Subset, plan_visits
from pens.engine.compiled import can_compile
from pens.engine.cores import Cores, one_thread
from pens.engine.devices import DOTS, kept_bytes, lowering_levels, memory_bytes, prepare_device
from pens.engine.frozen import Cut
from pens.engine.functional import StackedNetwork
from pens.engine.optimizers import Moments, Recipe
from pens.engine.stack import ModelStack
from pens.engine.update import StackUpdate, rounded_up, sample_losses
from pens.errors import PensWarning
from pens.nets import NetFactory
from pens.settings.schema import EngineSettings
from pens.tasks.classification import Classification
from pens.tasks.metric import Metric
from pens.tasks.task import Outputs, Task

_LARGE_SAMPLE_BYTES = 64 << 10  # activations of one sample: the digits network has 17 kB, the paper's over 300
_RECORDED_BYTES = 1 << 30  # models, gradients and optimizer state of one recorded step, unless it has few models
_FEW_MODELS = 32  # that one step takes, however large they are, since a step of fewer leaves much of a GPU idle
_SHARE_BYTES = 4 << 20  # the least share of a step for a core; with less, Python's lock costs what a second core gains
_RECORDS_WORTH = 16  # how much more a step costs beside its models on a GPU, where each number of steps is recorded
_SAMPLES_ALONE = 1000  # samples at once in an evaluation of one model by the loop
_SAMPLES_AT_ONCE = {"cpu": 64, "cuda": 512}
"""Samples at once for each model in an evaluation by the stack: on a CPU as many as fit its caches, on a GPU as many as
are worth a launch. The numbers are fixed, so that no bit of a result depends on the given memory."""


@dataclass(frozen=True)
class Trained:
    """The result of an update: new models, and each model's mean training loss over its last epoch. The loss is not
    finite where the loss of any step or any resulting weight was not finite."""

    rows: Tensor
    losses: Tensor | Array
    moments: Moments | None = None
    """The optimizers' state after the update; None where the optimizers started anew."""

    @cached_property
    def loss(self) -> Array:
        """The losses on the host. They are read from the device on first use, so that the host need not wait before."""
        return self.losses.cpu().numpy() if isinstance(self.losses, Tensor) else self.losses


@dataclass(frozen=True)
class Evaluation:
    """The mean loss and the main metric of each model on its samples.  [model] each"""

    loss: Array
    score: Array
    """The main metric of the task: accuracy, for instance."""
    further: Mapping[str, Array] = field(default_factory=dict)
    """The task's other metrics by name, where they were asked for."""
    losses: Array | None = None
    """The loss of each sample, where it was asked for; 0 where a model has fewer samples.  [model, sample]"""

    @property
    def accuracy(self) -> Array:
        """The score where the task is classification."""
        return self.score


class Engine(Protocol):
    """Trains and evaluates models for the learners. Rows of models go in; rows or numbers come out."""

    network: StackedNetwork

    def train(
        self,
        rows: Tensor,
        data: SampleStack,
        slots: Sequence[int],
        keys: Sequence[int],
        epochs: int,
        recipe: Recipe,
        moments: Moments | None = None,
        only: tuple[str, ...] | None = None,
    ) -> Trained:
        """Train model i on the samples of slot i, in the order of key i.  rows [model, size]

        `moments`: the optimizer state to go on with; None: each model's optimizer begins anew.
        `only`: the names of the tensors that change, parameters and buffers; None: all. Then optimizers begin anew.
        """

    def evaluate(
        self,
        models: ModelStack,
        rows: Sequence[int],
        data: SampleStack,
        slots: Sequence[int],
        subset: Subset | None = None,
        *,
        further: bool = False,
        each: bool = False,
    ) -> Evaluation:
        """The loss and main metric of model rows[i] on all samples of slots[i], or on a subset of them.

        `further`: whether the task's other metrics are wanted, too. `each`: whether the loss of each sample is.
        """


class StackEngine:
    """Trains and evaluates all models at once, as one stack."""

    def __init__(
        self,
        network: StackedNetwork,
        memory_bytes: int,
        evaluator: LoopEngine | None = None,
        task: Task | None = None,
    ) -> None:
        """`evaluator`: the engine that scores and evaluates in place of this one, where it is faster.

        `task`: what is learned; None: classification.
        """
        self.network = network
        self._task = task or Classification()
        self.memory_bytes = memory_bytes
        self._evaluator = evaluator
        self._cores = Cores(network)
        self._recorded: dict[tuple[int, int, Recipe, tuple[str, ...] | None], StackUpdate] = {}
        self._recorded_for: SampleStack | None = None
        self._pool: Any = None
        self._records = network.device.type == "cuda"
        self._features: WeakKeyDictionary[SampleStack, SampleStack | None] = WeakKeyDictionary()
        """For samples: their features, where the network is cut and they fit the given memory."""

    def train(
        self,
        rows: Tensor,
        data: SampleStack,
        slots: Sequence[int],
        keys: Sequence[int],
        epochs: int,
        recipe: Recipe,
        moments: Moments | None = None,
        only: tuple[str, ...] | None = None,
    ) -> Trained:
        assert moments is None or only is None
        data = self._prepared(data)
        recipe = replace(recipe, batch_size=data.fitting(recipe.batch_size))
        per_model = self.network.bytes_per_sample * recipe.batch_size + 5 * 4 * self.network.size
        at_once = max(_RECORDED_BYTES // self._bytes_in_work, _FEW_MODELS)
        new_rows, loss = torch.empty_like(rows), torch.empty(len(rows), device=rows.device)
        new_moments = torch.empty_like(moments.values) if moments else None

        def work(network: StackedNetwork, chunk: Sequence[int]) -> None:
            pick = self._filled_up(chunk, len(data.counts))
            some_slots, some_keys = [slots[i] for i in pick], [keys[i] for i in pick]
            keys_there = torch.tensor(some_keys, device=rows.device)
            visits = plan_visits(data, some_slots, keys_there, epochs, recipe.batch_size, self._records)
            update = self._update(network, data, recipe, len(pick), len(visits), only)
            here, past = list(chunk), moments.pick(pick) if moments else None
            some_rows, some_loss, some_moments = update.run(rows[pick], some_slots, visits, past)
            new_rows[here], loss[here] = some_rows[: len(chunk)], some_loss[: len(chunk)]
            if new_moments is not None and some_moments is not None:
                new_moments[here] = some_moments[: len(chunk)]

        steps = [-(-data.counts[slot] // recipe.batch_size) for slot in slots]
        self._cores.map(work, self._cut(steps, per_model, at_once))
        return Trained(new_rows, loss, _later(moments, new_moments, data, slots, epochs, recipe))

    def _prepared(self, data: SampleStack) -> SampleStack:
        """The samples, or their features: what is frozen is computed once per sample. Features are kept for as long as
        their samples, if they take no more memory than a chunk may; else they are computed in every step."""
        if self.network.cut is None or data.has_features:
            return data
        if data not in self._features:
            self._features[data] = _featured(self.network.cut, data, self.memory_bytes)
        return self._features[data] or data

    @property
    def _bytes_in_work(self) -> int:
        """What a model takes in an update: its numbers, their gradients and the optimizer's state."""
        return 4 * 4 * self.network.size

    def _cut(self, steps: Sequence[int], bytes_each: int, most: int) -> list[list[int]]:
        """Chunks of models with about as many steps each, of about one size, that fit the memory while all cores work,
        and that leave each core enough work to be worth using.  steps: of each model → positions of models"""
        fitting = self.memory_bytes // self._cores.count // bytes_each
        chunks = []
        overhead = max(2, _SHARE_BYTES // bytes_each) * (_RECORDS_WORTH if self._records else 1)
        for group in _alike(steps, overhead):
            total = len(group)
            shares = min(self._cores.count, max(1, total * bytes_each // _SHARE_BYTES))
            longest = max(1, min(fitting, most, -(-total // shares)))
            pieces = _chunks(total, -(-total // -(-total // longest)))
            chunks += [group[piece.start : piece.stop] for piece in pieces]
        return chunks

    def _filled_up(self, chunk: Sequence[int], everybody: int) -> list[int]:
        """The chunk's models, and on a GPU its first model repeated up to a size for which a step can be recorded."""
        size = rounded_up(len(chunk), everybody) if self._records else len(chunk)
        size = max(size, 2)
        return [*chunk, *[chunk[0]] * (size - len(chunk))]

    def _update(
        self,
        network: StackedNetwork,
        data: SampleStack,
        recipe: Recipe,
        num_models: int,
        num_steps: int,
        only: tuple[str, ...] | None,
    ) -> StackUpdate:
        """An update for so many models and steps: on a GPU recorded once and kept until other data are used, on a CPU
        made anew each time."""
        if not self._records:
            return StackUpdate(network, data, recipe, num_models, num_steps, self._task, only)
        if self._recorded_for is not data:
            self._recorded, self._recorded_for = {}, data
            self._pool = torch.cuda.graph_pool_handle()
        shape = (num_models, num_steps, recipe, only)
        if shape not in self._recorded:
            models = num_models + sum(others for others, *_ in self._recorded)
            if models * self._bytes_in_work > kept_bytes(network.device):
                self._recorded.clear()
            update = StackUpdate(network, data, recipe, num_models, num_steps, self._task, only)
            try:
                update.record(self._pool)
            except RuntimeError as error:  # the network does what cannot be recorded: steps are called one by one
                self._records = False
                warnings.warn(
                    f"{self.network.name} cannot be recorded as a CUDA graph, so it trains more slowly: {error}",
                    PensWarning,
                    stacklevel=2,
                )
                return StackUpdate(network, data, recipe, num_models, num_steps, self._task, only)
            self._recorded[shape] = update
        return self._recorded[shape]

    def evaluate(
        self,
        models: ModelStack,
        rows: Sequence[int],
        data: SampleStack,
        slots: Sequence[int],
        subset: Subset | None = None,
        *,
        further: bool = False,
        each: bool = False,
    ) -> Evaluation:
        if self._evaluator:
            return self._evaluator.evaluate(models, rows, data, slots, subset, further=further, each=each)
        data = self._prepared(data)
        counts = _counts(data, slots, subset)
        # the longest of all slots, not of this call, so that no result depends on the other models of the call
        longest = subset.count(data.longest) if subset else data.longest
        samples = longest if self.network.evaluates_as_one_batch else min(longest, _SAMPLES_AT_ONCE[models.device.type])
        per_model = self.network.bytes_per_sample * samples + 2 * 4 * self.network.size
        metrics, cuts = _asked(self._task, further), list(_chunks(longest, samples))

        @torch.no_grad()
        def work(network: StackedNetwork, chunk: Sequence[int]) -> Evaluation:
            pick = [*chunk] if len(chunk) > 1 else [*chunk, *chunk]
            tensors = network.in_work.tensors(network.to_work(models.read([rows[i] for i in pick])))
            slot = torch.tensor([slots[i] for i in pick], device=models.device)
            positions = subset.positions(data, slots, pick) if subset else None
            count = None
            if network.evaluates_as_one_batch:
                count = torch.tensor([counts[i] for i in pick], device=models.device)
            asked = [cut for cut in cuts if cut.start < max(counts[i] for i in chunk)]
            runs = [_run(network, self._task, metrics, tensors, data, slot, positions, c, count) for c in asked]
            alone = (torch.cat(column, 1)[: len(chunk)].cpu().numpy() for column in zip(*runs, strict=True))
            columns = [_padded(column, longest) for column in alone]  # sums of equal length have equal bits
            return _summed(metrics, columns, [counts[i] for i in chunk], each)

        chunks = self._cut([-(-count // samples) for count in counts], per_model, len(rows))
        parts = self._cores.map(work, chunks)
        back = np.argsort(np.concatenate(chunks))
        others = {name: np.concatenate([part.further[name] for part in parts])[back] for name in parts[0].further}
        loss, score = (np.concatenate([getattr(part, name) for part in parts])[back] for name in ("loss", "score"))
        alone = np.concatenate([part.losses for part in parts])[back] if each else None
        return Evaluation(loss, score, others, alone)


class LoopEngine:
    """Trains and evaluates one model after the other, with PyTorch's own optimizers and the network as its author wrote
    it. It is slow, but plain enough to be trusted: every other engine is compared with it.

    Each model is computed by one thread. On a CPU the cores share the models of large networks, unless a network draws
    random numbers of its own: these come from one generator, which is seeded for each step of each model."""

    def __init__(self, network: StackedNetwork, task: Task | None = None) -> None:
        """`task`: what is learned; None: classification."""
        self.network = network
        self._task = task or Classification()
        self._cores = Cores(network)

    def train(
        self,
        rows: Tensor,
        data: SampleStack,
        slots: Sequence[int],
        keys: Sequence[int],
        epochs: int,
        recipe: Recipe,
        moments: Moments | None = None,
        only: tuple[str, ...] | None = None,
    ) -> Trained:
        assert moments is None or only is None
        recipe = replace(recipe, batch_size=data.fitting(recipe.batch_size))
        new_moments = moments.values.clone() if moments else torch.zeros(len(rows), 0, self.network.size)
        steps = moments.steps if moments else [0] * len(rows)
        share = self._share(True, recipe.batch_size)

        def work(network: StackedNetwork, one: range) -> tuple[Tensor, float]:
            (i,) = one
            past = new_moments[i], steps[i]
            row, key = rows[i].clone(), keys[i]
            return self._train_one(network, row, data, slots[i], key, epochs, recipe, *past, not share, only)

        results = self._cores.map(work, list(_chunks(len(rows), 1)), share)
        later = _later(moments, new_moments, data, slots, epochs, recipe)
        return Trained(torch.stack([r for r, _ in results]), np.array([loss for _, loss in results], np.float32), later)

    def _train_one(
        self,
        network: StackedNetwork,
        row: Tensor,
        data: SampleStack,
        slot: int,
        key: int,
        epochs: int,
        recipe: Recipe,
        moments: Tensor,
        steps: int,
        seeded: bool,
        only: tuple[str, ...] | None,
    ) -> tuple[Tensor, float]:
        """Train one model. moments [moment, size]: its optimizer's state after `steps` steps, changed in place."""
        # .data: views, so that what changes them changes the row; and yet a changed buffer is no changed weight
        tensors = {name: tensor.data for name, tensor in network.tensors(row).items()}
        places = [place for place in network.may_train if only is None or place.name in only]
        buffers = [] if only is None else [place.name for place in network.stored.kept if place.name not in only]
        still = {name: tensors[name].clone() for name in buffers}
        for place in places:
            tensors[place.name].requires_grad_()
        optimizer = _torch_optimizer(recipe, [tensors[p.name] for p in places])
        for moment, name in zip(moments, _MOMENTS[recipe.optimizer], strict=False):
            for place in places:  # these are views, too
                optimizer.state[tensors[place.name]][name] = network.tensors(moment)[place.name]
                optimizer.state[tensors[place.name]]["step"] = torch.tensor(float(steps))
        total = health = 0.0
        visits = plan_visits(data, [slot], torch.tensor([key], device=row.device), epochs, recipe.batch_size)
        for step in range(len(visits)):
            index = visits.index[step, 0][visits.weight[step, 0] > 0]
            if not len(index):
                continue
            logits = network.single(tensors, data.x[slot, index], visits.keys[step, 0], train=True, seeded=seeded)
            loss = self._mean_loss(logits, data, slot, index)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            for name, buffer in still.items():
                tensors[name].copy_(buffer)
            health += loss.item()
            total += loss.item() * visits.share[step, 0].item()
        return row, total if np.isfinite(health) and bool(row.isfinite().all()) else float("nan")

    def _mean_loss(self, outputs: Tensor, data: SampleStack, slot: int, index: Tensor) -> Tensor:
        """The mean over a batch of what each sample loses, times how much it counts."""
        y = data.y[slot, index]
        if data.weights is None:
            return F.cross_entropy(outputs, y) if self._task.is_cross_entropy else self._task.losses(outputs, y).mean()
        return (self._task.losses(outputs, y) * data.weights[slot, index]).mean()

    def evaluate(
        self,
        models: ModelStack,
        rows: Sequence[int],
        data: SampleStack,
        slots: Sequence[int],
        subset: Subset | None = None,
        *,
        further: bool = False,
        each: bool = False,
    ) -> Evaluation:
        counts = _counts(data, slots, subset)
        metrics, share = _asked(self._task, further), self._share(False, min(max(counts), _SAMPLES_ALONE))

        @torch.no_grad()
        def work(network: StackedNetwork, one: range) -> list[Array]:
            (i,) = one
            tensors, slot = network.tensors(models.read([rows[i]])[0]), slots[i]
            positions = subset.positions(data, slots, [i])[0] if subset else torch.arange(counts[i], device=data.device)
            at_once, runs = counts[i] if network.evaluates_as_one_batch else _SAMPLES_ALONE, []
            for c in (slice(c.start, c.stop) for c in _chunks(counts[i], at_once)):
                x, y = data.x[slot, positions[: counts[i]][c]], data.y[slot, positions[: counts[i]][c]]
                outputs = network.single(tensors, x, network.a_key(), train=False, seeded=not share)
                runs.append([self._task.losses(outputs, y), *_statistics(metrics, outputs, y)])
            return [torch.cat(column).cpu().numpy() for column in zip(*runs, strict=True)]

        found = self._cores.map(work, list(_chunks(len(rows), 1)), share)
        return _summed(metrics, [_stacked(column, max(counts)) for column in zip(*found, strict=True)], counts, each)

    def _share(self, train: bool, samples: int) -> bool:
        """Whether the cores share models, each of which runs over so many samples at once."""
        return not self.network.draws[train] and self.network.bytes_per_sample * samples >= _SHARE_BYTES


def new_engine(
    factory: NetFactory,
    example: Tensor,
    outputs: int | Outputs,
    settings: EngineSettings,
    num_visits: float,
    task: Task | None = None,
) -> Engine:
    """The engine for a network, on the device of `example`.

    `outputs`: how many class scores the network has to give for a sample, or what else it has to return.
    `num_visits`: samples that a run trains on, each counted as often as it is visited.
    `task`: what is learned; None: classification.
    """
    device = example.device
    prepare_device(device, settings.precision)
    with one_thread():
        alone = StackedNetwork(factory, example, outputs, stacked=False)
    if settings.backend == "loop":
        return LoopEngine(alone, task)
    compiled = device.type == "cpu" and can_compile(settings.compile, num_visits * alone.bytes_per_sample)
    levels = lowering_levels(device, compiled)
    with one_thread():
        network = StackedNetwork(factory, example, outputs, True, levels, DOTS[settings.precision], alone.whole)
    evaluator, is_large = None, network.cut is None and alone.bytes_per_sample > _LARGE_SAMPLE_BYTES
    if device.type == "cpu" and network.level != "compiled" and is_large:
        evaluator = LoopEngine(alone, task)  # one by one PyTorch's convolutions are faster without a backward pass
    return StackEngine(network, memory_bytes(device, settings.memory_mb), evaluator, task)


def train_in_parts(
    engine: Engine,
    rows: Tensor,
    data: SampleStack,
    slots: Sequence[int],
    keys: Sequence[int],
    recipe: Recipe,
    parts: Sequence[tuple[int, tuple[str, ...]]],
) -> Trained:
    """Train a part of each model after the other: for so many epochs the tensors of these names, and no other. Each
    phase has an optimizer of its own, and an order of samples of its own. The loss is that of the last phase, and is
    not finite where that of any phase was not."""
    healthy = torch.ones(len(rows), dtype=torch.bool)
    for number, (epochs, only) in enumerate(parts):
        own = [rng.key(key, "phase", number) for key in keys] if number else keys
        trained = engine.train(rows, data, slots, own, epochs, recipe, None, only)
        losses = torch.as_tensor(trained.losses)
        healthy = healthy.to(losses.device) & losses.isfinite()
        rows = trained.rows
    return replace(trained, losses=torch.where(healthy, losses, torch.nan))


def _featured(cut: Cut, data: SampleStack, most_bytes: int) -> SampleStack | None:
    """The samples with their features as inputs; None: these would take too much memory. Slots are computed one by one,
    so that no bit depends on the others."""
    one = cut.compute(data.x[0, :1])
    if one.nbytes * data.x.shape[0] * data.x.shape[1] > most_bytes:
        return None
    features = torch.zeros((*data.x.shape[:2], *one.shape[1:]), dtype=one.dtype, device=data.device)
    with one_thread() if data.device.type == "cpu" else nullcontext():
        for slot, count in enumerate(data.counts):
            features[slot, :count] = cut.compute(data.x[slot, :count])
    return data.with_inputs(features)


def _run(
    network: StackedNetwork,
    task: Task,
    metrics: Sequence[Metric],
    tensors: dict[str, Tensor],
    data: SampleStack,
    slot: Tensor,
    positions: Tensor | None,
    samples: range,
    count: Tensor | None = None,
) -> list[Tensor]:
    """The loss of each sample, and its statistics for each metric; of all samples, or of those at `positions`
    [model, sample]. `count` [model]: how many are no padding, where the network is to know.
    → [model, sample] or [model, sample, statistic] each"""
    at = slice(samples.start, samples.stop)
    where = (slot, at) if positions is None else (slot[:, None], positions[:, at])
    y = data.y[where]
    real = None if count is None else torch.arange(at.start, at.stop, device=slot.device) < count[:, None]
    x = data.x[where]
    if network.cut and not data.has_features:
        x = network.features(x)
    outputs = network.logits(tensors, x, torch.zeros_like(slot), train=False, real=real)
    statistics = _statistics(metrics, outputs.flatten(0, 1), y.flatten(0, 1))
    return [sample_losses(outputs, y, task), *(of.view(*y.shape[:2], *of.shape[1:]) for of in statistics)]


def _asked(task: Task, further: bool) -> Sequence[Metric]:
    """The main metric, or all."""
    return task.metrics if further else task.metrics[:1]


def _statistics(metrics: Sequence[Metric], outputs: Tensor, y: Tensor) -> list[Tensor]:
    """What each sample adds to each metric.  [batch, ...] each → [batch] or [batch, statistic] each"""
    return [metric.statistics(outputs, y) for metric in metrics]


def _counts(data: SampleStack, slots: Sequence[int], subset: Subset | None) -> list[int]:
    """How many samples each pair of a model and a slot is evaluated on."""
    return [subset.count(data.counts[s]) if subset else data.counts[s] for s in slots]


def _summed(metrics: Sequence[Metric], columns: Sequence[Array], counts: list[int], each: bool) -> Evaluation:
    """The mean loss and the metrics of each model, of sums over its real samples in double precision.

    columns: the losses, then the statistics of each metric.  [model, sample] or [model, sample, statistic] each
    """
    count = np.array(counts)
    real = np.arange(columns[0].shape[1]) < count[:, None]
    loss, *sums = (_sums(column, real) for column in columns)
    found = {metric.name: metric.of_each(some, count) for metric, some in zip(metrics, sums, strict=True)}
    main, *others = found
    alone = np.where(real, columns[0], 0).astype(np.float64) if each else None
    return Evaluation(loss[:, 0] / count, found[main], {name: found[name] for name in others}, alone)


def _stacked(alone: Sequence[Array], length: int) -> Array:
    """What models gave one by one, padded to a common number of samples.  [sample, ...] each → [model, length, ...]"""
    return np.stack([np.pad(of, [(0, length - len(of)), *[(0, 0)] * (of.ndim - 1)]) for of in alone])


def _padded(column: Array, length: int) -> Array:
    """Padded with zeros to a number of samples.  [model, sample, ...] → [model, length, ...]"""
    missing = length - column.shape[1]
    return np.pad(column, [(0, 0), (0, missing), *[(0, 0)] * (column.ndim - 2)]) if missing else column


def _sums(column: Array, real: Array) -> Array:
    """The sums over real samples.  [model, sample] or [model, sample, statistic] → [model, statistic]"""
    if column.ndim == 2:
        return np.where(real, column, 0).sum(1, keepdims=True, dtype=np.float64)  # type: ignore[no-any-return]
    return np.where(real[..., None], column, 0).sum(1, dtype=np.float64)  # type: ignore[no-any-return]


def _alike(steps: Sequence[int], overhead: int) -> list[list[int]]:
    """Groups of models that are computed together, because a model waits until all of its group have taken their steps.
    Models with fewer steps form a group of their own where that saves more than its steps cost. `overhead`: what a step
    costs beside its models, counted in models.  → positions, those with the most steps first; all in order in one group
    where none has many steps more"""
    order = sorted(range(len(steps)), key=lambda i: -steps[i])
    begun = [0]
    for place in range(1, len(order)):
        most, here = steps[order[begun[-1]]], steps[order[place]]
        if (most - here) * (len(order) - place) > here * overhead:
            begun.append(place)
    return [sorted(order[a:b]) for a, b in zip(begun, [*begun[1:], len(order)], strict=True)]


def _chunks(total: int, size: int) -> Iterator[range]:
    size = max(1, min(size, total))
    return (range(start, min(start + size, total)) for start in range(0, total, size))


_MOMENTS = {"adam": ("exp_avg", "exp_avg_sq"), "sgd": ("momentum_buffer",)}


def _later(
    before: Moments | None,
    values: Tensor | None,
    data: SampleStack,
    slots: Sequence[int],
    epochs: int,
    recipe: Recipe,
) -> Moments | None:
    """The optimizers' state after an update; each model took as many steps as its own samples need."""
    if before is None or values is None:
        return None
    taken = (epochs * -(-data.counts[slot] // recipe.batch_size) for slot in slots)
    return Moments(values, [steps + more for steps, more in zip(before.steps, taken, strict=True)])


def _torch_optimizer(recipe: Recipe, parameters: list[Tensor]) -> torch.optim.Optimizer:
    if recipe.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay)
    return torch.optim.SGD(parameters, lr=recipe.lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)

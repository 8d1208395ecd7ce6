# SPDX-License-Identifier: Apache-2.0
"""What runs ask of the engine, as data; and the executor that carries it out, for one run or for several at once.

Theory of operation. A run does not call the engine. Its work is a generator that yields calls (`Train`, `Evaluate`,
`Measure`) and is sent the answers. `carry_out` drives the work of several runs: it waits until each has asked for
something, merges the calls of one kind into a single call of the engine, and hands each run its share. Runs share one
stack of models and one stack of samples, in which each has slots of its own; as no result depends on what is computed
beside it (law 3), a run cannot tell that there are others. A single run is a list of one.

While a device trains, the host is free: `meanwhile` is what it may do until the numbers are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor

from pens.data.samples import Array
from pens.engine.batches import SampleStack, Subset
from pens.engine.cores import one_thread
from pens.engine.distances import Pair, distances
from pens.engine.optimizers import Moments, Recipe
from pens.engine.stack import ModelStack
from pens.engine.training import Engine, Evaluation, Trained, train_in_parts
from pens.merging.merger import RowMerge, merge_rows
from pens.merging.rule import Merging
from pens.settings.schema import Distance

_MODELS_PER_PEER = 3  # its last, its next and its best: what rounds of most methods need, and what is reserved


@dataclass(frozen=True)
class MomentRows:
    """What an optimizer remembers of one model: rows beside the models', and the steps that were taken."""

    rows: list[int]
    steps: int = 0


@dataclass(frozen=True)
class Train:
    """Merge each group of models, and train the results on a slot's samples, each in the order of its key.

    With 0 epochs the results are the merged models, whatever the slots.
    """

    groups: list[list[int]] | list[RowMerge]
    """Rows to average, or, with `merging`, what its rule is to merge."""
    slots: list[int]
    keys: list[int]
    epochs: int
    recipe: Recipe
    keep_merged: bool = False
    """Whether the merged models are wanted, too, as they were before training."""
    moments: list[MomentRows] | None = None
    """What the optimizer of each model remembers; None: each optimizer starts from zero."""
    merging: Merging | None = None
    """By which rule models are merged; None: the plain average."""
    parts: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Epochs and the names of the tensors that change in them, one phase after the other; empty: all in all epochs."""

    @property
    def kind(self) -> tuple[Any, ...]:
        rule = self.merging.key if self.merging else ""
        return 1, self.epochs, repr(self.recipe), self.keep_merged, self.moments is None, rule, self.parts


@dataclass(frozen=True)
class Evaluate:
    """Run each model over a slot's training or validation samples, or over a subset of them."""

    on: Literal["train", "val"]
    rows: list[int]
    slots: list[int]
    subset: Subset | None = None
    each: bool = False
    """Whether the loss of each sample is wanted, too."""

    @property
    def kind(self) -> tuple[Any, ...]:
        return 0 if self.on == "train" else 2, self.subset.size if self.subset else 0, self.each


@dataclass(frozen=True)
class Measure:
    """Measure how far models lie from each other."""

    by: Distance
    pairs: list[Pair]
    ranges: tuple[slice, ...]
    """Of the numbers that count."""

    @property
    def kind(self) -> tuple[Any, ...]:
        return 0, -1, self.by, repr(self.ranges)


@dataclass(frozen=True)
class NewModels:
    """The answer to `Train`: rows with one reference each, and training losses."""

    rows: list[int]
    part: slice
    """Which of those that were trained together are these."""
    together: Trained
    merged: list[int]
    """Rows of the merged models before training, with one reference each; empty unless `keep_merged` was set."""
    moments: list[MomentRows]
    """What the optimizers remember after training; empty unless the call said what they remembered before."""

    @property
    def loss(self) -> Array:
        """Blocks on the device; enqueue further work first."""
        return self.together.loss[self.part]


Call = Train | Evaluate | Measure
"""Calls of a lower kind go first (comparisons, training, validation), so that runs with the same work stay in step."""
Answer = NewModels | Evaluation | list[float]
Work = Generator[Call, Answer, None]


def train(call: Train) -> Generator[Call, Answer, NewModels]:
    """Ask for training, from within work."""
    answer = yield call
    assert isinstance(answer, NewModels)
    return answer


def evaluate(call: Evaluate) -> Generator[Call, Answer, Evaluation]:
    """Ask for an evaluation, from within work."""
    answer = yield call
    assert isinstance(answer, Evaluation)
    return answer


def measure(call: Measure) -> Generator[Call, Answer, list[float]]:
    """Ask for distances, from within work."""
    answer = yield call
    assert isinstance(answer, list)
    return answer


class Executor:
    """The engine, and what the runs share that are computed together: the models that are alive, and all samples."""

    def __init__(self, engine: Engine, training: SampleStack, validation: SampleStack, peers: int) -> None:
        """`peers`: of all runs together."""
        self.engine = engine
        self.models = ModelStack(engine.network.size, training.device, _MODELS_PER_PEER * peers)
        self._samples = {"train": training, "val": validation}

    def num_training_samples(self, slot: int) -> int:
        """The number of training samples in a slot."""
        return self._samples["train"].counts[slot]

    def num_validation_samples(self, slot: int) -> int:
        """The number of validation samples in a slot."""
        return self._samples["val"].counts[slot]

    def carry_out(self, works: Sequence[Work], meanwhile: Sequence[Callable[[], None]]) -> None:
        """Complete the work of several runs. `meanwhile`: what each run may do once the device has begun to train."""
        with one_thread():  # models are shared out, not operations
            self._carry_out(works, meanwhile)

    def _carry_out(self, works: Sequence[Work], meanwhile: Sequence[Callable[[], None]]) -> None:
        waiting = {i: call for i, work in enumerate(works) if (call := next(work, None))}
        while waiting:
            kind = min(call.kind for call in waiting.values())
            alike = {i: call for i, call in waiting.items() if call.kind == kind}
            answers = self._answer(list(alike.values()), [meanwhile[i] for i in alike])
            for i, answer in zip(alike, answers, strict=True):
                try:
                    waiting[i] = works[i].send(answer)
                except StopIteration:
                    del waiting[i]

    def _answer(self, calls: list[Call], meanwhile: Sequence[Callable[[], None]]) -> Sequence[Answer]:
        """The answers to calls of one kind, which are computed as one call."""
        if trainings := [call for call in calls if isinstance(call, Train)]:
            return self._train(trainings, meanwhile)
        if measurings := [call for call in calls if isinstance(call, Measure)]:
            return self._measure(measurings)
        return self._evaluate([call for call in calls if isinstance(call, Evaluate)])

    def _train(self, calls: list[Train], meanwhile: Sequence[Callable[[], None]]) -> list[NewModels]:
        groups, slots, keys = (_joined([getattr(c, name) for c in calls]) for name in ("groups", "slots", "keys"))
        data, first = self._samples["train"], calls[0]
        mixed = self._merged(groups, first.merging)
        merged = self.models.add(mixed) if first.keep_merged else []
        remembered = self._recalled(_joined([c.moments or [] for c in calls]))
        if first.parts:
            trained = train_in_parts(self.engine, mixed, data, slots, keys, first.recipe, first.parts)
        elif first.epochs:
            trained = self.engine.train(mixed, data, slots, keys, first.epochs, first.recipe, remembered)
        else:
            trained = Trained(mixed, torch.where(mixed.isfinite().all(1), 0.0, torch.nan), remembered)
        for do in meanwhile:
            do()
        rows = self.models.add(trained.rows)
        moments = self._kept(trained.moments) if trained.moments else []
        parts = _parts([len(c.slots) for c in calls])
        return [NewModels(rows[part], part, trained, merged[part], moments[part]) for part in parts]

    def _merged(self, groups: list[Any], merging: Merging | None) -> Tensor:
        if merging is None:
            return self.models.mix(groups)
        return merge_rows(self.models, self.engine.network.stored, merging, groups)

    def _recalled(self, moments: list[MomentRows]) -> Moments | None:
        if not moments:
            return None
        rows = _joined([one.rows for one in moments])
        shape = (len(moments), len(rows) // len(moments), self.models.size)
        return Moments(self.models.read(rows).view(shape), [one.steps for one in moments])

    def _kept(self, moments: Moments) -> list[MomentRows]:
        rows, each = self.models.add(moments.values.flatten(0, 1)), moments.values.shape[1]
        return [MomentRows(rows[i * each : (i + 1) * each], steps) for i, steps in enumerate(moments.steps)]

    def _evaluate(self, calls: list[Evaluate]) -> list[Evaluation]:
        rows, slots = (_joined([getattr(c, name) for c in calls]) for name in ("rows", "slots"))
        subsets = [call.subset for call in calls if call.subset]
        subset = Subset(subsets[0].size, _joined([s.keys for s in subsets])) if subsets else None
        wanted = {"each": True} if calls[0].each else {}
        found = self.engine.evaluate(self.models, rows, self._samples[calls[0].on], slots, subset, **wanted)
        parts = _parts([len(c.slots) for c in calls])
        losses = [None if found.losses is None else found.losses[part] for part in parts]
        return [Evaluation(found.loss[p], found.score[p], losses=of) for p, of in zip(parts, losses, strict=True)]

    def _measure(self, calls: list[Measure]) -> list[list[float]]:
        found = distances(self.models, _joined([call.pairs for call in calls]), calls[0].ranges, calls[0].by)
        return [found[part] for part in _parts([len(call.pairs) for call in calls])]


def _joined(parts: Sequence[Sequence[Any]]) -> list[Any]:
    return list(chain.from_iterable(parts))


def _parts(lengths: list[int]) -> list[slice]:
    """Where each of several lists lies in their concatenation."""
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]

# SPDX-License-Identifier: Apache-2.0
"""Runs that a reader can work out by hand: models are counts of epochs, and losses are given.

A model has one number per class. Training adds the number of epochs to the class of each training sample, and a merge
averages, so a model says who trained it, how long, and what share of it came from whom. Where every peer's training
sample has that peer's number as its class, `[2.5, 0.5, 0]` is a model whose owner, peer 0, averaged its own model
`[1, 0, 0]` with peer 1's `[0, 1, 0]` and trained the average for two epochs.

The loss of model w on a sample (x, y) is w · x: the loss of a model that peer j alone trained for one epoch is x[j].
Its accuracy is w[y] / Σ w: the share of the model that comes from class y.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pens
from pens.data.samples import Samples
from pens.data.scenarios import Federation, PeerData
from pens.engine.batches import Subset
from pens.engine.layout import Layout
from pens.engine.optimizers import Moments, Recipe
from pens.engine.training import Evaluation, Trained
from pens.measuring.results import RunResult
from tests.conftest import TINY
from tests.engines import EngineOfCalls, Evaluating, Training


class OneTraining(NamedTuple):
    """One model of a call of `CountingEngine.train`."""

    slot: int
    before: list[float]
    key: int
    epochs: int
    recipe: Recipe
    remembered: int | None
    """Steps that its optimizer remembers; None: it begins anew."""


class CountingEngine(EngineOfCalls):
    """Trains by counting epochs. Keeps a record of all that it was asked for."""

    def __init__(self, num_classes: int) -> None:
        self.network = SimpleNamespace(
            size=num_classes,
            stored=Layout.stored({"epochs": torch.Size([num_classes])}, {}),
            new_row=self._new_row,
            state=lambda rows: {"epochs": rows},
        )
        self.keys: list[int] = []
        """Of untrained models."""
        self.trainings: list[OneTraining] = []
        self.evaluations: list[list[tuple[int, list[float]]]] = []
        """The slot and the model of each pair, call by call."""
        self.subsets: list[Subset | None] = []
        """Of the samples, call by call: which were asked for. All are used here."""
        self.fails: set[tuple[int, int]] = set()
        """Slots and numbers of their trainings, from 0, whose loss is to be no number."""

    def _new_row(self, key: int) -> Tensor:
        self.keys.append(key)
        return torch.zeros(self.network.size)

    def trained(self, call: Training) -> Trained:
        rows, data, slots, keys, epochs, recipe, moments, _ = call
        new, losses = rows.clone(), np.ones(len(rows))
        for i, (slot, key) in enumerate(zip(slots, keys, strict=True)):
            if (slot, sum(one.slot == slot for one in self.trainings)) in self.fails:
                losses[i] = np.nan
            steps = moments.steps[i] if moments else None
            self.trainings.append(OneTraining(slot, rows[i].tolist(), key, epochs, recipe, steps))
            for label in data.y[slot, : data.counts[slot]].tolist():
                new[i, label] += epochs
        later = Moments(moments.values + 1, [steps + epochs for steps in moments.steps]) if moments else None
        return Trained(new, losses, later)

    def evaluated(self, call: Evaluating) -> Evaluation:
        models, rows, data, slots, subset = call
        loss, accuracy, alone = [], [], np.zeros((len(rows), data.longest))
        values = models.read(rows).double()
        self.subsets.append(subset)
        self.evaluations.append([(slot, model.tolist()) for slot, model in zip(slots, values, strict=True)])
        for place, (model, slot) in enumerate(zip(values, slots, strict=True)):
            x, y = data.x[slot, : data.counts[slot]].double(), data.y[slot, : data.counts[slot]]
            loss.append(float((x @ model).mean()))
            alone[place, : len(x)] = (x @ model).numpy()
            accuracy.append(float(model[y].mean() / model.sum().clamp(min=1e-9)))
        return Evaluation(np.array(loss), np.array(accuracy), losses=alone)


def sample(x: Sequence[float], y: int) -> Samples:
    """One sample."""
    return Samples(np.array([x], np.float32), np.array([y]))


def federation(
    clusters: Sequence[int],
    losses: Sequence[Sequence[float]],
    *,
    val_classes: Sequence[int] | None = None,
    val_losses: Sequence[Sequence[float]] | None = None,
    test_classes: Sequence[int] | None = None,
) -> Federation:
    """Peers of these clusters. `losses` [receiver, sender]: what one epoch of the sender costs on the receiver's
    training sample, whose class is the receiver's number.

    val_classes:   the class of each peer's validation sample; by default its own number
    val_losses:    likewise, on the validation sample; by default those who are good on training data are bad on it
    test_classes:  the class of each cluster's test sample; by default the cluster's first peer
    """
    numbers = range(len(clusters))
    val_classes = val_classes or numbers
    val_losses = val_losses or [[-value for value in row] for row in losses]
    test_classes = test_classes or [list(clusters).index(c) for c in sorted(set(clusters))]
    peers = tuple(PeerData(sample(losses[p], p), sample(val_losses[p], val_classes[p])) for p in numbers)
    tests = tuple(sample([0.0] * len(clusters), c) for c in test_classes)
    return Federation(peers, tuple(clusters), tests, tuple("abcdefgh"[: len(tests)]))


def run_by_hand(
    monkeypatch: pytest.MonkeyPatch,
    data: Federation,
    method: str,
    settings: Mapping[str, object],
    *,
    seeds: int | Sequence[int] = 1,
    engine: CountingEngine | None = None,
) -> tuple[list[RunResult], CountingEngine]:
    """`pens.run` with the engine above: settings, wiring, protocol, simulator and measurements are the real ones."""
    engine = engine or CountingEngine(len(data.peers))
    monkeypatch.setattr("pens.experiment.wiring.new_engine", lambda *_: engine)
    values = {**TINY, "epochs": 1, "window": 1, "patience": 50, **settings}
    result = pens.run(values, methods=method, data=data, model=nn.Identity, seeds=seeds)
    return list(result.runs), engine


def models_of(run: RunResult) -> list[list[float]]:
    """The tested model of each peer."""
    return [[round(value, 5) for value in model] for model in run.models["epochs"].tolist()]

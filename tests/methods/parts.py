# SPDX-License-Identifier: Apache-2.0
"""Runs by hand (`tests/byhand.py`) of networks with a body and a head, each of which counts epochs by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch

from pens.engine.layout import Layout
from pens.engine.training import Evaluation, Trained
from pens.measuring.results import RunResult
from tests.byhand import CountingEngine
from tests.engines import Evaluating, Training


class Trained1(NamedTuple):
    """One model of a call of `PartsEngine.train`."""

    slot: int
    epochs: int
    parts: str
    body: list[float]
    """As it was before."""
    head: list[float]


class PartsEngine(CountingEngine):
    """A model is a body and a head of one number per class. Training adds epochs to the sample's class in both, or in
    the one that is trained. The loss on a sample (x, y) is x · (body + head). Untrained models are zeros."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        shape = torch.Size([num_classes])
        self.each = num_classes
        self.network = SimpleNamespace(
            size=2 * num_classes,
            stored=Layout.stored({"body.epochs": shape, "head.epochs": shape}, {}),
            new_row=self._new_row,
            state=lambda rows: {"body": rows[:, :num_classes], "head": rows[:, num_classes:]},
        )
        self.phases: list[Trained1] = []

    def trained(self, call: Training) -> Trained:
        new = call.rows.clone()
        only = call.only or ("body.epochs", "head.epochs")
        for i, slot in enumerate(call.slots):
            body, head = call.rows[i].view(2, -1).tolist()
            self.phases.append(Trained1(slot, call.epochs, " ".join(only), body, head))
            for label in call.data.y[slot, : call.data.counts[slot]].tolist():
                for place, name in enumerate(("body.epochs", "head.epochs")):
                    new[i, place * self.each + label] += call.epochs * (name in only)
        return Trained(new, np.ones(len(new)))

    def evaluated(self, call: Evaluating) -> Evaluation:
        values = call.models.read(call.rows).double().view(len(call.rows), 2, -1).sum(1)
        found = [
            float((call.data.x[slot, : call.data.counts[slot]].double() @ model).mean())
            for model, slot in zip(values, call.slots, strict=True)
        ]
        return Evaluation(np.array(found), -np.array(found))


def bodies(run: RunResult) -> list[list[float]]:
    """The tested body of each peer."""
    return [[round(value, 4) for value in body] for body in run.models["body"].tolist()]


def heads(run: RunResult) -> list[list[float]]:
    """The tested head of each peer."""
    return [[round(value, 4) for value in head] for head in run.models["head"].tolist()]

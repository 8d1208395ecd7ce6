# SPDX-License-Identifier: Apache-2.0
"""What a network keeps from call to call, or draws without a seed, is found by calling it twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pens.engine.functional import StackedNetwork
from pens.engine.training import LoopEngine
from pens.errors import ModelError
from tests.engine.test_training import RECIPES, assert_same_training, holders, train

DATA = holders((10, 3, 7))
Does = Callable[[Any, Tensor], Tensor]


class Keeping(nn.Linear):
    """Does something else before its product. Its attributes are a number, generators, and no tensor yet."""

    def __init__(self, does: Does) -> None:
        super().__init__(64, 10)
        self.does, self.steps, self.before = does, 0, None
        self.generator, self.dice, self.coin = torch.Generator(), random.Random(0), np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.does(self, x.flatten(1)))


def counts(layer: Keeping, x: Tensor) -> Tensor:
    layer.steps += 1
    return x


def counts_in_training(layer: Keeping, x: Tensor) -> Tensor:
    layer.steps += layer.training
    return x


def remembers(layer: Any, x: Tensor) -> Tensor:
    before, layer.before = layer.before, x.detach().abs().mean()
    return x if before is None else x + before


def draws(layer: Keeping, x: Tensor) -> Tensor:
    return x * (torch.rand(x.shape, generator=layer.generator) > 1e-9)


def throws_dice(layer: Keeping, x: Tensor) -> Tensor:
    return x * (layer.dice.random() > 1e-9)


def throws_a_coin(layer: Keeping, x: Tensor) -> Tensor:
    return x * (layer.coin.random() > 1e-9)


def draws_pythons(_: Keeping, x: Tensor) -> Tensor:
    return x * (random.random() > 1e-9)


def draws_numpys(_: Keeping, x: Tensor) -> Tensor:
    return x * (np.random.rand() > 1e-9)


REFUSED: list[tuple[Does, str]] = [
    (counts, r"changes its attribute 'steps' in each call.*register_buffer\('steps', torch.zeros\(\(\)\)\)"),
    (counts_in_training, "changes its attribute 'steps'"),
    (remembers, "returns other scores when it is called again with the same weights.*register_buffer"),
    (draws, "changes its attribute 'generator'.*torch.rand without generator="),
    (throws_dice, "changes its attribute 'dice'.*torch.rand"),
    (throws_a_coin, "changes its attribute 'coin'.*torch.rand"),
    (draws_pythons, "draws random numbers from Python's module random, .*by torch.rand"),
    (draws_numpys, "draws random numbers from NumPy, .*by torch.rand"),
]


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize(("does", "reason"), REFUSED, ids=[does.__name__ for does, _ in REFUSED])
def test_what_is_kept_or_drawn_without_a_seed_is_refused(does: Does, reason: str, stacked: bool) -> None:
    with pytest.raises(ModelError, match=reason):
        StackedNetwork(lambda: Keeping(does), DATA.x[0, :3], 10, stacked=stacked)


class InABuffer(nn.Linear):
    """The remedy for a number that counts."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__(64, 10)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        return super().forward(x.flatten(1)) / (1 + self.steps)


def test_a_number_in_a_buffer_is_each_peers_own() -> None:
    assert_same_training(InABuffer, DATA, RECIPES[3])


def seeded(_: Keeping, x: Tensor) -> Tensor:
    return x * (torch.rand(x.shape) > 0.2)


def test_pytorchs_generator_is_seeded_in_the_loop() -> None:
    loop = LoopEngine(StackedNetwork(lambda: Keeping(seeded), DATA.x[0, :3], 10, stacked=False))
    assert torch.equal(train(loop, DATA, RECIPES[0], 1).rows, train(loop, DATA, RECIPES[0], 1).rows)


def caches(layer: Any, x: Tensor) -> Tensor:
    if layer.steps < x.shape[1]:
        layer.steps, layer.places = x.shape[1], torch.arange(x.shape[1]) / 64
    layer.before = x.detach()
    moved: Tensor = x + layer.places
    return moved


def test_what_is_kept_and_stays_the_same_is_no_state() -> None:
    assert_same_training(lambda: Keeping(caches), DATA, RECIPES[3])

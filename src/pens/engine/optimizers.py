# SPDX-License-Identifier: Apache-2.0
"""Adam, and SGD with momentum, over rows of parameters of all peers at once.

An optimizer's moments live for one update, or are handed on to the next (`Moments`). Every operation is elementwise
over [peer, parameter], so the step of a peer does not depend on the other peers of the stack. Results agree with
`torch.optim.Adam` and `torch.optim.SGD` (law 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import torch
from torch import Tensor

from pens.engine.compiled import kernels
from pens.engine.devices import has_kernels

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
CORRECTED = 20_000
"""Steps after which Adam's corrections are 1: 1 − β₂ᵗ rounds to 1 in single precision."""


@dataclass(frozen=True)
class Recipe:
    """The optimizer, its constants and the batch size of a local update."""

    optimizer: Literal["adam", "sgd"]
    lr: float
    momentum: float
    weight_decay: float
    batch_size: int

    @property
    def num_moments(self) -> int:
        """How many numbers the optimizer keeps for each parameter."""
        return 2 if self.optimizer == "adam" else int(self.momentum > 0)


@dataclass(frozen=True)
class Moments:
    """The optimizer state that several models carry from one update to the next."""

    values: Tensor
    """Adam: mean and square of the gradients; SGD: velocity. In the layout of stored rows.  [model, moment, size]"""
    steps: list[int]
    """How many steps each model has taken."""

    def pick(self, models: list[int]) -> Moments:
        return Moments(self.values[models], [self.steps[i] for i in models])


class RowOptimizer(Protocol):
    """An optimizer that steps over rows of parameters in place."""

    @property
    def moments(self) -> tuple[Tensor, ...]:
        """The optimizer's state; may be changed in place.  [peer, parameter] each"""

    def step(self, rows: Tensor, gradients: Tensor, taken: Tensor, active: Tensor | None) -> None:
        """Change the rows in place. `taken` [peer]: each peer's steps since its moments were zero, this step included,
        but at most `CORRECTED`. `active` [peer] bool: rows that take part; None: all."""


def new_optimizer(recipe: Recipe, rows: Tensor, compiled: bool) -> RowOptimizer:
    """The optimizer that a recipe asks for. `compiled`: whether Adam uses the compiled kernels of a CPU."""
    return Adam(recipe, rows, compiled) if recipe.optimizer == "adam" else SGD(recipe, rows)


class Adam:
    """Adam with L2 weight decay; the same results as torch.optim.Adam."""

    def __init__(self, recipe: Recipe, rows: Tensor, compiled: bool) -> None:
        self.recipe = recipe
        self._compiled = kernels() if compiled else None
        self._fused = has_kernels(rows.device)
        self.mean = torch.zeros_like(rows)
        self.square = torch.zeros_like(rows)
        self.corrections = corrections(recipe.lr, rows.device)

    @property
    def moments(self) -> tuple[Tensor, ...]:
        return self.mean, self.square

    def step(self, rows: Tensor, gradients: Tensor, taken: Tensor, active: Tensor | None) -> None:
        if self._fused:
            self._step_fused(rows, gradients, taken, active)
            return
        rate, root = self.corrections[taken].t().contiguous()  # [peer] each
        if self._compiled:
            everybody = torch.ones(len(rows), dtype=torch.bool) if active is None else active
            constants = (self.recipe.weight_decay, _BETA1, _BETA2, _EPSILON)
            self._compiled.adam(rows, gradients, (self.mean, self.square), (rate, root), everybody, constants)
            return
        if self.recipe.weight_decay:
            gradients = gradients.add(rows, alpha=self.recipe.weight_decay)
        if active is None:
            self.mean.lerp_(gradients, 1 - _BETA1)
            self.square.mul_(_BETA2).addcmul_(gradients, gradients, value=1 - _BETA2)
        else:
            on = active[:, None]
            self.mean.copy_(torch.where(on, self.mean.lerp(gradients, 1 - _BETA1), self.mean))
            square = (self.square * _BETA2).addcmul_(gradients, gradients, value=1 - _BETA2)
            self.square.copy_(torch.where(on, square, self.square))
        denominator = self.square.sqrt().div_(root[:, None]).add_(_EPSILON)
        change = (self.mean / denominator).mul_(rate[:, None])
        rows.sub_(change if active is None else torch.where(active[:, None], change, 0.0))

    def _step_fused(self, rows: Tensor, gradients: Tensor, taken: Tensor, active: Tensor | None) -> None:
        from pens.engine.fused_adam import adam_step  # needs Triton, which comes with PyTorch's CUDA builds

        decay, betas = self.recipe.weight_decay, (_BETA1, _BETA2)
        state = (self.mean, self.square, taken, self.corrections)
        adam_step(rows, gradients, *state, active, decay, betas, _EPSILON)


@lru_cache(maxsize=8)
def corrections(lr: float, device: torch.device) -> Tensor:
    """Adam's learning rate and the divisor of its root by step, both corrected because averages start at zero.
    → [step, 2]"""
    count = torch.arange(CORRECTED + 1, dtype=torch.float64).clamp(min=1)  # no active peer has taken 0 steps
    return torch.stack([lr / (1 - _BETA1**count), (1 - _BETA2**count).sqrt()], 1).float().to(device)


class SGD:
    """SGD with momentum and L2 weight decay; the same results as torch.optim.SGD."""

    def __init__(self, recipe: Recipe, rows: Tensor) -> None:
        self.recipe = recipe
        self.velocity = torch.zeros_like(rows) if recipe.momentum else None

    @property
    def moments(self) -> tuple[Tensor, ...]:
        return () if self.velocity is None else (self.velocity,)

    def step(self, rows: Tensor, gradients: Tensor, taken: Tensor, active: Tensor | None) -> None:
        if self.recipe.weight_decay:
            gradients = gradients.add(rows, alpha=self.recipe.weight_decay)
        change = gradients
        if self.velocity is not None:
            change = self.velocity * self.recipe.momentum + gradients
            change = change if active is None else torch.where(active[:, None], change, self.velocity)
            self.velocity.copy_(change)
        rows.sub_(change if active is None else torch.where(active[:, None], change, 0.0), alpha=self.recipe.lr)

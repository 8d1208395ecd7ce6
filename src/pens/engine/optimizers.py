"""Adam, and SGD with momentum, over rows of parameters. Their state lives for one update.

Everything is elementwise over [peer, parameter], so a peer's step is the same whoever else is in the stack. Written to
agree with `torch.optim.Adam` and `torch.optim.SGD` (law 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Recipe:
    """How a local update trains."""

    optimizer: Literal["adam", "sgd"]
    lr: float
    momentum: float
    weight_decay: float
    batch_size: int


class RowOptimizer(Protocol):
    def step(self, rows: Tensor, gradients: Tensor, active: Tensor | None) -> None:
        """Change the rows in place. `active` [peer] bool: rows that take part; None: all."""


def new_optimizer(recipe: Recipe, rows: Tensor) -> RowOptimizer:
    return Adam(recipe, rows) if recipe.optimizer == "adam" else SGD(recipe, rows)


class Adam:
    """Adam with L2 weight decay, as torch.optim.Adam."""

    def __init__(self, recipe: Recipe, rows: Tensor) -> None:
        self.recipe = recipe
        self.mean = torch.zeros_like(rows)
        self.square = torch.zeros_like(rows)
        self.count: float | Tensor = 0.0  # steps taken; [peer, 1] once peers differ

    def step(self, rows: Tensor, gradients: Tensor, active: Tensor | None) -> None:
        if self.recipe.weight_decay:
            gradients = gradients.add(rows, alpha=self.recipe.weight_decay)
        if active is None:
            self.mean.lerp_(gradients, 1 - _BETA1)
            self.square.mul_(_BETA2).addcmul_(gradients, gradients, value=1 - _BETA2)
            self.count = self.count + 1.0
        else:
            on = active[:, None]
            self.mean = torch.where(on, self.mean.lerp(gradients, 1 - _BETA1), self.mean)
            square = (self.square * _BETA2).addcmul_(gradients, gradients, value=1 - _BETA2)
            self.square = torch.where(on, square, self.square)
            self.count = self.count + on.to(rows.dtype)
        self._apply(rows, active)

    def _apply(self, rows: Tensor, active: Tensor | None) -> None:
        denominator = self.square.sqrt()
        if isinstance(self.count, float):
            denominator.div_((1 - _BETA2**self.count) ** 0.5).add_(_EPSILON)
            rows.addcdiv_(self.mean, denominator, value=-self.recipe.lr / (1 - _BETA1**self.count))
            return
        count = self.count.clamp(min=1)
        denominator.div_((1 - _BETA2**count).sqrt()).add_(_EPSILON)
        change = self.mean / denominator * (self.recipe.lr / (1 - _BETA1**count))
        rows.sub_(change if active is None else torch.where(active[:, None], change, 0.0))


class SGD:
    """SGD with momentum and L2 weight decay, as torch.optim.SGD."""

    def __init__(self, recipe: Recipe, rows: Tensor) -> None:
        self.recipe = recipe
        self.velocity = torch.zeros_like(rows) if recipe.momentum else None

    def step(self, rows: Tensor, gradients: Tensor, active: Tensor | None) -> None:
        if self.recipe.weight_decay:
            gradients = gradients.add(rows, alpha=self.recipe.weight_decay)
        change = gradients
        if self.velocity is not None:
            change = self.velocity * self.recipe.momentum + gradients
            self.velocity = change if active is None else torch.where(active[:, None], change, self.velocity)
        rows.sub_(change if active is None else torch.where(active[:, None], change, 0.0), alpha=self.recipe.lr)

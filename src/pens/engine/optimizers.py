"""Adam, and SGD with momentum, over rows of parameters. Their state lives for one update.

Everything is elementwise over [peer, parameter], so a peer's step is the same whoever else is in the stack. Written to
agree with `torch.optim.Adam` and `torch.optim.SGD` (law 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from pens.engine.devices import has_kernels
from pens.engine.native import kernels

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
    def reset(self) -> None:
        """Forget all state."""

    def step(self, rows: Tensor, gradients: Tensor, active: Tensor | None) -> None:
        """Change the rows in place. `active` [peer] bool: rows that take part; None: all."""


def new_optimizer(recipe: Recipe, rows: Tensor, num_steps: int, compiled: bool) -> RowOptimizer:
    """For at most so many steps between two resets. `compiled`: on a CPU, by compiled kernels where there are any."""
    return Adam(recipe, rows, num_steps, compiled) if recipe.optimizer == "adam" else SGD(recipe, rows)


class Adam:
    """Adam with L2 weight decay, as torch.optim.Adam. Its count of steps lies on the device, one per peer."""

    def __init__(self, recipe: Recipe, rows: Tensor, num_steps: int, compiled: bool) -> None:
        self.recipe = recipe
        self._native = kernels() if compiled else None
        self._fused = has_kernels(rows.device)
        self.mean = torch.zeros_like(rows)
        self.square = torch.zeros_like(rows)
        self.count = torch.zeros(len(rows), device=rows.device, dtype=torch.int64)
        self.corrections = corrections(recipe.lr, num_steps).to(rows.device)

    def reset(self) -> None:
        for state in (self.mean, self.square, self.count):
            state.zero_()

    def step(self, rows: Tensor, gradients: Tensor, active: Tensor | None) -> None:
        self.count += 1 if active is None else active
        if self._fused:
            self._step_fused(rows, gradients, active)
            return
        rate, root = self.corrections[self.count].t().contiguous()  # [peer] each
        if self._native:
            everybody = torch.ones(len(rows), dtype=torch.bool) if active is None else active
            constants = (self.recipe.weight_decay, _BETA1, _BETA2, _EPSILON)
            self._native.adam(rows, gradients, (self.mean, self.square), (rate, root), everybody, constants)
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

    def _step_fused(self, rows: Tensor, gradients: Tensor, active: Tensor | None) -> None:
        from pens.engine.fused_adam import adam_step  # needs Triton, which comes with PyTorch's CUDA builds

        decay, betas = self.recipe.weight_decay, (_BETA1, _BETA2)
        state = (self.mean, self.square, self.count, self.corrections)
        adam_step(rows, gradients, *state, active, decay, betas, _EPSILON)


def corrections(lr: float, num_steps: int) -> Tensor:
    """Adam's learning rate and the root's divisor, corrected for the averages' start at zero.  → [step, 2]"""
    count = torch.arange(num_steps + 1, dtype=torch.float64).clamp(min=1)  # who has not begun is not active either
    return torch.stack([lr / (1 - _BETA1**count), (1 - _BETA2**count).sqrt()], 1).float()


class SGD:
    """SGD with momentum and L2 weight decay, as torch.optim.SGD."""

    def __init__(self, recipe: Recipe, rows: Tensor) -> None:
        self.recipe = recipe
        self.velocity = torch.zeros_like(rows) if recipe.momentum else None

    def reset(self) -> None:
        if self.velocity is not None:
            self.velocity.zero_()

    def step(self, rows: Tensor, gradients: Tensor, active: Tensor | None) -> None:
        if self.recipe.weight_decay:
            gradients = gradients.add(rows, alpha=self.recipe.weight_decay)
        change = gradients
        if self.velocity is not None:
            change = self.velocity * self.recipe.momentum + gradients
            change = change if active is None else torch.where(active[:, None], change, self.velocity)
            self.velocity.copy_(change)
        rows.sub_(change if active is None else torch.where(active[:, None], change, 0.0), alpha=self.recipe.lr)

# SPDX-License-Identifier: Apache-2.0
"""Tries out a task before a run, and refuses one whose losses or metrics are not of each sample by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from pens.data.samples import Array
from pens.errors import SettingsError
from pens.tasks.task import Task

_TRIED = 16  # samples, which differ enough for a loss or metric that decides by values to show it
Of = Callable[[Tensor, Tensor], Tensor]
"""Of outputs and targets.  [sample, ...], [sample, ...] → [sample] or [sample, statistic]"""


def try_out_task(task: Task, shape: Sequence[int], targets: Array) -> None:
    """Compute losses and metrics of made-up outputs.  shape: of a sample's output; targets [sample, ...]: some"""
    targets = targets[:_TRIED]
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn((len(targets), *shape), generator=generator).requires_grad_()
    dtype = np.int64 if np.issubdtype(targets.dtype, np.integer) else np.float32
    wanted = torch.from_numpy(np.ascontiguousarray(targets, dtype=dtype))
    losses = _tried(task, "losses", task.losses, outputs, wanted)
    if losses.dim() != 1 or not losses.is_floating_point() or not losses.requires_grad:
        raise SettingsError(
            f"task {task.name}: losses returns shape {tuple(losses.shape)} for {len(targets)} samples, or what has no "
            "gradient: expected one real number for each sample, computed from the outputs"
        )
    _refuse_mixing(task, "the loss of a sample", losses, task.losses, outputs, wanted)
    if len({metric.name for metric in task.metrics}) < len(task.metrics):
        raise SettingsError(f"task {task.name}: two of its metrics have one name: rename one")
    with torch.no_grad():
        for metric in task.metrics:
            said = _tried(task, metric.name, metric.statistics, outputs, wanted)
            if said.dim() > 2 or (metric.value is None and said.dim() != 1):
                raise SettingsError(
                    f"task {task.name}: the statistics of {metric.name} have shape {tuple(said.shape)} for "
                    f"{len(targets)} samples: expected [sample], or [sample, statistic] beside a `value`"
                )
            _refuse_mixing(task, f"what a sample adds to {metric.name}", said, metric.statistics, outputs, wanted)


def _refuse_mixing(task: Task, what: str, together: Tensor, compute: Of, outputs: Tensor, targets: Tensor) -> None:
    """Refuse what is not computed from each sample by itself. `together`: what is computed of all samples at once"""
    each = torch.cat([compute(outputs[i : i + 1].clone(), targets[i : i + 1].clone()) for i in range(len(targets))])
    if each.shape != together.shape or not torch.allclose(
        together.double(), each.double(), rtol=1e-3, atol=1e-5, equal_nan=True
    ):
        raise SettingsError(
            f"task {task.name}: {what} depends on the other samples of its batch, so that peers could not be trained "
            "side by side: compute it from the sample's own output and target"
        )


def _tried(task: Task, what: str, compute: Of, outputs: Tensor, targets: Tensor) -> Tensor:
    """What a task computes of copies of outputs and targets."""
    given = outputs.clone(), targets.clone()
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        try:
            found = compute(*given)
        except Exception as error:  # the user's own code
            raise SettingsError(f"task {task.name}: {what} fails: {type(error).__name__}: {error}") from error
        drawn = not torch.equal(before, torch.get_rng_state())
    if drawn:
        raise SettingsError(
            f"task {task.name}: {what} draws random numbers, so that no run could be repeated: compute it from outputs "
            "and targets alone"
        )
    if not isinstance(found, Tensor) or found.shape[:1] != (len(targets),):
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise SettingsError(
            f"task {task.name}: {what} returns {got} for {len(targets)} samples: expected one row for each sample"
        )
    for name, one, other in zip(("outputs", "targets"), given, (outputs, targets), strict=True):
        if not torch.equal(one, other):
            raise SettingsError(
                f"task {task.name}: {what} changes its {name} in place: make new tensors, clamp in place of clamp_"
            )
    return found

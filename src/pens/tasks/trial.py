# SPDX-License-Identifier: Apache-2.0
"""Tries out a task before a run, and refuses one whose losses or metrics are not of each sample by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pens.data.samples import Array
from pens.errors import SettingsError
from pens.hooks import a_type, told
from pens.tasks.metric import Metric
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
    _try_losses(task, outputs, wanted)
    with torch.no_grad():
        for metric in _metrics_of(task):
            _try_metric(task, metric, outputs, wanted)


def _try_losses(task: Task, outputs: Tensor, targets: Tensor) -> None:
    losses = _tried(task, "losses", task.losses, outputs, targets)
    if losses.dim() != 1 or not losses.is_floating_point() or not losses.requires_grad:
        raise SettingsError(
            f"task {task.name}: losses returns shape {tuple(losses.shape)} for {len(targets)} samples, or what has no "
            "gradient: expected one real number for each sample, computed from the outputs"
        )
    _refuse_mixing(task, "the loss of a sample", losses, task.losses, outputs, targets)
    if task.is_cross_entropy and not _agree(losses, F.cross_entropy(outputs, targets, reduction="none")):
        raise SettingsError(
            f"task {task.name}: it says is_cross_entropy = True, so that engines compute the cross-entropy themselves, "
            "but its losses are others: set is_cross_entropy = False, or derive it from pens.ClassTask"
        )


def _agree(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)


def _metrics_of(task: Task) -> Sequence[Metric]:
    metrics: object = task.metrics
    fits = isinstance(metrics, tuple | list) and len(metrics) > 0 and all(isinstance(of, Metric) for of in metrics)
    if not fits:
        raise SettingsError(
            f"task {task.name}: its metrics are {metrics!r:.100}: give a tuple of pens.Metric with at least one, the "
            "main one first"
        )
    if len({metric.name for metric in task.metrics}) < len(task.metrics):
        raise SettingsError(f"task {task.name}: two of its metrics have one name: rename one")
    return task.metrics


def _try_metric(task: Task, metric: Metric, outputs: Tensor, targets: Tensor) -> None:
    said = _tried(task, metric.name, metric.statistics, outputs, targets)
    if said.dim() > 2 or (metric.value is None and said.dim() != 1):
        raise SettingsError(
            f"task {task.name}: the statistics of {metric.name} have shape {tuple(said.shape)} for "
            f"{len(targets)} samples: expected [sample], or [sample, statistic] beside a `value`"
        )
    _refuse_mixing(task, f"what a sample adds to {metric.name}", said, metric.statistics, outputs, targets)
    sums = said.double().view(len(targets), -1).sum(0).numpy()
    try:
        value = metric.of_sums(sums, len(targets))
    except Exception as error:  # the user's own code
        raise SettingsError(
            f"task {task.name}: the `value` of {metric.name} fails: {told(error)}. It is called with the sums over all "
            f"samples, an array of {len(sums)} numbers, and the number of samples, and returns one number"
        ) from error
    if not math.isfinite(value):
        raise SettingsError(
            f"task {task.name}: {metric.name} is {value} for {len(targets)} samples, and peers may hold so few: return "
            "a finite number whatever the samples are, leaving out classes that do not occur, for instance"
        )


def _refuse_mixing(task: Task, what: str, together: Tensor, compute: Of, outputs: Tensor, targets: Tensor) -> None:
    """Refuse what is not computed from each sample by itself. `together`: what is computed of all samples at once"""
    each = torch.cat([compute(outputs[i : i + 1].clone(), targets[i : i + 1].clone()) for i in range(len(targets))])
    if each.shape != together.shape or not _agree(together.double(), each.double()):
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
            raise SettingsError(
                f"task {task.name}: {what} fails: {told(error)}. It was tried out on outputs of shape "
                f"{tuple(outputs.shape)}, as the task's num_outputs and output_shape say, and targets of shape "
                f"{tuple(targets.shape)} and type {targets.dtype}"
            ) from error
        drawn = not torch.equal(before, torch.get_rng_state())
    if drawn:
        raise SettingsError(
            f"task {task.name}: {what} draws random numbers, so that no run could be repeated: compute it from outputs "
            "and targets alone"
        )
    if not isinstance(found, Tensor) or found.shape[:1] != (len(targets),):
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else a_type(found)
        raise SettingsError(
            f"task {task.name}: {what} returns {got} for {len(targets)} samples: expected one row for each sample"
        )
    for name, one, other in zip(("outputs", "targets"), given, (outputs, targets), strict=True):
        if not torch.equal(one, other):
            raise SettingsError(
                f"task {task.name}: {what} changes its {name} in place: make new tensors, clamp in place of clamp_"
            )
    return found

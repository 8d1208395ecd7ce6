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


def try_out_task(task: Task, shape: Sequence[int], targets: Array) -> None:
    """Compute losses and metrics of made-up outputs.  shape: of a sample's output; targets [sample, ...]: some"""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn((len(targets), *shape), generator=generator).requires_grad_()
    dtype = np.int64 if np.issubdtype(targets.dtype, np.integer) else np.float32
    wanted = torch.from_numpy(np.ascontiguousarray(targets, dtype=dtype))
    _try_losses(task, outputs, wanted)
    with torch.no_grad():
        for metric in _metrics_of(task):
            _try_metric(task, metric, outputs, wanted)


def _try_losses(task: Task, outputs: Tensor, targets: Tensor) -> None:
    losses = _of_each(task, "losses", lambda: task.losses(outputs, targets), outputs, targets)
    if losses.dim() != 1 or not losses.is_floating_point() or not losses.requires_grad:
        raise SettingsError(
            f"task {task.name}: losses returns shape {tuple(losses.shape)} for {len(targets)} samples, or what has no "
            "gradient: expected one real number for each sample, computed from the outputs"
        )
    alone = _of_each(task, "losses", lambda: task.losses(outputs[:1], targets[:1]), outputs[:1], targets[:1])
    if not _agree(losses[:1], alone):
        raise SettingsError(
            f"task {task.name}: the loss of a sample depends on the other samples of its batch, or on random numbers, "
            "so that peers could not be trained side by side: compute it from the sample's own output and target"
        )
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
    said = _of_each(task, metric.name, lambda: metric.statistics(outputs, targets), outputs, targets)
    if said.dim() > 2 or (metric.value is None and said.dim() != 1):
        raise SettingsError(
            f"task {task.name}: the statistics of {metric.name} have shape {tuple(said.shape)} for "
            f"{len(targets)} samples: expected [sample], or [sample, statistic] beside a `value`"
        )
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


def _of_each(task: Task, what: str, compute: Callable[[], object], outputs: Tensor, targets: Tensor) -> Tensor:
    """What the task says of each sample."""
    try:
        found = compute()
    except Exception as error:  # the user's own code
        raise SettingsError(
            f"task {task.name}: {what} fails: {told(error)}. It was tried out on outputs of shape "
            f"{tuple(outputs.shape)}, as the task's num_outputs and output_shape say, and targets of shape "
            f"{tuple(targets.shape)} and type {targets.dtype}"
        ) from error
    if not isinstance(found, Tensor) or found.shape[:1] != (len(targets),):
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else a_type(found)
        raise SettingsError(
            f"task {task.name}: {what} returns {got} for {len(targets)} samples: expected one row for each sample"
        )
    return found

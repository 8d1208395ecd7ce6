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


def try_out_task(task: Task, shape: Sequence[int], targets: Array) -> None:
    """Compute losses and metrics of made-up outputs.  shape: of a sample's output; targets [sample, ...]: some"""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn((len(targets), *shape), generator=generator).requires_grad_()
    dtype = np.int64 if np.issubdtype(targets.dtype, np.integer) else np.float32
    wanted = torch.from_numpy(np.ascontiguousarray(targets, dtype=dtype))
    losses = _tried(task, "losses", lambda: task.losses(outputs, wanted), len(targets))
    if losses.dim() != 1 or not losses.is_floating_point() or not losses.requires_grad:
        raise SettingsError(
            f"task {task.name}: losses returns shape {tuple(losses.shape)} for {len(targets)} samples, or what has no "
            "gradient: expected one real number for each sample, computed from the outputs"
        )
    alone = _tried(task, "losses", lambda: task.losses(outputs[:1], wanted[:1]), 1)
    if not torch.allclose(losses[:1], alone, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise SettingsError(
            f"task {task.name}: the loss of a sample depends on the other samples of its batch, so that peers could "
            "not be trained side by side: compute it from the sample's own output and target"
        )
    if len({metric.name for metric in task.metrics}) < len(task.metrics):
        raise SettingsError(f"task {task.name}: two of its metrics have one name: rename one")
    with torch.no_grad():
        for metric in task.metrics:
            said = _tried(task, metric.name, lambda of=metric: of.statistics(outputs, wanted), len(targets))  # type: ignore[misc]
            if said.dim() > 2 or (metric.value is None and said.dim() != 1):
                raise SettingsError(
                    f"task {task.name}: the statistics of {metric.name} have shape {tuple(said.shape)} for "
                    f"{len(targets)} samples: expected [sample], or [sample, statistic] beside a `value`"
                )


def _tried(task: Task, what: str, compute: Callable[[], object], samples: int) -> Tensor:
    try:
        found = compute()
    except Exception as error:  # the user's own code
        raise SettingsError(f"task {task.name}: {what} fails: {type(error).__name__}: {error}") from error
    if not isinstance(found, Tensor) or found.shape[:1] != (samples,):
        got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise SettingsError(
            f"task {task.name}: {what} returns {got} for {samples} samples: expected one row for each sample"
        )
    return found

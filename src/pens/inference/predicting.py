# SPDX-License-Identifier: Apache-2.0
"""The outputs of one peer's tested model on new samples."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from pens.data.samples import Array
from pens.errors import DataError, ModelError
from pens.inference.network_form import NetworkForm
from pens.inference.standardising import name_of
from pens.parts import TASKS
from pens.tasks.classification import Classification

BATCH = 256


def outputs(module: nn.Module, x: Array, batch_size: int = BATCH) -> Array:
    """What a module returns for samples, computed on the CPU, `batch_size` samples at a time.
    x [sample, ...] → [sample, output]"""
    if batch_size < 1:
        raise DataError(f"batch_size = {batch_size}: give at least 1")
    if not len(x):
        raise DataError("0 inputs: give at least one sample")
    found = []
    with torch.no_grad():
        for start in range(0, len(x), batch_size):
            found.append(_returned(module, torch.from_numpy(x[start : start + batch_size])))
    scores: Array = np.concatenate(found)
    return scores


def _returned(module: nn.Module, x: torch.Tensor) -> Array:
    try:
        result = module(x)
    except (RuntimeError, ValueError, IndexError) as error:
        raise ModelError(f"{name_of(module)} cannot be run on inputs of shape {tuple(x.shape)}: {error}") from error
    if not isinstance(result, torch.Tensor):
        raise ModelError(f"{name_of(module)} returns a {type(result).__name__}: it has to return one tensor")
    values: Array = result.numpy()
    return values


def said(outputs: Array, form: NetworkForm | None) -> Array:
    """What a network's outputs say by the task of its run: classes, by name where labels were texts, or numbers.
    [sample, output, ...] → [sample, ...]"""
    if form is None:
        return Classification().predict(outputs)
    found: Array = TASKS.find(form.task).predict(outputs)
    return np.array(form.class_names)[found] if form.class_names else found

# SPDX-License-Identifier: Apache-2.0
"""Several models sorted number by number, and averages of models: what rules that look at single numbers share.

Twenty models are few, and their numbers are many. A sorting network exchanges whole models number by number, which is
thirteen times as fast on a CPU as the library's sort along so short an axis, and the same code runs on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import torch
from torch import Tensor

_NETWORK_UP_TO = 64  # models; with more, a GPU would have thousands of small operations to begin


def in_order(models: Tensor) -> list[Tensor]:
    """The smallest of each number, then the second smallest, and so on.

    [merge, model, number] → [merge, number] each
    """
    count = models.shape[1]
    if count > _NETWORK_UP_TO:
        return list(models.sort(1).values.unbind(1))
    found = [model.clone() for model in models.unbind(1)]
    spare = torch.empty_like(found[0])
    for low, high in _exchanges(count):
        torch.minimum(found[low], found[high], out=spare)
        torch.maximum(found[low], found[high], out=found[high])
        found[low], spare = spare, found[low]
    return found


def average(models: Sequence[Tensor]) -> Tensor:
    """The mean as the first model and the mean difference from it, so that equal models stay exactly equal."""
    first, total = models[0], torch.zeros_like(models[0])
    for model in models[1:]:
        total += model - first
    return first + total / len(models)


@cache
def _exchanges(count: int) -> tuple[tuple[int, int], ...]:
    """Batcher's odd-even merge sort: pairs of places that are put in order, one after the other."""
    return tuple(_merges(count))


def _merges(count: int) -> Iterator[tuple[int, int]]:
    sorted_run = 1
    while sorted_run < count:
        step = sorted_run
        while step:
            for start in range(step % sorted_run, count - step, 2 * step):
                for low in range(start, min(start + step, count - step)):
                    if low // (2 * sorted_run) == (low + step) // (2 * sorted_run):
                        yield low, low + step
            step //= 2
        sorted_run *= 2

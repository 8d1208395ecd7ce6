# SPDX-License-Identifier: Apache-2.0
"""Merge rules once more, model by model and in double precision: slow, and easy to compare with the papers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from pens.data.samples import Array


def mean(own: Array, models: Sequence[Array], own_in_merge: bool, samples: Sequence[int]) -> Array:
    """models: the own one first where it is merged"""
    return np.asarray(np.mean(models, axis=0))


def weighted(own: Array, models: Sequence[Array], own_in_merge: bool, samples: Sequence[int]) -> Array:
    return np.average(models, axis=0, weights=samples)


def median(own: Array, models: Sequence[Array], own_in_merge: bool, samples: Sequence[int]) -> Array:
    return np.array([statistics.median(numbers) for numbers in zip(*models, strict=True)])


def trimmed(own: Array, models: Sequence[Array], own_in_merge: bool, samples: Sequence[int]) -> Array:
    """With trim_share = 0.2."""
    cut = len(models) // 5
    return np.array([np.mean(sorted(numbers)[cut : len(models) - cut]) for numbers in zip(*models, strict=True)])


def clipped(own: Array, models: Sequence[Array], own_in_merge: bool, samples: Sequence[int]) -> Array:
    """With clip_radius = auto."""
    differences = [model - own for model in models[int(own_in_merge) :]]
    radius = statistics.median_low([float(np.linalg.norm(d)) for d in differences])
    merged = own.copy()
    for difference in differences:
        norm = float(np.linalg.norm(difference))
        merged += difference * (radius / norm if norm > radius else 1.0) / len(models)
    return merged


PLAIN = {"mean": mean, "weighted": weighted, "median": median, "trimmed": trimmed, "clipped": clipped}

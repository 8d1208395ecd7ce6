# SPDX-License-Identifier: Apache-2.0
"""Differences from the own model, clipped and averaged: ClippedGossip (He, Karimireddy and Jaggi 2022), the centred
clipping of Karimireddy et al. (2021) without a server.

    merged = own + Σ wⱼ · min(1, radius / ‖receivedⱼ − own‖) · (receivedⱼ − own)

A received model moves the own one by no more than its weight times the radius, whatever it holds.

`auto` takes the median of the differences' norms as the radius, the lower one of two. As long as fewer than half of the
received models are an attacker's, it is no larger than the largest norm of an honest one; it needs no knowledge of the
network, and follows the peers as they agree. The paper's own radius asks for the variance of the honest models, which
nobody knows; the median as the radius is that of Andrew et al. (2021) for clipped updates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pens.merging.rule import Merge, MergeRule, Rows
from pens.settings.section import Positive, Section

if TYPE_CHECKING:
    from torch import Tensor


class ClippedSettings(Section):
    """The merge rule `clipped`."""

    title: ClassVar[str] = "clipped"
    clip_radius: Positive | Literal["auto"] = "auto"
    """The largest norm of a received model's difference from the own one; longer differences are scaled down to it.
    auto: the median of the norms in each merge."""


class Clipped(MergeRule):
    """Each received model's difference from the own one is clipped to a radius, then averaged."""

    name = "clipped"
    about = "differences from the own model, clipped to a radius and averaged"
    section = ClippedSettings
    takes_weights = True

    def merge(self, rows: Rows, options: ClippedSettings) -> Tensor:
        import torch

        own, received = rows.own, rows.received.unbind(1)
        norms = torch.stack([torch.linalg.vector_norm(model - own, dim=1) for model in received], 1)  # [merge, model]
        radius = _lower_median(norms) if options.clip_radius == "auto" else torch.full_like(norms, options.clip_radius)
        weights = torch.tensor([_weights(merge) for merge in rows.merges], dtype=own.dtype, device=own.device)
        factors = weights * torch.where(norms > radius, radius / norms, torch.ones_like(norms))
        total = torch.zeros_like(own)
        for place, model in enumerate(received):
            total += (model - own) * factors[:, place, None]
        return own + total


def _lower_median(norms: Tensor) -> Tensor:
    """[merge, model] → the same for all models of a merge"""
    middle = (norms.shape[1] - 1) // 2
    return norms.sort(1).values[:, middle, None].expand_as(norms)


def _weights(merge: Merge) -> list[float]:
    """Of the received models."""
    count = len(merge.senders)
    weights = merge.weights or (1 / count,) * count
    return list(weights[int(merge.own_in_merge) :])

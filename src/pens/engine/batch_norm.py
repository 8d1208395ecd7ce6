# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation in a stack of models: the statistics of a batch are those of its real samples.

In a stack, a short batch is filled up with a repeated sample. The replacement layer leaves padding out of the mean and
the variance, and updates the running statistics as PyTorch does: with the unbiased variance, with `momentum`, or as the
cumulative average where `momentum` is None. A model that runs alone uses PyTorch's own layer.

A batch with a single value per channel (one sample, after a linear layer) has no variance, and PyTorch refuses to train
on it. Here such a batch is normalised by the running statistics, as in evaluation, and leaves them as they are. Without
running statistics its values are normalised to zero.

A layer without running statistics (`track_running_stats=False`) uses those of the batch in evaluation, too. All samples
that a model is evaluated on are one batch then.

`num_batches_tracked` counts a peer's own batches. It is part of the peer's row, as a float: a cumulative average
depends on it, and an average of two models needs an average of their counts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pens.engine.calls import LOOP, Call
from pens.errors import ModelError

COUNTER = "num_batches_tracked"


class _Masked(_BatchNorm):
    """Batch normalisation, for one model alone or for a stack."""

    call: Call

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, channel, ...] → the same shape"""
        self._check_input_dim(x)  # type: ignore[no-untyped-call]
        by_batch = self.training or self.running_mean is None
        if by_batch and self.call.apart:
            return self._normalised(x, self.running_mean, self.running_var)
        if by_batch and self.call.stacked:
            return self._of_real_samples(x)
        if by_batch and x.numel() == x.shape[1]:  # one value per channel
            return self._normalised(
                x, x.flatten() if self.running_mean is None else self.running_mean, self.running_var
            )
        if self.call.stacked:
            return self._normalised(x, self.running_mean, self.running_var)
        return super().forward(x)

    def _normalised(self, x: Tensor, mean: Tensor | None, var: Tensor | None) -> Tensor:
        """mean, var [channel]; None: 0, 1"""
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        scale: Tensor | None = self.weight
        if var is not None:
            scale = (var + self.eps).rsqrt() if scale is None else (var + self.eps).rsqrt() * scale
        out = x if mean is None else x - mean.view(shape)
        out = out if scale is None else out * scale.view(shape)
        return out if self.bias is None else out + self.bias.view(shape)

    def _of_real_samples(self, x: Tensor) -> Tensor:
        """Normalise by the statistics of the batch's real samples, and in training update the running ones."""
        dims = [0, *range(2, x.dim())]
        per_sample = x[0, 0].numel()
        real = torch.ones(len(x), dtype=torch.bool, device=x.device) if self.call.real is None else self.call.real
        if len(real) != len(x):
            raise ModelError(
                f"nn.{type(self).__name__.removeprefix('Masked')} gets {len(x)} inputs for {len(real)} samples, so "
                f"that a stack of models cannot tell which of them fill up a short batch. {LOOP}"
            )
        is_real = real.view(-1, *(1 for _ in x.shape[1:]))
        count = real.sum() * per_sample  # values per channel
        mean = torch.where(is_real, x, 0.0).sum(dims) / count.clamp(min=1)
        shape = (1, -1, *(1 for _ in x.shape[2:]))
        var = torch.where(is_real, x - mean.view(shape), 0.0).square().sum(dims) / count.clamp(min=1)
        if self.running_mean is None or self.running_var is None:
            return self._normalised(x, mean, var)
        several = count > 1
        used = (torch.where(several, own, kept) for own, kept in ((mean, self.running_mean), (var, self.running_var)))
        out = self._normalised(x, *used)
        self._track(mean.detach(), var.detach() * count / (count - 1).clamp(min=1), several)
        return out

    def _track(self, mean: Tensor, var: Tensor, several: Tensor) -> None:
        """Update the running statistics, unless the batch has a single value per channel.  mean, var [channel]"""
        assert self.num_batches_tracked is not None
        counted = self.num_batches_tracked + several
        share = 1 / counted.clamp(min=1) if self.momentum is None else self.momentum
        self.num_batches_tracked = counted
        for name, new in (("running_mean", mean), ("running_var", var)):
            before = getattr(self, name)
            setattr(self, name, torch.where(several, before * (1 - share) + new * share, before))


class MaskedBatchNorm1d(_Masked, nn.BatchNorm1d):
    """On [batch, channel] or [batch, channel, length]."""


class MaskedBatchNorm2d(_Masked, nn.BatchNorm2d):
    """On [batch, channel, height, width]."""


class MaskedBatchNorm3d(_Masked, nn.BatchNorm3d):
    """On [batch, channel, depth, height, width]."""


_REPLACEMENTS: dict[type[nn.Module], type[_Masked]] = {
    nn.BatchNorm1d: MaskedBatchNorm1d,
    nn.BatchNorm2d: MaskedBatchNorm2d,
    nn.BatchNorm3d: MaskedBatchNorm3d,
}


def replace_batch_norm(layer: nn.Module, call: Call) -> None:
    """Exchange a layer of batch normalisation, in place."""
    if type(layer) in _REPLACEMENTS:
        layer.__class__ = _REPLACEMENTS[type(layer)]
        layer.call = call  # type: ignore[assignment]


def batch_norm_layers(module: nn.Module) -> dict[str, _BatchNorm]:
    """The layers of batch normalisation that a stack can run, by name."""
    kinds = (*_REPLACEMENTS, *_REPLACEMENTS.values())
    return {name: layer for name, layer in module.named_modules() if type(layer) in kinds}


def batch_norm_tensors(module: nn.Module) -> set[str]:
    """The names of all tensors of batch normalisation."""
    return {
        f"{layer}.{name}".lstrip(".")
        for layer, found in batch_norm_layers(module).items()
        for name in (*dict(found.named_parameters()), *dict(found.named_buffers()))
    }


def refuse_synchronised(module: nn.Module) -> None:
    """SyncBatchNorm shares statistics between processes, and peers share none."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.SyncBatchNorm):
            raise ModelError(
                f"layer {name!r} is nn.SyncBatchNorm, which shares the statistics of batches between processes, and "
                "peers do not share their data: use nn.BatchNorm1d, nn.BatchNorm2d or nn.BatchNorm3d"
            )

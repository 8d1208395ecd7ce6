# SPDX-License-Identifier: Apache-2.0
"""Makes modules with the user's class or function, and refuses those whose parameters cannot be rows of numbers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from pens.engine.stumbles import brief
from pens.errors import ModelError
from pens.nets import NetFactory, without_nested_tensors


def made(factory: NetFactory, seed: int | None = None, like: nn.Module | None = None) -> nn.Module:
    """A new network from the user's factory, on the CPU in float32. `seed`: of its random numbers; None: go on.
    `like`: what the factory made before"""
    encodes = like is None or any(isinstance(part, nn.TransformerEncoder) for part in like.modules())
    try:
        with (
            torch.random.fork_rng(devices=[], enabled=seed is not None),
            _without_advice() if encodes else nullcontext(),
        ):
            if seed is not None:
                torch.manual_seed(seed)
            module = factory()
    except Exception as error:  # the user's own code
        raise ModelError(
            f"the network cannot be made: {type(error).__name__}: {brief(error)}. pens gives `model` the "
            "arguments `shape` and `num_classes` where it needs them: pass a class or function that needs no others"
        ) from error
    if not isinstance(module, nn.Module):
        raise ModelError(
            f"model makes a value of type {type(module).__name__}: pass an nn.Module class, or a function that returns "
            "an nn.Module"
        )
    _refuse_kind(module)
    _refuse_parameters(module)
    return without_nested_tensors(module).cpu().float()  # unlike to(torch.float32), this leaves complex buffers alone


@contextmanager
def _without_advice() -> Iterator[None]:
    """PyTorch tells of encoders that cannot use nested tensors, which are never used here. Not around each call of a
    factory: where filters change, Python repeats all that the factory warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "enable_nested_tensor is True")
        yield


def _refuse_kind(module: nn.Module) -> None:
    """Refuse what holds a network, but is none whose tensors can be exchanged."""
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            "model makes a TorchScript module, which cannot be trained here: pass the nn.Module it is from"
        )
    for name, part in module.named_modules():
        if isinstance(part, nn.DataParallel | nn.parallel.DistributedDataParallel):
            raise ModelError(
                f"{f'layer {name!r}' if name else 'model'} is nn.{type(part).__name__}, which shares the samples of "
                "one model among devices: pass the module within it (its `module`)"
            )


def _refuse_parameters(module: nn.Module) -> None:
    """Refuse parameters without a size, of complex numbers, and with hooks, which are not those of a peer's row."""
    if any(isinstance(p, nn.UninitializedParameter) for p in module.parameters()):
        raise ModelError(
            f"{type(module).__name__} has lazy layers, whose sizes are not known before the first call: use layers "
            "with all sizes given, nn.Linear in place of nn.LazyLinear for instance"
        )
    for name, parameter in module.named_parameters():
        which = f"parameter {name!r} of {type(module).__name__}"
        if parameter.is_complex():
            raise ModelError(
                f"{which} is complex, and models are rows of real numbers: keep its real and imaginary part as a "
                "parameter [..., 2], and use torch.view_as_complex"
            )
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise ModelError(
                f"{which} has a hook on its gradient, which would not be called, since a peer's own tensor takes the "
                "place of the parameter: leave the hook out; what it leaves untrained can be masked in forward, by "
                "mask * weight + (1 - mask) * weight.detach()"
            )

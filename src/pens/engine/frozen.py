# SPDX-License-Identifier: Apache-2.0
"""Frozen parts of a network: kept once for all peers, and computed once per sample where nothing before them trains.

A parameter with `requires_grad = False` is no part of a peer's row: it is not trained, sent, merged or counted. All
peers share the values of one call of the user's factory, which is made with a seed of its own, the same in every
process. A module whose parameters are all frozen is frozen as a whole: it runs in evaluation mode, also while the rest
trains, so that it drops nothing and its statistics stay, and its buffers are shared, too.

A `Cut` divides a network into features, which depend on the sample alone, and the rest, which trains. There are two
kinds. Either all trained parameters lie in one module whose output is the network's: features are what goes into that
module (`model.fc = nn.Linear(…)` behind a frozen backbone). Or a frozen module takes the network's input itself:
features are its output, and an identity takes its place in the rest. Whether the two parts together compute what the
network does is tried out, in training and in evaluation.

In a stack, a frozen module that must be computed in every step runs peer by peer, by PyTorch's own code: as one large
batch of all peers, products on a CPU would round otherwise with other peers beside them (law 3).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from pens.engine.calls import Call
from pens.errors import ModelError

_AT_ONCE = 64  # samples whose features are computed together; fixed, so that no bit depends on the given memory


def is_frozen(module: nn.Module) -> bool:
    """Whether a module has parameters, and all of them are frozen."""
    parameters = list(module.parameters())
    return bool(parameters) and not any(p.requires_grad for p in parameters)


def frozen_modules(module: nn.Module) -> dict[str, nn.Module]:
    """The largest modules that are frozen as a whole, by name."""
    found: dict[str, nn.Module] = {}
    for name, part in module.named_modules():
        if is_frozen(part) and not any(name.startswith(f"{outer}.") for outer in found):
            found[name] = part
    return found


def frozen_names(module: nn.Module) -> set[str]:
    """The names of all tensors that peers share: frozen parameters, and the buffers of frozen modules."""
    names = {name for name, p in module.named_parameters() if not p.requires_grad}
    for outer, part in frozen_modules(module).items():
        names |= {f"{outer}.{name}".lstrip(".") for name, _ in part.named_buffers()}
    return names


def copied(module: nn.Module) -> nn.Module:
    """A copy that shares what is frozen."""
    shared = frozen_names(module)
    tensors = (*module.named_parameters(), *module.named_buffers())
    try:
        return copy.deepcopy(module, {id(tensor): tensor for name, tensor in tensors if name in shared})
    except Exception as error:  # the user's own code
        raise ModelError(f"{type(module).__name__} cannot be copied: {_why_not_copied(error)}") from error


def _why_not_copied(error: Exception) -> str:
    """The reason in words, and what to do."""
    if "graph leaves" not in str(error):
        return (
            f"{type(error).__name__}: {error}. Each core and mode needs its own copy of the module: make what cannot "
            "be copied (locks, files, connections) outside it, or give the module a method __deepcopy__"
        )
    return (
        "an attribute holds a tensor that was computed from its parameters. In place of torch.nn.utils.weight_norm use "
        "torch.nn.utils.parametrizations.weight_norm; parametrise no weights of nn.LSTM, nn.GRU and nn.RNN; after "
        "torch.nn.utils.prune call prune.remove, and multiply by a mask that is a buffer; compute all else in forward"
    )


def set_mode(module: nn.Module, train: bool) -> nn.Module:
    """Put a module into training or evaluation mode, and what is frozen into evaluation mode."""
    module.train(train)
    for part in frozen_modules(module).values():
        part.eval()
        for layer in part.modules():
            if isinstance(layer, nn.RNNBase):  # a GPU computes its gradients in training alone; only dropout tells
                layer.training, layer.dropout = True, 0.0
    return module


# --- computed peer by peer --------------------------------------------------------------------------------------------


def run_peer_by_peer(module: nn.Module, call: Call) -> None:
    """Make frozen modules compute one peer after the other in a stack."""
    for part in module.modules():
        if is_frozen(part) and not isinstance(part, nn.ModuleList | nn.ModuleDict):
            part.forward = partial(_forward, part.forward, call)


def _forward(own: Callable[..., Any], call: Call, *inputs: Any, **named: Any) -> Any:
    given, form = tree_flatten((inputs, named))
    places = [place for place, value in enumerate(given) if isinstance(value, Tensor)]
    if not call.stacked or not places:
        return own(*inputs, **named)
    returned: list[tuple[list[Any], Any]] = []

    def alone(*tensors: Tensor) -> tuple[Tensor, ...]:
        """One peer's call; frozen modules within this one are no longer called for a stack."""
        values = [*given]
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        one, by_name = tree_unflatten(values, form)
        call.stacked = False
        try:
            returned[:] = [tree_flatten(own(*one, **by_name))]
        finally:
            call.stacked = True
        return tuple(value for value in returned[0][0] if isinstance(value, Tensor))

    tensors = iter(_EachPeer.apply(alone, *(given[place] for place in places)))  # type: ignore[no-untyped-call]
    values, shape = returned[0]
    return tree_unflatten([next(tensors) if isinstance(value, Tensor) else value for value in values], shape)


class _EachPeer(torch.autograd.Function):
    """Calls a function for one peer after the other under vmap."""

    @staticmethod
    def forward(own: Callable[..., Any], *inputs: Tensor) -> Any:
        return own(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> None:
        raise ModelError("a frozen layer was trained outside a stack: this is a fault of pens, please report it")

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], own: Callable[..., Any], *inputs: Tensor) -> tuple[Any, Any]:
        each = [
            own(*(x if d is None else x.select(d, peer) for x, d in zip(inputs, dims[1:], strict=True)))
            for peer in range(info.batch_size)
        ]
        return tuple(torch.stack(parts) for parts in zip(*each, strict=True)), (0,) * len(each[0])


# --- computed once per sample -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """A network in two parts."""

    features: nn.Module
    """Computes what depends on the sample alone, in evaluation mode."""
    rest: nn.Module
    """The network, as a function of the features."""
    name: str
    """The name of the module at which the network is cut."""

    @torch.no_grad()
    def compute(self, x: Tensor) -> Tensor:
        """Features of samples.  [sample, ...] → [sample, ...]"""
        parts = [self.features(x[i : i + _AT_ONCE]) for i in range(0, len(x), _AT_ONCE)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def find_cut(module: nn.Module, example: Tensor) -> Cut | None:
    """The cut that computes most once per sample, or None.  example [sample, ...]"""
    if not any(not p.requires_grad for p in module.parameters()) or not any(
        p.requires_grad for p in module.parameters()
    ):
        return None
    for cut in (*_before_the_trained(module), *_behind_the_input(module, example)):
        if _is_right(module, cut, example):
            return cut
    return None


def _before_the_trained(module: nn.Module) -> Iterator[Cut]:
    """Cuts before the modules that hold all trained parameters, the innermost first."""
    names, inner = [], ""
    while True:
        part = module.get_submodule(inner)
        children = [(name, child) for name, child in part.named_children() if _trains(child)]
        if len(children) != 1 or any(p.requires_grad for p in part.parameters(recurse=False)):
            break
        inner = f"{inner}.{children[0][0]}".lstrip(".")
        names.append(inner)
    for name in reversed(names):
        rest, features = copied(module), copied(module)
        rest.forward = partial(_only, rest, name)
        features.set_submodule(name, nn.Identity())
        yield Cut(features.eval(), rest, name)


def _only(module: nn.Module, name: str, x: Tensor) -> Any:
    return module.get_submodule(name)(x)


def _trains(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters())


def _behind_the_input(module: nn.Module, example: Tensor) -> Iterator[Cut]:
    """Cuts behind frozen modules that take the network's input itself, the largest first."""
    calls: dict[str, list[bool]] = {}
    trial = set_mode(copied(module), False)
    hooks = []
    for name, part in trial.named_modules():
        if name and is_frozen(part):

            def note(_: nn.Module, inputs: Any, named: Any, output: Any, name: str = name) -> None:
                takes_it = len(inputs) == 1 and inputs[0] is example and not named and isinstance(output, Tensor)
                calls.setdefault(name, []).append(takes_it)

            hooks.append(part.register_forward_hook(note, with_kwargs=True))
    with torch.no_grad():
        _tried(trial, example)
    sizes = {n: sum(p.numel() for p in module.get_submodule(n).parameters()) for n, c in calls.items() if c == [True]}
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        rest = copied(module)
        features = copied(module).get_submodule(name)
        rest.set_submodule(name, nn.Identity())
        yield Cut(features.eval(), rest, name)


def _is_right(module: nn.Module, cut: Cut, example: Tensor) -> bool:
    """Whether the parts together compute what the network does, in training and in evaluation."""
    features = _tried(cut.compute, example)
    if not isinstance(features, Tensor) or not features.is_floating_point() or len(features) != len(example):
        return False
    if not _close(_tried(cut.compute, example[:1]), features[:1]):
        return False
    training = set_mode(copied(cut.features), True)
    if not _close(_tried(training, example, draws=False), features):
        return False  # something in it drops numbers, or has statistics of its own
    return all(
        _close(_tried(set_mode(copied(cut.rest), mode), features), _tried(set_mode(copied(module), mode), example))
        for mode in (True, False)
    )


def _tried(function: Callable[[Tensor], Any], x: Tensor, draws: bool = True) -> Any:
    """A function's value; None where it fails, or where it draws random numbers and must not."""
    with torch.no_grad(), torch.random.fork_rng(devices=[x.device] if x.device.type == "cuda" else []):
        torch.manual_seed(0)
        before = torch.get_rng_state()
        try:
            found = function(x)
        except Exception:  # the user's own code, in a form that it was not written for
            return None
        return found if draws or torch.equal(before, torch.get_rng_state()) else None


def _close(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.shape != other.shape:
        return False
    return torch.allclose(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)

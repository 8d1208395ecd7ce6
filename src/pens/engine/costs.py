# SPDX-License-Identifier: Apache-2.0
"""Measures what each layer of a network costs in a training step of a stack, for `pens bench`.

Every layer, as it runs in training, is run by itself, forward and backward, for all peers at once, on inputs of the
shape and memory order that it gets within the network; on a GPU as a recorded graph, as in training. Layers that are
called with anything but one tensor are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from pens.engine.calls import Call
from pens.engine.functional import StackedNetwork

_REPLAYS = 20


def layer_costs(network: StackedNetwork, rows: Tensor, x: Tensor) -> dict[str, float]:
    """Seconds that each layer takes in one step, by the layer's name.  rows [peer, size], x [peer, batch, ...]"""
    tensors = network.in_work.tensors(network.to_work(rows))
    first, costs = True, {}
    for name, (layer, example) in _calls(network, rows[0], x[0]).items():
        work = _work(layer, name, tensors, _repeated(example, len(rows)), with_input=not first)
        costs[name] = _seconds(work, network.device)
        first = False
    return costs


def _calls(network: StackedNetwork, row: Tensor, x: Tensor) -> dict[str, tuple[nn.Module, Tensor]]:
    """Each layer, and the input that it is called with when one model runs."""
    calls: dict[str, tuple[nn.Module, Tensor]] = {}
    hooks = []
    for name, layer in network.layers_in_training().items():
        if type(layer) is nn.Identity:  # it is part of another layer's kernel, or does no work
            continue

        def note(module: nn.Module, inputs: tuple[object, ...], _: object, name: str = name) -> None:
            if len(inputs) == 1 and isinstance(inputs[0], Tensor):
                calls.setdefault(name, (module, inputs[0].detach().clone()))

        hooks.append(layer.register_forward_hook(note))
    try:
        with torch.no_grad():
            network.single(network.tensors(row.clone()), x, network.a_key(), train=True)
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _work(layer: nn.Module, name: str, tensors: dict[str, Tensor], x: Tensor, with_input: bool) -> Callable[[], object]:
    """Runs one layer forward and backward. `with_input`: also computes the gradient of its input."""
    own = {n.removeprefix(f"{name}."): t.detach() for n, t in tensors.items() if n.startswith(f"{name}.")}
    for tensor in own.values():
        tensor.requires_grad_()
    x.requires_grad_(with_input and x.is_floating_point())
    wanted = [t for t in (*own.values(), x) if t.requires_grad]

    def run() -> object:
        calls = (getattr(module, "call", None) for module in layer.modules())
        for call in (call for call in calls if isinstance(call, Call)):
            call.key, call.stacked = torch.zeros((), dtype=torch.int64, device=x.device), True
        out = vmap(lambda p, x: functional_call(layer, p, (x,)))(own, x)
        return torch.autograd.grad(out, wanted, torch.ones_like(out), allow_unused=True) if wanted else out

    return run


def _repeated(x: Tensor, peers: int) -> Tensor:
    """A copy of x for each peer, in the same order of memory as x.  [...] → [peer, ...]"""
    order = sorted(range(x.dim()), key=x.stride().__getitem__, reverse=True)
    stored = x.permute(order).expand(peers, *(x.shape[d] for d in order)).contiguous()
    return stored.permute(0, *(1 + order.index(d) for d in range(x.dim())))


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that one call takes, on average over repeated calls."""
    for _ in range(3):
        work()
    if device.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        work = graph.replay
        torch.cuda.synchronize()
    before = time.perf_counter()
    for _ in range(_REPLAYS):
        work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - before) / _REPLAYS

# SPDX-License-Identifier: Apache-2.0
"""Calls a network twice before a run, and refuses what it keeps from call to call outside its parameters and buffers.

A peer's model is its row of numbers. What a network keeps in an attribute would be shared by all peers, in an order
that depends on the engine, and would be lost when a run is resumed. The same holds for random numbers: they may come
from a peer's key (`nn.Dropout`), or from PyTorch's generator, which the loop seeds for each step of each model; no
other generator has a seed here.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from pens.errors import ModelError


class Called(Protocol):
    """What is needed of a network (`pens.engine.functional.StackedNetwork`)."""

    name: str
    _modules: dict[bool, nn.Module]

    def single(self, tensors: dict[str, Tensor], x: Tensor, key: Tensor, train: bool) -> Tensor: ...


def refuse_what_is_kept(network: Called, tensors: dict[str, Tensor], x: Tensor, key: Tensor) -> None:
    """Call a network twice with the same tensors, samples and seed, and in between with other samples; in training and
    in evaluation."""
    for train in (True, False):
        module, foreign = network._modules[train], _foreign_generators()
        first = network.single(_copies(tensors), x.clone(), key, train)
        kept = _kept(module)
        network.single(_copies(tensors), x[:1].expand_as(x).clone(), key, train)
        second = network.single(_copies(tensors), x.clone(), key, train)
        for generator, state in _foreign_generators().items():
            if state != foreign[generator]:
                raise ModelError(
                    f"{network.name} draws random numbers from {generator}, which pens does not seed, so that no run "
                    'could be repeated: draw them by torch.rand, with backend = "loop", or use nn.Dropout'
                )
        now = _kept(module)
        if changed := [name for name in now if now[name] != kept.get(name)]:
            raise ModelError(
                f"{network.name} changes its attribute {changed[0]!r} in each call, and all peers share what an "
                f"attribute keeps: {_remedy(changed[0], now[changed[0]])}"
            )
        if isinstance(first, Tensor) and not _same(first, second):
            raise ModelError(
                f"{network.name} returns other scores when it is called again with the same weights and samples: what "
                "it keeps from call to call in an attribute is shared by all peers, so keep it in a buffer "
                "(self.register_buffer); and draw random numbers from PyTorch's own generator (torch.rand)"
            )


def _remedy(name: str, state: object) -> str:
    if not isinstance(state, int | float | complex):
        return "draw random numbers from PyTorch's own generator, torch.rand without generator="
    return f"keep the number in a buffer, self.register_buffer({name.rpartition('.')[2]!r}, torch.zeros(()))"


def _foreign_generators() -> dict[str, Any]:
    """The state of the generators of random numbers that a network may draw from, and that have no seed here."""
    kind, keys, *rest = np.random.get_state()
    return {"Python's module random": random.getstate(), "NumPy": (kind, np.asarray(keys).tobytes(), *rest)}


def _kept(module: nn.Module) -> dict[str, object]:
    """The numbers, and the states of generators, in attributes of a module and its parts, by name."""
    found: dict[str, object] = {}
    for name, part in module.named_modules():
        for attribute, value in vars(part).items():
            if (state := _state(value)) is not None:
                found[f"{name}.{attribute}".lstrip(".")] = state
    return found


def _state(value: object) -> object:
    """What to compare; None for anything but a number or a generator."""
    if isinstance(value, int | float | complex):
        return value
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    return None


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)

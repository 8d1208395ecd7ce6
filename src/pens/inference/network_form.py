# SPDX-License-Identifier: Apache-2.0
"""Which network a run trained, and on what inputs: enough to build it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pens.data.samples import Array, Samples, check_finite
from pens.errors import DataError, ModelError
from pens.hooks import calling
from pens.nets import net_factory, with_sizes, without_nested_tensors
from pens.settings.schema import SettingsTree

_KNOWN = {"digits": (1, 8, 8), "fashion-mnist": (1, 28, 28), "cifar-10": (3, 32, 32)}

Model = Callable[..., nn.Module]


@dataclass(frozen=True)
class NetworkForm:
    """The network of a run and the form of its inputs."""

    net: str
    """The setting `net`; empty for a network of the user's own."""
    dataset: str
    sample_shape: tuple[int, ...]
    num_classes: int
    whole: bool = False
    """Whether inputs are whole numbers (tokens), as opposed to real ones."""
    task: str = "classification"
    """The setting `task`."""
    class_names: tuple[str, ...] = ()
    """The names of the classes, where labels were texts."""
    factory: Model | None = field(default=None, compare=False, repr=False)
    """Makes the user's own network, where the run was computed in this process."""

    @staticmethod
    def of(
        settings: SettingsTree,
        num_classes: int,
        shown: Samples,
        model: Model | None,
        class_names: Sequence[str] = (),
    ) -> NetworkForm:
        """That of a run with these settings. `shown`: some of its samples; `model`: the user's own network."""
        return NetworkForm(
            "" if model else settings.model.net,
            settings.data.source,
            tuple(shown.x.shape[1:]),
            num_classes,
            bool(np.issubdtype(shown.x.dtype, np.integer)),
            settings.model.task,
            tuple(class_names),
            model,
        )

    @staticmethod
    def of_older(settings: SettingsTree, own_parts: Sequence[str]) -> NetworkForm | None:
        """That of a run whose record does not tell it; None where the data are the user's own, or not one of those
        that older versions had."""
        shape = _KNOWN.get(settings.data.source)
        if shape is None or "data" in own_parts:
            return None
        return NetworkForm("" if "model" in own_parts else settings.model.net, settings.data.source, shape, 10)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> NetworkForm:
        listed = {"sample_shape": tuple(data["sample_shape"]), "class_names": tuple(data.get("class_names", ()))}
        return NetworkForm(**{**data, **listed})

    def to_json(self) -> dict[str, Any]:
        return asdict(replace(self, factory=None), dict_factory=lambda items: dict(items[:-1]))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "factory": None}  # a user's function may not be one that can be pickled

    def example(self, samples: int) -> Tensor:
        """Inputs of the right form: random ones, or tokens 0 and 1.  [sample, *sample_shape]"""
        generator = torch.Generator().manual_seed(samples)
        shape = (samples, *self.sample_shape)
        return torch.randint(2, shape, generator=generator) if self.whole else torch.randn(shape, generator=generator)

    def inputs(self, x: object, as_real: bool = False) -> Array:
        """Inputs as the network takes them, checked. `as_real`: whole numbers become real ones.
        [sample, *sample_shape]"""
        given = _numbers(x)
        if given.shape == self.sample_shape:
            raise DataError(f"inputs have shape {given.shape}, that of one sample: pass several, or x[None] for one")
        if given.shape[1:] != self.sample_shape:
            wanted = ", ".join(["sample", *map(str, self.sample_shape)])
            raise DataError(f"inputs have shape {given.shape}, but the network was trained on [{wanted}]")
        if not as_real and self.whole != (given.dtype.kind in "iu"):
            was, now = ("whole", "real") if self.whole else ("real", "whole")
            raise DataError(
                f"inputs are {now} numbers ({given.dtype}), but the network was trained on {was} ones: prepare them as "
                "the training data were"
            )
        return as_inputs(given, as_real)


def as_inputs(x: object, as_real: bool = False) -> Array:
    """Inputs as any network takes them: whole numbers (tokens) as int64 unless `as_real`, real ones as float32, all of
    them finite."""
    given = _numbers(x)
    check_finite([("the inputs", Samples(given, np.zeros(len(given), np.int64)))])
    return np.ascontiguousarray(given, np.int64 if given.dtype.kind in "iu" and not as_real else np.float32)


def _numbers(x: object) -> Array:
    given = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x)
    if given.dtype.kind not in "fiub" or not given.ndim:
        raise DataError(f"inputs of type {given.dtype}: expected numbers in an array [sample, ...]")
    return given


def module_of(form: NetworkForm | None, state: Mapping[str, Tensor], model: Model | None, whose: str) -> nn.Module:
    """A module with one peer's tested model, ready to evaluate. `model`: makes the user's own network.

    whose: the peer in words, for error messages."""
    module = without_nested_tensors(_built(form, model)).float()
    copied = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
    if any(not t.isfinite().all() for t in copied.values() if t.is_floating_point()):
        raise ModelError(f"{whose} has no model of finite numbers: a real peer that left no model has NaN in its place")
    try:
        module.load_state_dict(copied)
    except RuntimeError as error:
        raise ModelError(
            f"{type(module).__name__} is not the network of which {whose} has a model: pass the one of the run as "
            f"model=. {error}"
        ) from None
    return module.eval().requires_grad_(False)


def _built(form: NetworkForm | None, model: Model | None) -> nn.Module:
    make = model or (form.factory if form else None)
    if make is not None:
        if isinstance(make, nn.Module) or not callable(make):
            raise ModelError(f"model is a {type(make).__name__}: pass the class, or a function that makes the network")
        make = with_sizes(make, form.sample_shape, form.num_classes) if form else make
        with calling("model", make, "call"):
            module = make()
        if not isinstance(module, nn.Module):
            raise ModelError(f"model makes a {type(module).__name__}: it has to make an nn.Module")
        return module
    if form is None or not form.net:
        which = "is the user's own" if form else "is not on record"
        raise ModelError(f"the network of this run {which}: pass model=, the class or function that the run was given")
    return net_factory(form.net, form.dataset, form.sample_shape, form.num_classes)()

# SPDX-License-Identifier: Apache-2.0
"""The built-in networks, each a plain nn.Module: those of the paper (section 5.2), one of other papers on decentralised
learning, and small ones for digits and tables."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from pens import parts
from pens.errors import ModelError, SettingsError

NetFactory = Callable[[], nn.Module]


class PaperCNN(nn.Module):
    """Section 5.2: three 3 × 3 convolutions (32, 64, 64 channels), each with ReLU and 2 × 2 max pooling, no padding;
    one hidden layer of 64 units; softmax is part of the loss.

    73,418 parameters for 3 × 32 × 32 images (CIFAR-10), 60,554 for 1 × 28 × 28 (Fashion-MNIST).
    """

    def __init__(self, channels: int, side: int, num_classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_conv_block(channels, 32),
            *_conv_block(32, 64),
            *_conv_block(64, 64),
            nn.Flatten(),
        )
        for _ in range(3):
            side = (side - 2) // 2
        self.classifier = nn.Sequential(nn.Linear(64 * side * side, 64), nn.ReLU(), nn.Linear(64, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        """images [batch, channel, height, width] → logits [batch, class]"""
        logits: Tensor = self.classifier(self.features(images))
        return logits


class GNLeNet(nn.Module):
    """GN-LeNet, the network of Epidemic Learning and FACADE on CIFAR-10: three padded 5 × 5 convolutions (32, 32, 64
    channels), each with group normalisation in two groups, ReLU and 2 × 2 max pooling; one linear layer.

    89,834 parameters for 3 × 32 × 32 images and ten classes.
    """

    def __init__(self, channels: int, side: int, num_classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_group_normalised_block(channels, 32),
            *_group_normalised_block(32, 32),
            *_group_normalised_block(32, 64),
            nn.Flatten(),
        )
        self.classifier = nn.Linear(64 * (side // 8) ** 2, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """images [batch, channel, height, width] → logits [batch, class]"""
        logits: Tensor = self.classifier(self.features(images))
        return logits


class DigitsCNN(nn.Module):
    """A small network for 8 × 8 digits: two padded convolutions (16, 32 channels), one hidden layer of 32 units.

    `normalised`: with batch normalisation after each convolution, for methods that are about it.
    """

    def __init__(self, channels: int = 1, side: int = 8, num_classes: int = 10, normalised: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_conv_block(channels, 16, 1, normalised),
            *_conv_block(16, 32, 1, normalised),
            nn.Flatten(),
            nn.Linear(32 * (side // 4) ** 2, 32),
            nn.ReLU(),
            nn.Linear(32, num_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """images [batch, channel, height, width] → logits [batch, class]"""
        logits: Tensor = self.layers(images)
        return logits


class MLP(nn.Module):
    """Two hidden layers of 64 units, for tables and other inputs that are no images."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(num_inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, num_outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, ...] → outputs [batch, output]"""
        outputs: Tensor = self.layers(x)
        return outputs


def net_factory(name: str, dataset: str, sample_shape: tuple[int, ...], num_classes: int) -> NetFactory:
    """A function that makes new networks for samples of a shape.

    `auto`: the paper's network for images of its size, a small one for smaller images, and an MLP for other inputs.
    A reference, or the name of an installed package's network, stands for a class or function; it is given `shape` and
    `num_classes` where it has arguments of these names.
    """
    name = _fitting(sample_shape) if name == "auto" else name
    place = name if parts.is_reference(name) else parts.offered("pens.networks").get(name)
    if place:
        return _own_factory(place, sample_shape, num_classes)
    if name == "mlp":
        return lambda: MLP(math.prod(sample_shape), num_classes)
    if name not in _NETS:
        known = ", ".join(("auto", "mlp", *_NETS, *sorted(parts.offered("pens.networks"))))
        raise SettingsError(
            f"unknown net {name!r}: choose from {known}, name your own as file.py:Name, or pass an nn.Module as `model`"
        )
    smallest, make = _NETS[name]
    if len(sample_shape) != 3 or sample_shape[1] != sample_shape[2] or sample_shape[1] < smallest:
        raise SettingsError(
            f"net {name} needs square images [channel, side, side] of at least {smallest} pixels a side, "
            f"but samples have shape {sample_shape}: choose another net, or pass your own nn.Module as `model`"
        )
    channels, side = sample_shape[0], sample_shape[1]
    return lambda: make(channels, side, num_classes)


def _fitting(shape: tuple[int, ...]) -> str:
    """The name of a network for samples of a shape."""
    if len(shape) != 3 or shape[1] != shape[2] or shape[1] < _NETS["digits-cnn"][0]:
        return "mlp"
    return "paper-cnn" if shape[1] >= _NETS["paper-cnn"][0] else "digits-cnn"


def _own_factory(place: str, shape: tuple[int, ...], num_classes: int) -> NetFactory:
    make = parts.load_function(place, "net")
    return partial(make, **_sizes(shape, num_classes, _arguments(make)))


def with_sizes(make: NetFactory, shape: tuple[int, ...], num_classes: int) -> NetFactory:
    """A user's class or function, given `shape` and `num_classes` where it needs arguments of these names."""
    sizes = _sizes(shape, num_classes, _needed(make))
    return partial(make, **sizes) if sizes else make


def needs_num_classes(make: NetFactory) -> bool:
    """Whether a user's class or function is to be told the number of classes."""
    return "num_classes" in _needed(make)


def _needed(make: NetFactory) -> list[str]:
    return [name for name, of in _arguments(make).items() if of.default is inspect.Parameter.empty]


def _sizes(shape: tuple[int, ...], num_classes: int, wanted: Container[str]) -> dict[str, Any]:
    known = {"shape": shape, "num_classes": num_classes}
    return {name: value for name, value in known.items() if name in wanted}


def _arguments(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    if isinstance(make, nn.Module):
        raise ModelError(
            f"model is a network that is made already, of type {type(make).__name__}: give its class, or a function "
            "that makes it, since many are made"
        )
    try:
        return inspect.signature(make).parameters
    except (TypeError, ValueError):  # a class whose signature Python does not tell
        return {}


def without_nested_tensors(module: nn.Module) -> nn.Module:
    """A module whose encoders of transformers compute what stands at padded positions in evaluation as in training.
    PyTorch would by default give zeros there in evaluation alone, by nested tensors, with a warning."""
    for part in module.modules():
        if isinstance(part, nn.TransformerEncoder):
            part.use_nested_tensor = False
    return module


def _conv_block(inputs: int, outputs: int, padding: int = 0, normalised: bool = False) -> list[nn.Module]:
    norms = [nn.BatchNorm2d(outputs)] if normalised else []
    return [nn.Conv2d(inputs, outputs, 3, padding=padding), *norms, nn.ReLU(), nn.MaxPool2d(2)]


def _group_normalised_block(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 5, padding=2), nn.GroupNorm(2, outputs), nn.ReLU(), nn.MaxPool2d(2)]


_NETS: dict[str, tuple[int, Callable[[int, int, int], nn.Module]]] = {
    "paper-cnn": (22, PaperCNN),
    "digits-cnn": (4, DigitsCNN),
    "gn-lenet": (8, GNLeNet),
    "digits-cnn-bn": (4, partial(DigitsCNN, normalised=True)),
}

# SPDX-License-Identifier: Apache-2.0
"""The built-in networks, each a plain nn.Module: those of the paper (section 5.2), and a small one for digits."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from pens.errors import SettingsError

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


class DigitsCNN(nn.Module):
    """A small network for 8 × 8 digits: two padded convolutions (16, 32 channels), one hidden layer of 32 units."""

    def __init__(self, channels: int = 1, side: int = 8, num_classes: int = 10) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_conv_block(channels, 16, padding=1),
            *_conv_block(16, 32, padding=1),
            nn.Flatten(),
            nn.Linear(32 * (side // 4) ** 2, 32),
            nn.ReLU(),
            nn.Linear(32, num_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """images [batch, channel, height, width] → logits [batch, class]"""
        logits: Tensor = self.layers(images)
        return logits


def net_factory(name: str, dataset: str, sample_shape: tuple[int, ...], num_classes: int) -> NetFactory:
    """A function that makes new networks for images of a shape. `auto`: the paper's, or for digits a small one."""
    if name == "auto":
        name = "digits-cnn" if dataset == "digits" else "paper-cnn"
    if name not in _NETS:
        raise SettingsError(
            f"unknown net {name!r}: choose from auto, {', '.join(_NETS)}, or pass your own nn.Module as `model`"
        )
    smallest, make = _NETS[name]
    if len(sample_shape) != 3 or sample_shape[1] != sample_shape[2] or sample_shape[1] < smallest:
        raise SettingsError(
            f"net {name} needs square images [channel, side, side] of at least {smallest} pixels a side, "
            f"but samples have shape {sample_shape}: choose another net, or pass your own nn.Module as `model`"
        )
    channels, side = sample_shape[0], sample_shape[1]
    return lambda: make(channels, side, num_classes)


def _conv_block(inputs: int, outputs: int, padding: int = 0) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=padding), nn.ReLU(), nn.MaxPool2d(2)]


_NETS: dict[str, tuple[int, Callable[[int, int, int], nn.Module]]] = {
    "paper-cnn": (22, PaperCNN),
    "digits-cnn": (4, DigitsCNN),
}

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch
from torch import nn

from pens.errors import ModelError, SettingsError
from pens.nets import net_factory, with_sizes


@pytest.mark.parametrize(
    ("dataset", "shape", "parameters"),
    [("cifar-10", (3, 32, 32), 73_418), ("fashion-mnist", (1, 28, 28), 60_554), ("digits", (1, 8, 8), 9_258)],
)
def test_networks_have_the_papers_size(dataset: str, shape: tuple[int, ...], parameters: int) -> None:
    net = net_factory("auto", dataset, shape, 10)()
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert net(torch.zeros(2, *shape)).shape == (2, 10)


def test_the_papers_network_layer_by_layer() -> None:
    """Section 5.2: three convolutions of 32, 64 and 64 channels and kernel size 3, each with ReLU and followed by max
    pooling, a hidden layer of 64 units with ReLU, an output layer. CIFAR-10: 32 → 30 → 15 → 13 → 6 → 4 → 2 pixels."""
    net = net_factory("auto", "cifar-10", (3, 32, 32), 10)()
    layers = [layer for layer in net.modules() if not list(layer.children())]
    convolution = ["Conv2d", "ReLU", "MaxPool2d"]
    assert [type(layer).__name__ for layer in layers] == [*convolution * 3, "Flatten", "Linear", "ReLU", "Linear"]
    convolutions = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels) for c in convolutions] == [(3, 32), (32, 64), (64, 64)]
    assert {(c.kernel_size, c.stride, c.padding) for c in convolutions} == {((3, 3), (1, 1), (0, 0))}
    assert {layer.kernel_size for layer in layers if isinstance(layer, nn.MaxPool2d)} == {2}
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(64 * 2 * 2, 64), (64, 10)]


def test_gn_lenet_layer_by_layer() -> None:
    """Three padded 5 × 5 convolutions of 32, 32 and 64 channels, normalised in two groups before ReLU and pooling, and
    one linear layer: 2,432 + 25,632 + 51,264 + 2 · 128 + 10,250 = 89,834 parameters."""
    net = net_factory("gn-lenet", "cifar-10", (3, 32, 32), 10)()
    layers = [layer for layer in net.modules() if not list(layer.children())]
    block = ["Conv2d", "GroupNorm", "ReLU", "MaxPool2d"]
    assert [type(layer).__name__ for layer in layers] == [*block * 3, "Flatten", "Linear"]
    assert [layer.num_groups for layer in layers if isinstance(layer, nn.GroupNorm)] == [2, 2, 2]
    assert sum(p.numel() for p in net.parameters()) == 89_834
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_the_network_with_batch_normalisation_is_the_one_for_digits_with_two_layers_more() -> None:
    """A scale and a shift for each of 16 and 32 channels, after the convolutions."""
    plain, normalised = (net_factory(name, "digits", (1, 8, 8), 10)() for name in ("digits-cnn", "digits-cnn-bn"))
    layers = [type(layer).__name__ for layer in normalised.modules() if not list(layer.children())]
    block = ["Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d"]
    assert layers == [*block * 2, "Flatten", "Linear", "ReLU", "Linear"]
    counts = [sum(p.numel() for p in net.parameters()) for net in (plain, normalised)]
    assert counts[1] - counts[0] == 2 * (16 + 32)


def test_images_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingsError, match="at least 22 pixels"):
        net_factory("paper-cnn", "digits", (1, 8, 8), 10)
    with pytest.raises(SettingsError, match="square images"):
        net_factory("paper-cnn", "own", (7,), 10)
    with pytest.raises(SettingsError, match="unknown net"):
        net_factory("resnet", "digits", (1, 8, 8), 10)


def test_a_network_that_is_made_already_is_refused() -> None:
    with pytest.raises(ModelError, match=r"made already, of type Linear: give its class, or a function that makes it"):
        with_sizes(nn.Linear(2, 2), (2,), 2)


def test_the_smallest_images_that_fit_do_fit() -> None:
    for name, side in (("paper-cnn", 22), ("digits-cnn", 4), ("digits-cnn-bn", 4), ("gn-lenet", 8)):
        assert net_factory(name, "own", (1, side, side), 4)()(torch.zeros(1, 1, side, side)).shape == (1, 4)

from __future__ import annotations

import pytest
import torch

from pens.errors import SettingsError
from pens.nets import net_factory


@pytest.mark.parametrize(
    ("dataset", "shape", "parameters"),
    [("cifar-10", (3, 32, 32), 73_418), ("fashion-mnist", (1, 28, 28), 60_554), ("digits", (1, 8, 8), 9_258)],
)
def test_networks_have_the_papers_size(dataset: str, shape: tuple[int, ...], parameters: int) -> None:
    net = net_factory("auto", dataset, shape, 10)()
    assert sum(p.numel() for p in net.parameters()) == parameters
    assert net(torch.zeros(2, *shape)).shape == (2, 10)


def test_images_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingsError, match="at least 22 pixels"):
        net_factory("paper-cnn", "digits", (1, 8, 8), 10)
    with pytest.raises(SettingsError, match="square images"):
        net_factory("auto", "own", (7,), 10)
    with pytest.raises(SettingsError, match="unknown net"):
        net_factory("resnet", "digits", (1, 8, 8), 10)


def test_the_smallest_images_that_fit_do_fit() -> None:
    for name, side in (("paper-cnn", 22), ("digits-cnn", 4)):
        assert net_factory(name, "own", (1, side, side), 4)()(torch.zeros(1, 1, side, side)).shape == (1, 4)

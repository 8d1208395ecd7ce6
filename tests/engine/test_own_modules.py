# SPDX-License-Identifier: Apache-2.0
"""Modules of the user's own: those that cannot be rows of numbers are refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pens.data.samples import Samples
from pens.engine.batches import SampleStack
from pens.engine.functional import StackedNetwork
from pens.engine.own_modules import made
from pens.errors import ModelError
from pens.nets import NetFactory
from tests.engine.test_training import CPU, RECIPES, assert_same_training, holders


def hooked(after: bool) -> nn.Module:
    layer = nn.Linear(64, 10)
    if after:
        layer.weight.register_post_accumulate_grad_hook(lambda _: None)  # type: ignore[no-untyped-call]
    else:
        layer.weight.register_hook(lambda gradient: gradient / 2)  # type: ignore[no-untyped-call]
    return nn.Sequential(nn.Flatten(), layer)


REFUSED: dict[str, tuple[NetFactory, str]] = {
    "hook": (lambda: hooked(False), r"'1.weight' of Sequential has a hook.*\(1 - mask\) \* weight.detach\(\)"),
    "hook behind": (lambda: hooked(True), r"'1.weight' of Sequential has a hook"),
    "devices": (lambda: nn.DataParallel(nn.Linear(64, 10)), r"model is nn.DataParallel.*pass the module within it"),
    "inner devices": (lambda: nn.Sequential(nn.DataParallel(nn.Linear(64, 10))), r"layer '0' is nn.DataParallel"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_no_plain_module_is_refused(name: str) -> None:
    factory, reason = REFUSED[name]
    with pytest.raises(ModelError, match=reason):
        made(factory)


def test_first_weights_come_from_the_seed_alone() -> None:
    def make() -> nn.Module:
        layer = nn.Linear(64, 10)
        layer.bias.data = torch.from_numpy(np.random.rand(10))
        return nn.Sequential(nn.Flatten(), layer)

    with pytest.raises(ModelError, match=r"other first weights when it is made again with the same seed.*torch.randn"):
        StackedNetwork(make, holders((3,)).x[0], 10, stacked=False)


class Reviews(nn.Module):
    """An encoder with PyTorch's defaults, and the mean over all positions, those of padding included."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.table, self.encoder, self.out = nn.Embedding(6, 8), nn.TransformerEncoder(layer, 1), nn.Linear(8, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        words: Tensor = self.encoder(self.table(tokens), src_key_padding_mask=torch.eq(tokens, 0))
        logits: Tensor = self.out(words.mean(1))
        return logits


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, norm_first=True, batch_first=True), 1)


def test_what_a_factory_warns_of_is_told_once_and_advice_on_nested_tensors_never() -> None:
    def make() -> nn.Module:
        warnings.warn("of the user's own", stacklevel=1)
        return nn.Linear(3, 3)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        made(encoder, like=made(encoder))
        module = made(make)
        for _ in range(5):
            made(make, like=module)
    assert len({str(one.message) for one in told}) == 1
    assert len(told) == 2  # before it is known what is made, and after


def test_padded_positions_are_the_same_in_training_and_evaluation() -> None:
    generator = np.random.default_rng(0)
    parts = [Samples(generator.integers(1, 6, (n, 5)), generator.integers(0, 10, n)) for n in (8, 5)]
    for part in parts:
        part.x[3:, 3:] = 0  # the first samples, on which a network is tried out, have no padding
    data = SampleStack(parts, CPU)
    assert_same_training(Reviews, data, RECIPES[2])  # warnings are errors here
    plain, ours = Reviews(), made(Reviews)
    ours.load_state_dict(plain.state_dict())
    expected = plain.train()(data.x[0])
    with torch.no_grad():
        torch.testing.assert_close(ours.eval()(data.x[0]), expected)

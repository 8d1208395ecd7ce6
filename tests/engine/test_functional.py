# SPDX-License-Identifier: Apache-2.0
"""What a stack of models can run, and what it refuses with a reason."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pens.engine.functional import StackedNetwork
from pens.errors import ModelError
from pens.nets import NetFactory
from tests.engine.networks import IMAGE_NETWORKS, Residual, RunningScale, Tied

IMAGES = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))


class OwnNoise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(x.flatten(1) + torch.randn_like(x.flatten(1)))
        return logits


class DecidesOnValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(x.flatten(1))
        return logits if self.out.weight.sum() > 0 else -logits


class CountsInIntegers(nn.Module):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        logits: Tensor = self.out(x.flatten(1))
        return logits


class OwnBatchNorm(nn.Module):
    """Normalises by the statistics of the batch in code of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        centred = x.flatten(1) - x.flatten(1).mean(0)
        logits: Tensor = self.out(centred / (1e-5 + centred.square().mean(0)).sqrt())
        return logits


class DecidesInEvaluation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(x.flatten(1))
        return logits if self.training or self.out.weight.sum() > 0 else -logits


class WithoutValue(nn.Module):
    """0 / 0, in training or in evaluation."""

    def __init__(self, when: bool) -> None:
        super().__init__()
        self.out, self.when = nn.Linear(64, 10), when

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(x.flatten(1))
        return logits * (torch.zeros(1) / 0) if self.training is self.when else logits


class RulesOut(nn.Module):
    """Scores of −∞ for classes that are ruled out."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(x.flatten(1))
        return logits.masked_fill(torch.arange(10) > 6, -torch.inf)


class FunctionalDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(F.dropout(x.flatten(1), 0.5, self.training))
        return logits


def sequence(*layers: nn.Module, features: int = 64) -> NetFactory:
    return lambda: nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 10))


REFUSED: dict[str, tuple[NetFactory, str]] = {
    "own batch norm": (OwnBatchNorm, r"nn.BatchNorm2d .*alone"),
    "own batch norm, dropout": (sequence(nn.Dropout(0.5), OwnBatchNorm(), features=10), r"GroupNorm"),
    "synchronised batch norm": (
        sequence(nn.Conv2d(1, 2, 3), nn.SyncBatchNorm(2), features=72),
        r"'1' is nn.SyncBatchNorm, .* use nn.BatchNorm1d",
    ),
    "wrong shape": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(63, 10)), r"does not run on samples of shape"),
    "too few classes": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 9)), r"at least 10 class scores"),
    "no batch": (lambda: nn.Sequential(nn.Flatten(0), nn.Linear(192, 10)), r"does not run|one row"),
    "nothing to train": (lambda: nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(10)), r"no parameters to train"),
    "own noise": (OwnNoise, r"cannot run as a stack .*"),
    "decides on values": (DecidesOnValues, r'overrides=\{"backend": "loop"\}'),
    "decides on values in evaluation": (DecidesInEvaluation, r"cannot run as a stack .*"),
    "NaN in training": (lambda: WithoutValue(True), r"returns NaN for finite inputs before any training"),
    "NaN in evaluation": (lambda: WithoutValue(False), r"returns NaN for finite inputs before any training"),
    "integer counter": (CountsInIntegers, r"integer buffer 'calls'"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_a_stack_cannot_do_is_refused_with_a_reason(name: str) -> None:
    factory, reason = REFUSED[name]
    with pytest.raises(ModelError, match=reason):
        StackedNetwork(factory, IMAGES, 10)


def test_mixing_is_found_behind_a_networks_own_noise_too() -> None:
    class Mixing(FunctionalDropout):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x - x.mean(0))

    with pytest.raises(ModelError, match="mixes the samples"):
        StackedNetwork(Mixing, IMAGES, 10, stacked=False)


@pytest.mark.parametrize("factory", [OwnNoise, DecidesOnValues])
def test_what_only_a_stack_cannot_do_runs_in_the_loop(factory: NetFactory) -> None:
    StackedNetwork(factory, IMAGES, 10, stacked=False)


@pytest.mark.parametrize("when", [True, False], ids=["training", "evaluation"])
def test_a_network_without_values_is_refused_in_the_loop_too(when: bool) -> None:
    with pytest.raises(ModelError, match="returns NaN"):
        StackedNetwork(lambda: WithoutValue(when), IMAGES, 10, stacked=False)


def test_infinite_scores_are_no_reason_to_refuse() -> None:
    StackedNetwork(RulesOut, IMAGES, 10)


@pytest.mark.parametrize("name", list(IMAGE_NETWORKS))
def test_a_row_holds_a_whole_model(name: str) -> None:
    network = StackedNetwork(IMAGE_NETWORKS[name], IMAGES, 10)
    torch.manual_seed(5)
    module = IMAGE_NETWORKS[name]()
    row = network.row_of(module)
    assert row.shape == (network.size,)
    assert torch.equal(network.new_row(5), row)
    copy = IMAGE_NETWORKS[name]()
    copy.load_state_dict({n: t[0] for n, t in network.state(row[None]).items()})
    shared = {n: t for n, t in copy.state_dict().items() if n not in network.tensors(row)}
    module.load_state_dict(shared, strict=False)  # what is frozen is the same for all
    module.eval(), copy.eval()
    torch.testing.assert_close(copy(IMAGES), module(IMAGES))


def test_unused_parameters_travel_and_frozen_ones_do_not() -> None:
    network = StackedNetwork(Residual, IMAGES, 10)
    trained = {place.name for place in network.stored.trained}
    assert trained == {"first.weight", "second.weight", "second.bias", "out.weight", "out.bias"}
    kept = {place.name for place in network.stored.kept}
    assert kept == {"unused.weight", "unused.bias", "scale"}


def test_shared_parameters_are_one() -> None:
    network = StackedNetwork(Tied, IMAGES, 10)
    assert network.size == sum(p.numel() for p in Tied().parameters())


def test_buffers_that_training_moves_are_part_of_the_model() -> None:
    network = StackedNetwork(RunningScale, IMAGES, 10)
    rows = torch.stack([network.new_row(s) for s in (1, 2)])
    tensors = network.tensors(rows)
    network.logits(tensors, IMAGES.expand(2, -1, -1, -1, -1), torch.zeros(2, dtype=torch.int64), train=True)
    assert tensors["steps"].flatten().tolist() == [1, 1]
    assert tensors["level"][0] != tensors["level"][1]
    before = rows.clone()
    network.logits(tensors, IMAGES.expand(2, -1, -1, -1, -1), torch.zeros(2, dtype=torch.int64), train=False)
    assert torch.equal(rows, before)


def test_initialisation_leaves_the_global_generator_alone() -> None:
    network = StackedNetwork(IMAGE_NETWORKS["linear"], IMAGES, 10)
    before = torch.get_rng_state()
    network.new_row(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_may_be_used_often_and_one_layer_twice() -> None:
    shared = nn.Dropout(0.4)
    deep = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Dropout(0.2))]
    network = StackedNetwork(
        lambda: nn.Sequential(nn.Flatten(), shared, nn.Linear(64, 64), shared, *deep, nn.Linear(64, 10)), IMAGES, 10
    )
    rows = network.new_row(0).expand(2, -1)
    x = IMAGES.expand(2, -1, -1, -1, -1)
    one, two = network.logits(network.tensors(rows), x, torch.tensor([1, 2]), train=True)
    assert not torch.equal(one, two)


def test_the_loop_draws_a_networks_own_noise_from_the_key() -> None:
    network = StackedNetwork(FunctionalDropout, IMAGES, 10, stacked=False)
    tensors = network.tensors(network.new_row(0))
    one, again, other = (network.single(tensors, IMAGES, torch.tensor(k), train=True) for k in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)

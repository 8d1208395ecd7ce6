# SPDX-License-Identifier: Apache-2.0
"""What trials find in unusual networks: each trains as a stack like alone, or is refused with a reason that helps."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, weight_norm
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from pens.data.samples import Samples
from pens.engine.batches import SampleStack
from pens.engine.functional import StackedNetwork
from pens.engine.training import LoopEngine
from pens.errors import ModelError, PensWarning
from pens.nets import NetFactory
from tests.engine.networks import freeze
from tests.engine.test_training import CPU, RECIPES, assert_same_training, holders, train

DATA = holders((10, 3, 7))


class Net(nn.Module):
    """Layers, a function of what they return, and a last layer."""

    def __init__(self, function: Callable[[Tensor], Tensor], *layers: nn.Module, features: int = 64) -> None:
        super().__init__()
        self.layers, self.function, self.out = nn.Sequential(*layers), function, nn.Linear(features, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.function(self.layers(x)))
        return logits


def hooked(x: Tensor) -> Tensor:
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient / 2)  # type: ignore[no-untyped-call]
    return x


class StepsFirst(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x.flatten(1, 2).transpose(0, 1), 0.4, self.training).mean(0)


class Packed(nn.Module):
    """A recurrent layer on packed sequences."""

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__()
        self.layer = nn.GRU(*sizes, **options)

    def forward(self, x: Tensor) -> Any:
        lengths = torch.full((len(x),), 8)
        return self.layer(pack_padded_sequence(x.flatten(1, 2), lengths, batch_first=True))[1][-1]


class RemembersMeans(nn.Module):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().flatten(1).mean(0)
        return x.flatten(1)


class Frames(nn.Module):
    """Normalises the rows of all images as one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.normal = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        normal: Tensor = self.normal(x.reshape(-1, 8))
        return normal.reshape(len(x), -1)


class ByValue(nn.Module):
    """One of two layers for each sample, by the sample: the second for samples behind the first ones."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.first = DATA.x[0, :first, 0, 0, 0].tolist()
        self.often, self.seldom = nn.Linear(64, 10), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([(self.often if one[0].item() in self.first else self.seldom)(one) for one in x.flatten(1)])


class Renormalised(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.div_(torch.linalg.vector_norm(self.weight))
        return super().forward(x)


STACK_REFUSES: dict[str, tuple[NetFactory, str]] = {
    "noise of a layer": (lambda: Net(nn.Flatten(), nn.AlphaDropout(0.2)), r"layer 'layers.0' \(AlphaDropout\): draws"),
    "unknown to vmap": (lambda: Net(nn.Flatten(), nn.RReLU()), r"layer 'layers.0' \(RReLU\): calls aten::rrelu"),
    "mask for an index": (lambda: Net(lambda x: x.flatten(1) + x[x > 0].numel() * 0), "shape depends on values"),
    "frames": (lambda: Net(nn.Flatten(), Frames()), r"nn.BatchNorm1d gets \d+ inputs for \d+ samples"),
    "hook": (
        lambda: Net(hooked, nn.Flatten(), nn.Linear(64, 8), features=8),
        r"gives other results as a stack of models than alone \(gradient of layers.1",
    ),
    "mean in a buffer": (lambda: Net(nn.Flatten(), RemembersMeans()), r"do not count.* \(layers.0.mean\)"),
    "steps first": (lambda: Net(nn.Identity(), StepsFirst(), features=8), r"batch_first=True"),
    "weights changed in forward": (
        lambda: nn.Sequential(nn.Flatten(), Renormalised(64, 10)),
        r"changes its weights '1.weight' in forward",
    ),
    "chosen by values": (lambda: ByValue(2), "takes a number out of a tensor"),
    "packed": (lambda: Net(nn.Identity(), Packed(8, 6, batch_first=True), features=6), "nn.GRU gets a PackedSequence"),
    "remembering instance norm": (
        lambda: Net(nn.Flatten(), nn.InstanceNorm2d(1, track_running_stats=True)),
        r"layer 'layers.0' \(nn.InstanceNorm2d\) has track_running_stats",
    ),
}


@pytest.mark.parametrize("name", list(STACK_REFUSES))
def test_what_a_stack_cannot_do_is_refused_and_the_remedy_works(name: str) -> None:
    factory, reason = STACK_REFUSES[name]
    with pytest.raises(ModelError, match=rf'(?s){reason}.*overrides=\{{"backend": "loop"\}}'):
        StackedNetwork(factory, DATA.x[0, :3], 10)
    loop = LoopEngine(StackedNetwork(factory, DATA.x[0, :3], 10, stacked=False))
    assert np.isfinite(train(loop, DATA, RECIPES[0], 1).loss).all()


def test_the_loop_trains_layers_that_a_trial_did_not_use() -> None:
    network = StackedNetwork(lambda: ByValue(3), DATA.x[0, :3], 10, stacked=False)
    assert [place.name for place in network.stored.trained] == ["often.weight", "often.bias"]
    first = network.new_row(0)
    trained = LoopEngine(network).train(first[None], DATA, [0], [100], 1, RECIPES[3]).rows[0]
    for name, tensor in network.tensors(trained).items():
        assert not torch.equal(tensor, network.tensors(first)[name]), name


class ComputedAgain(nn.Module):
    """The backward pass computes a layer again, outside the call in which its weights were those of a peer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.out = nn.Sequential(nn.Linear(64, 8), nn.Tanh()), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(checkpoint(self.layers, x.flatten(1), use_reentrant=False))
        return logits


class InAList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(64, 10), nn.Linear(64, 10)
        self.weights = [self.layer.weight]

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(x.flatten(1)) + F.linear(x.flatten(1), self.weights[0])
        return logits


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.turns, self.out = nn.Parameter(torch.randn(64, dtype=torch.complex64)), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out((x.flatten(1) * self.turns).abs())
        return logits


def _old_weight_norm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(nn.Flatten(), weight_norm(nn.Linear(64, 10)))


class Squeezed(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1)).squeeze()


class Fourier(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        turned: Tensor = torch.fft.fft(super().forward(x.flatten(1)))
        return turned


class Double(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1).double())


class Assigned(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        self.weight.data = self.weight.data.clamp(-0.1, 0.1)
        return super().forward(x.flatten(1))


class InEvaluation(nn.Linear):
    """Does something else with its scores in evaluation."""

    def __init__(self, does: Callable[[Tensor], object]) -> None:
        super().__init__(64, 10)
        self.does = does

    def forward(self, x: Tensor) -> Any:
        scores = super().forward(x.flatten(1))
        return scores if self.training else self.does(scores)


class Locked(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)
        self.lock = threading.Lock()


class Breaks(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("a fault")


ALL_REFUSE: dict[str, tuple[NetFactory, str]] = {
    "computed again": (ComputedAgain, r"leave out torch.utils.checkpoint"),
    "in a list": (InAList, r"lists or closures that hold parameters"),
    "complex": (Complex, r"parameter 'turns' of Complex is complex.*view_as_complex"),
    "old weight norm": (_old_weight_norm, r"cannot be copied: .* use torch.nn.utils.parametrizations.weight_norm"),
    "packed, with dropout": (
        lambda: Net(nn.Identity(), Packed(8, 6, 2, batch_first=True, dropout=0.1), features=6),
        r"no masks from a peer's key: pass padded sequences, or set dropout = 0 and backend",
    ),
    "assigned": (lambda: Assigned(64, 10), r"assigns to the .data of its tensor 'weight'.* clamp_"),
    "complex scores": (lambda: Fourier(64, 10), r"numbers of type complex64: let forward return real"),
    "double": (
        lambda: Double(64, 10),
        r"but got: double, float.*float32 here, whatever|Double and Float.*float32 here",
    ),
    "classes in evaluation": (
        lambda: InEvaluation(lambda scores: scores.argmax(1)),
        r"shape \(3,\) of type int64 in evaluation, and shape \(3, 10\) in training",
    ),
    "pair in evaluation": (lambda: InEvaluation(lambda scores: (scores, scores)), r"returns a tuple in evaluation"),
    "fails in evaluation": (lambda: InEvaluation(lambda scores: 1 // 0), r"not run in evaluation on .* ZeroDivision"),
    "lock": (Locked, r"cannot be copied: TypeError: .* outside it, or give the module a method __deepcopy__"),
    "squeezed": (lambda: Squeezed(64, 10), r"shape \(10,\) for a batch of one sample, in place of \(1, 10\)"),
    "breaks": (
        lambda: nn.Sequential(nn.Flatten(), Breaks(64, 10)),
        r"float32: layer '1' \(Breaks\): KeyError: 'a fault'",
    ),
}


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("name", list(ALL_REFUSE))
def test_what_no_engine_can_train_is_refused(name: str, stacked: bool) -> None:
    factory, reason = ALL_REFUSE[name]
    with pytest.raises(ModelError, match=f"(?s){reason}"):
        StackedNetwork(factory, DATA.x[0, :3], 10, stacked=stacked)


class Rotary(nn.Module):
    """A constant of complex numbers, as of rotary embeddings."""

    turns: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(32), torch.arange(32.0)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(torch.view_as_complex(x.view(len(x), 32, 2)) * self.turns).flatten(1)


class FrozenMemory(nn.Module):
    """Frozen recurrent and attention layers behind one that trains, with states and masks."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(8, 8), nn.Linear(8, 10)
        self.memory = freeze(nn.LSTM(8, 8, batch_first=True))
        self.encoder = freeze(nn.TransformerEncoderLayer(8, 2, 16, 0.3, batch_first=True))

    def forward(self, x: Tensor) -> Tensor:
        words = self.into(x.flatten(1, 2))
        begin = torch.zeros(1, len(x), 8)
        words, (state, _) = self.memory(words, (begin, begin))
        seen = torch.ones(8, 8, dtype=torch.bool).triu(1)
        logits: Tensor = self.out(self.encoder(words, src_mask=seen)[:, -1] + state[-1])
        return logits


UNUSUAL: dict[str, NetFactory] = {
    "complex constant": lambda: Net(nn.Identity(), nn.Flatten(), nn.Linear(64, 64), Rotary()),
    "half precision": lambda: Net(lambda x: x.bfloat16().float(), nn.Flatten()),
    "changes its input": lambda: Net(lambda x: x.mul_(2).flatten(1)),
    "view of a convolution": lambda: Net(lambda x: x.view(len(x), -1), nn.Conv2d(1, 2, 3), features=72),
    "frozen memory": FrozenMemory,
    "weight norm": lambda: Net(nn.Flatten(), parametrizations.weight_norm(nn.Conv2d(1, 2, 3)), features=72),
}


@pytest.mark.parametrize("name", list(UNUSUAL))
def test_unusual_networks_train_as_a_stack_like_alone(name: str) -> None:
    assert_same_training(UNUSUAL[name], DATA, RECIPES[3])


def tokens() -> SampleStack:
    generator = np.random.default_rng(0)
    return SampleStack([Samples(generator.integers(0, 6, (n, 5)), generator.integers(0, 10, n)) for n in (8, 5)], CPU)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_vector_of_padding_is_not_trained(sparse: bool) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Embedding(6, 4, padding_idx=2, sparse=sparse), nn.Flatten(), nn.Linear(20, 10))

    assert_same_training(make, tokens(), RECIPES[2])
    network = StackedNetwork(make, tokens().x[0, :3], 10)
    assert network.paths()[0][2] == "its own code, under vmap, with the padding's gradient set to zero"


def test_what_pytorch_computes_model_by_model_is_told_once_and_in_our_words() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.EmbeddingBag(6, 4, padding_idx=0), nn.Linear(4, 10))

    with pytest.warns(PensWarning, match=r"model by model in a stack.*embedding_bag"):
        StackedNetwork(make, tokens().x[0, :3], 10)
    assert_same_training(make, tokens(), RECIPES[3])  # PyTorch's warnings are errors here


def test_settings_that_look_at_whole_batches_are_refused() -> None:
    layers = {"max_norm": nn.Embedding(6, 2, max_norm=1.0), "scale_grad": nn.Embedding(6, 2, scale_grad_by_freq=True)}
    for setting, layer in layers.items():
        network = nn.Sequential(layer, nn.Flatten(), nn.Linear(10, 10))
        with pytest.raises(ModelError, match=rf"'0' \(nn.Embedding\) has {setting}.*, which looks at whole"):
            StackedNetwork(lambda network=network: network, tokens().x[0, :3], 10)  # type: ignore[misc]

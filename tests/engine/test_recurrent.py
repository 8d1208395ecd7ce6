# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers train as a stack like alone, and compute what PyTorch's own compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from pens.engine.calls import Call
from pens.engine.functional import StackedNetwork
from pens.engine.recurrent import replace_recurrent
from pens.engine.training import StackEngine
from pens.errors import ModelError
from tests.engine.networks import RECURRENT_NETWORKS
from tests.engine.test_training import RECIPES, assert_same_training, engines, holders, train


@pytest.mark.parametrize("counts", [(8, 8), (10, 3, 7)], ids=["equal", "unequal"])
@pytest.mark.parametrize("name", list(RECURRENT_NETWORKS))
def test_recurrent_layers_train_as_a_stack_like_alone(name: str, counts: tuple[int, ...]) -> None:
    assert_same_training(RECURRENT_NETWORKS[name], holders(counts), RECIPES[3])


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LSTM(3, 5, 2, bidirectional=True),
        lambda: nn.LSTM(3, 5, 2, proj_size=2, batch_first=True),
        lambda: nn.GRU(3, 5, 2, bidirectional=True, batch_first=True),
        lambda: nn.RNN(3, 5, nonlinearity="relu", bias=False),
        lambda: nn.RNN(3, 5, 3, batch_first=True),
    ],
)
def test_outputs_states_and_gradients_are_pytorchs(make: Any, given: bool, single: bool) -> None:
    layer, own = make(), make()
    own.load_state_dict(layer.state_dict())
    replace_recurrent(layer, Call(stacked=True))
    x = torch.randn(*((4, 3) if single else (4, 6, 3)))
    places = own.num_layers * (1 + own.bidirectional)
    batch = () if single else (4 if own.batch_first else 6,)
    sizes = [own.proj_size or 5, 5][: 2 if isinstance(own, nn.LSTM) else 1]
    states = tuple(torch.randn(places, *batch, size) for size in sizes)
    state = (states if len(states) > 1 else states[0]) if given else None
    (out, end), (expected, expected_end) = layer(x, state), own(x, state)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(end, expected_end)
    for a, b in zip(
        *(torch.autograd.grad(o.sin().sum(), [*m.parameters()]) for o, m in ((out, layer), (expected, own))),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_no_bit_depends_on_the_cut() -> None:
    data = holders((10, 3, 7, 4))
    whole = engines(RECURRENT_NETWORKS["lstm, both ways"], data)[0]
    cut = StackEngine(whole.network, 1)
    assert torch.equal(train(whole, data, RECIPES[1]).rows, train(cut, data, RECIPES[1]).rows)


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.GRU(8, 6, batch_first=True), nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        packed = pack_padded_sequence(x.flatten(1, 2), torch.full((len(x),), 8), batch_first=True)
        logits: Tensor = self.out(self.layer(packed)[1][0])
        return logits


def test_packed_sequences_are_refused_in_a_stack() -> None:
    x = holders((3,)).x[0]
    with pytest.raises(ModelError, match=r"[Pp]acked"):
        StackedNetwork(Packed, x, 10)
    StackedNetwork(Packed, x, 10, stacked=False)

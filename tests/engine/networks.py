# SPDX-License-Identifier: Apache-2.0
"""Networks that a stack must run as if each model were alone: the paper's, and unusual ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pens.nets import DigitsCNN, GNLeNet, NetFactory


class Residual(nn.Module):
    """A skip connection, a frozen layer, a constant buffer, shapes taken from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.frozen = nn.Linear(4 * 64, 4 * 64)
        self.frozen.requires_grad_(False)
        self.unused = nn.Linear(3, 3)
        self.out = nn.Linear(4 * 64, 10)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 4 * 64))
        self.register_buffer("order", torch.arange(4 * 64).flip(0))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).relu()
        hidden = hidden + torch.tanh(self.second(hidden))
        flat = hidden.reshape(x.shape[0], -1) * self.scale
        logits: Tensor = self.out(self.frozen(flat[:, self.order]))
        return logits


class RunningScale(nn.Module):
    """A buffer that training moves: by assignment and in place, from the weights, not from the samples."""

    level: Tensor
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.register_buffer("level", torch.ones(1))
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.level = 0.9 * self.level + 0.1 * self.layer.weight.detach().abs().mean().reshape(1)
            self.steps += 1
        logits: Tensor = self.layer(x.flatten(1)) / self.level
        return logits


class Tied(nn.Module):
    """Two layers that share one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(64, 64)
        self.b = nn.Linear(64, 64)
        self.b.weight = self.a.weight
        self.out = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(torch.tanh(self.b(torch.tanh(self.a(x.flatten(1))))))
        return logits


def _head(*layers: nn.Module, features: int) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 10))


IMAGE_NETWORKS: dict[str, NetFactory] = {
    "digits": lambda: DigitsCNN(),
    "gn-lenet": lambda: GNLeNet(1, 8),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
    "strides": lambda: _head(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), features=64),
    "uneven": lambda: _head(nn.Conv2d(1, 4, (3, 2), stride=(1, 2), padding=(2, 0)), nn.GELU(), features=160),
    "dilation": lambda: _head(nn.Conv2d(1, 4, 3, dilation=2, padding=1, bias=False), nn.SiLU(), features=144),
    "groups": lambda: _head(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3, groups=2), nn.ReLU(), features=128),
    "same": lambda: _head(nn.Conv2d(1, 4, 3, padding="same"), nn.ReLU(), features=256),
    "circular": lambda: _head(nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular"), nn.ReLU(), features=256),
    "group norm": lambda: _head(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(inplace=True), features=144),
    "layer norm": lambda: nn.Sequential(nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 16), nn.ELU(), nn.Linear(16, 10)),
    "instance norm": lambda: _head(nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4, affine=True), features=144),
    "pooling": lambda: _head(nn.Conv2d(1, 4, 3), nn.AvgPool2d(2), nn.AdaptiveMaxPool2d(2), features=16),
    "dropout": lambda: nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.Dropout2d(0.3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(288, 10)
    ),
    "residual": Residual,
    "running scale": RunningScale,
    "tied": Tied,
}


class ResidualBlock(nn.Module):
    """Two convolutions with batch normalisation, and a skip connection."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out))
        self.skip = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.second(self.first(x)) + self.skip(x)
        return added.relu()


BATCH_NORM_NETWORKS: dict[str, NetFactory] = {
    "batch norm": lambda: _head(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), features=144),
    "batch norm of features": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 10)
    ),
    "batch norm of sequences": lambda: nn.Sequential(
        nn.Flatten(2), nn.Conv1d(1, 4, 5), nn.BatchNorm1d(4, momentum=0.4), nn.Flatten(), nn.Linear(240, 10)
    ),
    "batch norm of volumes": lambda: _head(
        nn.Unflatten(1, (1, 1)), nn.Conv3d(1, 3, (1, 3, 3)), nn.BatchNorm3d(3, eps=1e-3), nn.ReLU(), features=108
    ),
    "cumulative average": lambda: _head(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=None), features=144),
    "without running statistics": lambda: _head(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.ReLU(), features=144
    ),
    "without scales": lambda: _head(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, affine=False), nn.ReLU(), features=144),
    "nothing but statistics": lambda: nn.Sequential(
        nn.Flatten(), nn.BatchNorm1d(64, affine=False, track_running_stats=False), nn.Linear(64, 10)
    ),
    "dropout, batch norm": lambda: _head(
        nn.Conv2d(1, 4, 3), nn.Dropout2d(0.2), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), features=144
    ),
    "residual blocks": lambda: _head(
        ResidualBlock(1, 4, 1), nn.GroupNorm(2, 4), ResidualBlock(4, 6, 2), nn.AdaptiveAvgPool2d(1), features=6
    ),
}
"""On images of 1 × 8 × 8."""


class Sequences(nn.Module):
    """Rows of an image as the steps of a sequence, through a recurrent layer."""

    def __init__(self, layer: nn.RNNBase, features: int, given: bool = False, last: bool = False) -> None:
        """`given`: begin with a state that is made from the sample. `last`: take the last state, not the outputs."""
        super().__init__()
        self.layer, self.given, self.last = layer, given, last
        self.out = nn.Linear(features, 10)
        self.begin = nn.Linear(8, layer.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        steps, layer = x.flatten(1, 2), self.layer
        state: Any = None
        if self.given:
            begin: Tensor = self.begin(steps[:, 0]).expand(layer.num_layers * (1 + layer.bidirectional), -1, -1)
            state = (begin, begin.tanh()) if isinstance(layer, nn.LSTM) else begin
        out, end = layer(steps if layer.batch_first else steps.transpose(0, 1), state)
        end = torch.cat([*end], 0) if isinstance(layer, nn.LSTM) and self.last else end
        merged = end.transpose(0, 1).flatten(1) if self.last else out.mean(1 if layer.batch_first else 0)
        logits: Tensor = self.out(merged)
        return logits


class Cells(nn.Module):
    """A cell, called step by step in code of its own."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell, self.out = cell, nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        state: Tensor | tuple[Tensor, Tensor] | None = None
        for step in x.flatten(1, 2).unbind(1)[:4]:
            state = self.cell(step, state)
        assert state is not None
        logits: Tensor = self.out(state if isinstance(state, Tensor) else state[0])
        return logits


RECURRENT_NETWORKS: dict[str, NetFactory] = {
    "lstm": lambda: Sequences(nn.LSTM(8, 6, batch_first=True), 6),
    "lstm, steps first": lambda: Sequences(nn.LSTM(8, 6, 2), 6),
    "lstm, both ways": lambda: Sequences(nn.LSTM(8, 5, 2, batch_first=True, bidirectional=True, dropout=0.4), 10),
    "lstm, dropout, steps first": lambda: Sequences(nn.LSTM(8, 5, 3, dropout=0.3), 5),
    "lstm, projected": lambda: Sequences(nn.LSTM(8, 6, 2, batch_first=True, proj_size=4, bias=False), 8 // 2),
    "lstm, given state, last state": lambda: Sequences(nn.LSTM(8, 4, 2, bidirectional=True), 32, True, True),
    "gru": lambda: Sequences(nn.GRU(8, 6, batch_first=True), 6),
    "gru, both ways": lambda: Sequences(nn.GRU(8, 5, 2, bidirectional=True, bias=False), 10),
    "gru, given state, last state": lambda: Sequences(nn.GRU(8, 4, 2, batch_first=True, dropout=0.2), 8, True, True),
    "rnn": lambda: Sequences(nn.RNN(8, 6, 2, batch_first=True), 6),
    "rnn of relus": lambda: Sequences(nn.RNN(8, 6, nonlinearity="relu", bidirectional=True), 12, True),
    "lstm cell": lambda: Cells(nn.LSTMCell(8, 6)),
    "gru cell": lambda: Cells(nn.GRUCell(8, 6)),
    "rnn cell": lambda: Cells(nn.RNNCell(8, 6, nonlinearity="relu")),
    "lstm behind batch norm": lambda: nn.Sequential(nn.BatchNorm2d(1), Sequences(nn.LSTM(8, 6, batch_first=True), 6)),
}
"""On images of 1 × 8 × 8."""


def freeze(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False)


def _backbone() -> nn.Module:
    """Convolutions with statistics that are not those of the data, and dropout that a frozen module does not do."""
    normal = nn.BatchNorm2d(4)
    nn.init.uniform_(normal.running_mean)  # type: ignore[arg-type]
    return nn.Sequential(nn.Conv2d(1, 4, 3), normal, nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Conv2d(4, 4, 3))


class Backboned(nn.Module):
    """Layers of a frozen backbone called one by one, and a head that trains, as when the last layer is exchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.normal, self.second = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3)
        freeze(self)
        self.out = nn.Sequential(nn.Dropout(0.2), nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.second(self.normal(self.first(x)).relu()).flatten(1)
        logits: Tensor = self.out(hidden)
        return logits


class Adapted(nn.Module):
    """A frozen layer that takes the input, an adapter, and frozen layers behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.ModuleList([freeze(_backbone()), freeze(nn.GRU(16, 16, batch_first=True))])
        self.adapter, self.last = nn.Linear(16, 16), freeze(nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.backbone[0](x).flatten(2)
        hidden = hidden + torch.tanh(self.adapter(hidden))
        logits: Tensor = self.last(self.backbone[1](hidden)[0].flatten(1))
        return logits


class BesideTheBackbone(nn.Module):
    """Uses the input beside the features of the backbone, which takes it, so that they cannot replace it."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone, self.own, self.out = freeze(_backbone()), nn.Linear(64, 4), nn.Linear(68, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(torch.cat([self.backbone(x).flatten(1), self.own(x.flatten(1))], 1))
        return logits


FROZEN_NETWORKS: dict[str, NetFactory] = {
    "backbone and head": lambda: nn.Sequential(freeze(_backbone()), nn.Dropout(0.2), nn.Flatten(), nn.Linear(64, 10)),
    "exchanged last layer": Backboned,
    "adapter": Adapted,
    "beside the backbone": BesideTheBackbone,
    "backbone and batch norm": lambda: nn.Sequential(
        freeze(_backbone()), nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 10)
    ),
    "frozen bias": lambda: _head(_with_frozen_bias(nn.Conv2d(1, 4, 3)), nn.ReLU(), features=144),
    "residual": Residual,
}
"""On images of 1 × 8 × 8."""


def _with_frozen_bias(layer: nn.Conv2d) -> nn.Conv2d:
    assert layer.bias is not None
    layer.bias.requires_grad_(False)
    return layer


class Words(nn.Module):
    """Tokens in, classes out."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 6)
        self.attend = nn.MultiheadAttention(6, 2, batch_first=True)
        self.out = nn.Linear(6, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        words = self.table(tokens)
        words = words + self.attend(words, words, words, need_weights=False)[0]
        logits: Tensor = self.out(words.mean(1))
        return logits


class Tokens(nn.Module):
    """Rows of an image as tokens behind one that is learned: 17 tokens, heads of width 8, as in small transformers."""

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(1, 1, 16))
        self.into = nn.Linear(4, 16)
        self.layer = layer()
        self.out = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        words = self.into(x.reshape(len(x), 16, 4))
        words = torch.cat([self.first.expand(len(x), -1, -1), words], 1)
        logits: Tensor = self.out(self.layer(words)[:, 0])
        return logits


class OwnDropout(nn.Module):
    """Dropout by functions, of numbers and of channels."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout2d(F.dropout(x * 1, 0.3, self.training, inplace=True), 0.1, self.training)


class OwnAttention(nn.Module):
    """Attention by the function, with a causal mask and a skip connection."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.queries_keys_values = nn.Linear(16, 48)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.queries_keys_values(x).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        q, k, v = parts.flip(-2).unbind()
        drop = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=drop)
        return x + attended.flip(-2).transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    """Attention by the layer, of a sequence with itself."""

    def __init__(self, dropout: float = 0.0, weights: bool = False) -> None:
        super().__init__()
        self.attend, self.weights = nn.MultiheadAttention(16, 2, dropout, batch_first=True), weights

    def forward(self, x: Tensor) -> Tensor:
        attended: Tensor = self.attend(x, x, x, need_weights=self.weights)[0]
        return x + attended


ATTENTION_NETWORKS: dict[str, NetFactory] = {
    "encoder layer": lambda: Tokens(lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)),
    "encoder layer, norm first": lambda: Tokens(
        lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
    ),
    "encoder": lambda: Tokens(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 2)
    ),
    "attention layer": lambda: Tokens(SelfAttention),
    "attention function": lambda: Tokens(OwnAttention),
}
"""On images of 1 × 8 × 8."""

DROPPING_NETWORKS: dict[str, NetFactory] = {
    "encoder layer": lambda: Tokens(lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.3, batch_first=True)),
    "encoder": lambda: Tokens(
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 32, 0.2, batch_first=True, norm_first=True), 2, enable_nested_tensor=False
        )
    ),
    "attention layer": lambda: Tokens(lambda: SelfAttention(0.3)),
    "attention layer with weights": lambda: Tokens(lambda: SelfAttention(0.3, weights=True)),
    "attention function": lambda: Tokens(lambda: OwnAttention(0.4)),
    "dropout function": lambda: nn.Sequential(OwnDropout(), nn.Flatten(), nn.Linear(64, 10)),
    "attention, batch norm, dropout": lambda: nn.Sequential(
        nn.BatchNorm2d(1), nn.Dropout(0.1), Tokens(lambda: SelfAttention(0.3))
    ),
}
"""On images of 1 × 8 × 8: they drop numbers by functions."""


class TinySequences(nn.Module):
    """Rows of an image as steps of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.GRU(4, 5, 2, batch_first=True, dropout=0.2), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.layer(x.flatten(1, 2))[0][:, -1])
        return logits


TINY_NETWORKS: dict[str, NetFactory] = {
    "batch norm": lambda: nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3, momentum=None), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)
    ),
    "gru": lambda: TinySequences(),
    "backbone and head": lambda: nn.Sequential(
        freeze(nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU())), nn.Flatten(), nn.Linear(12, 3)
    ),
    "frozen behind an adapter": lambda: nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), freeze(nn.Conv2d(3, 3, 2)), nn.Flatten(), nn.Linear(3, 3)
    ),
}
"""On images of 1 × 4 × 4, with three classes: for whole runs."""

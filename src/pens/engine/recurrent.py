# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers in a stack of models: `nn.RNN`, `nn.LSTM`, `nn.GRU` and their cells, as matrix products per step.

PyTorch's own layers are single operations that vmap cannot run. The replacement layers compute the same recurrence
step by step: one product with the inputs of all steps, and one with the hidden state in each step. A model that runs
alone uses PyTorch's own layers, except where there is dropout between layers in training, whose masks come from the
peer's key in the loop, too, and where an LSTM has a projection, of which PyTorch warns that a CPU does it slowly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from pens.engine.calls import LOOP, Call
from pens.errors import ModelError

State = tuple[Tensor, ...]
"""The hidden state, and behind it an LSTM's cell state."""


class _Stepped(nn.RNNBase):
    """A recurrent layer, for one model alone or for a stack."""

    call: Call

    def forward(self, input: Any, hx: Any = None) -> Any:
        """input [step, batch, feature], [batch, step, feature] where `batch_first`, or without the batch
        → the outputs of all steps, and the last state, as PyTorch's layer returns them"""
        drops = self.training and self.dropout > 0 and self.num_layers > 1
        if not self.call.stacked and not drops and not self.proj_size:
            with _without_advice() if input.is_cuda else nullcontext():
                return super().forward(input, _contiguous(hx))
        if isinstance(input, PackedSequence):
            raise ModelError(f"nn.{self.mode.split('_')[0]} gets a PackedSequence, {self._why_not_packed(drops)}")
        is_single = input.dim() == 2
        x = input.unsqueeze(1) if is_single else input.transpose(0, 1) if self.batch_first else input
        states = None if hx is None else hx if self.mode == "LSTM" else (hx,)
        if states is not None and is_single:
            states = tuple(state.unsqueeze(1) for state in states)
        x, last = self._run(x, states, self.dropout if drops else 0.0)
        if is_single:
            return x.squeeze(1), _as_given(tuple(state.squeeze(1) for state in last))
        return x.transpose(0, 1) if self.batch_first else x, _as_given(last)

    def _why_not_packed(self, drops: bool) -> str:
        if drops:
            return (
                "for which its dropout between layers has no masks from a peer's key: pass padded sequences, or set "
                'dropout = 0 and backend = "loop", since its shape depends on the samples'
            )
        return (
            "whose shape depends on the samples, so that a stack of models cannot run it: pass padded sequences. "
            f"{LOOP}"
        )

    def _run(self, x: Tensor, states: State | None, drop: float) -> tuple[Tensor, State]:
        """All layers.  x [step, batch, feature] → the same, and the last states [layer × direction, batch, hidden]"""
        ends: list[State] = []
        directions = 2 if self.bidirectional else 1
        for layer in range(self.num_layers):
            if layer and drop:
                x = self._dropped(x, drop)
            outputs = []
            for direction in range(directions):
                place = layer * directions + direction
                first = None if states is None else tuple(state[place] for state in states)
                out, end = self._scan(x, first, f"l{layer}{'_reverse' if direction else ''}", bool(direction))
                outputs.append(out)
                ends.append(end)
            x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        return x, tuple(torch.stack(parts) for parts in zip(*ends, strict=True))

    def _scan(self, x: Tensor, state: State | None, name: str, backwards: bool) -> tuple[Tensor, State]:
        """One layer in one direction.  x [step, batch, feature]"""
        weights = [getattr(self, f"{part}_{name}", None) for part in ("weight_hh", "bias_hh", "weight_hr")]
        into = _product(x.flatten(0, 1), getattr(self, f"weight_ih_{name}"), getattr(self, f"bias_ih_{name}", None))
        into = into.view(*x.shape[:2], -1)
        outputs: list[Tensor] = []
        steps = range(len(x))
        for step in reversed(steps) if backwards else steps:
            state = _STEPS[self.mode](into[step], state, *weights)
            outputs.append(state[0])
        assert state is not None
        return torch.stack(outputs[::-1] if backwards else outputs), state

    def _dropped(self, x: Tensor, p: float) -> Tensor:
        """Dropout by the peer's key. Samples come first in the mask, so that padding changes no other's.
        x [step, batch, feature]"""
        if self.call.apart:
            return x
        steps, batch, features = x.shape
        keep = self.call.bits(x.numel()).view(batch, steps, features).transpose(0, 1) >= int(p * 2**32)
        return x * keep / (1 - p) if p < 1 else x * 0


class SteppedRNN(_Stepped, nn.RNN):
    """h' = tanh or relu of W x + U h + b"""


class SteppedLSTM(_Stepped, nn.LSTM):
    """With input, forget and output gates and a cell state, and a projection where `proj_size` is set."""


class SteppedGRU(_Stepped, nn.GRU):
    """With reset and update gates."""


class _SteppedCell(nn.RNNCellBase):
    """One step, for one model alone or for a stack."""

    call: Call
    mode: str

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """input [batch, feature] or [feature] → the new state, as PyTorch's cell returns it"""
        if not self.call.stacked:
            return super().forward(input, hx)
        state = None if hx is None else hx if self.mode == "LSTM" else (hx,)
        into = _product(input, self.weight_ih, self.bias_ih)
        after = _STEPS[self._kind()](into, state, self.weight_hh, self.bias_hh, None)
        return _as_given(after)

    def _kind(self) -> str:
        return f"RNN_{self.nonlinearity.upper()}" if isinstance(self, nn.RNNCell) else self.mode


class SteppedRNNCell(_SteppedCell, nn.RNNCell):
    """One step of `nn.RNN`."""

    mode = "RNN"


class SteppedLSTMCell(_SteppedCell, nn.LSTMCell):
    """One step of `nn.LSTM`."""

    mode = "LSTM"


class SteppedGRUCell(_SteppedCell, nn.GRUCell):
    """One step of `nn.GRU`."""

    mode = "GRU"


_REPLACEMENTS: dict[type[nn.Module], type[nn.Module]] = {
    nn.RNN: SteppedRNN,
    nn.LSTM: SteppedLSTM,
    nn.GRU: SteppedGRU,
    nn.RNNCell: SteppedRNNCell,
    nn.LSTMCell: SteppedLSTMCell,
    nn.GRUCell: SteppedGRUCell,
}
NAMES = tuple(layer.__name__ for layer in _REPLACEMENTS.values())


def replace_recurrent(layer: nn.Module, call: Call) -> None:
    """Exchange a recurrent layer, in place."""
    if type(layer) in _REPLACEMENTS:
        layer.__class__ = _REPLACEMENTS[type(layer)]
        layer.call = call  # type: ignore[assignment]


@contextmanager
def _without_advice() -> Iterator[None]:
    """On a GPU, PyTorch advises to lay a layer's weights in memory side by side. Here they lie in the peer's row."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
        yield


def _contiguous(hx: Any) -> Any:
    """A given state as a GPU needs it."""
    return tuple(map(_contiguous, hx)) if isinstance(hx, tuple) else hx if hx is None else hx.contiguous()


def _as_given(state: State) -> Any:
    return state[0] if len(state) == 1 else state


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    out = x @ weight.transpose(-1, -2)
    return out if bias is None else out + bias


def _sigmoid(x: Tensor) -> Tensor:
    """PyTorch's own rounds the last few numbers of a tensor otherwise on a CPU, so that a peer's bits would depend on
    how many peers are computed together."""
    return (x / 2).tanh() / 2 + 0.5


def _from_state(state: State | None, weight: Tensor, bias: Tensor | None, like: Tensor) -> Tensor:
    """What the hidden state adds to the gates; at first it is zero."""
    if state is not None:
        return _product(state[0], weight, bias)
    return torch.zeros_like(like) if bias is None else torch.zeros_like(like) + bias


def _rnn_step(activation: Callable[[Tensor], Tensor]) -> Callable[..., State]:
    def step(into: Tensor, state: State | None, weight: Tensor, bias: Tensor | None, _: Tensor | None) -> State:
        return (activation(into + _from_state(state, weight, bias, into)),)

    return step


def _lstm_step(into: Tensor, state: State | None, weight: Tensor, bias: Tensor | None, down: Tensor | None) -> State:
    i, f, g, o = (into + _from_state(state, weight, bias, into)).chunk(4, -1)
    cell = _sigmoid(i) * g.tanh()
    if state is not None:
        cell = _sigmoid(f) * state[1] + cell
    hidden = _sigmoid(o) * cell.tanh()
    return (hidden if down is None else _product(hidden, down, None)), cell


def _gru_step(into: Tensor, state: State | None, weight: Tensor, bias: Tensor | None, _: Tensor | None) -> State:
    (r, z, n), (hr, hz, hn) = into.chunk(3, -1), _from_state(state, weight, bias, into).chunk(3, -1)
    update = _sigmoid(z + hz)
    new = (n + _sigmoid(r + hr) * hn).tanh()
    return ((1 - update) * new if state is None else (1 - update) * new + update * state[0],)


_STEPS: dict[str, Callable[..., State]] = {
    "RNN_TANH": _rnn_step(torch.tanh),
    "RNN_RELU": _rnn_step(F.relu),
    "LSTM": _lstm_step,
    "GRU": _gru_step,
}

# SPDX-License-Identifier: Apache-2.0
"""Dropout that networks call as a function, or that PyTorch's attention calls, with masks from the peer's key.

`nn.Dropout` is exchanged for a layer (`pens.engine.lowering`). Dropout within attention is no layer: PyTorch's
`nn.MultiheadAttention` and `nn.TransformerEncoderLayer` call functions. While a network that draws such random numbers
runs in training, this mode answers the calls of these functions. Networks that draw none run without it, because a mode
sees every function call.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from pens.engine.calls import Call


def dropped(call: Call, x: Tensor, p: float, shape: Sequence[int]) -> Tensor:
    """x with numbers set to zero, each with probability p, and the others scaled up. `shape`: of the mask."""
    if call.apart:
        return x
    keep = call.bits(math.prod(shape))
    mask = (keep >= int(p * 2**32)).to(x.dtype).reshape(shape)
    return x * mask if p >= 1 else x * mask / (1 - p)


class KeyedDropoutMode(TorchFunctionMode):
    """Answers functions that drop numbers by masks from the key of the current call."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        own = {"dropout": self._dropout, "scaled_dot_product_attention": self._attention}
        # the mode is off while it answers, so that what PyTorch's function calls in turn must be its own answers
        attend = _with_other_globals(F.multi_head_attention_forward, {**own, "has_torch_function": lambda _: False})
        self._answers: dict[Any, Callable[..., Any]] = {
            F.dropout: self._dropout,
            torch.dropout: self._dropout,
            F.dropout1d: self._dropout_of_channels,
            F.dropout2d: self._dropout_of_channels,
            F.dropout3d: self._dropout_of_channels,
            F.scaled_dot_product_attention: self._attention,
            F.multi_head_attention_forward: attend,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._answers.get(func, func)(*args, **(kwargs or {}))

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return self._put(input, p, training, inplace, input.shape)

    def _dropout_of_channels(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        return self._put(input, p, training, inplace, (*input.shape[:2], *(1 for _ in input.shape[2:])))

    def _put(self, x: Tensor, p: float, training: bool, inplace: bool, shape: Sequence[int]) -> Tensor:
        if not training or p == 0:
            return x
        return x.copy_(dropped(self._call, x, p, shape)) if inplace else dropped(self._call, x, p, shape)

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """As PyTorch's function, [..., queries, keys] weights between two products, of which some are dropped."""
        if not dropout_p:
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        if enable_gqa:
            key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
        weights = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            seen = torch.ones(weights.shape[-2:], dtype=torch.bool, device=query.device).tril()
            weights = weights.masked_fill(~seen, -torch.inf)
        if attn_mask is not None:
            is_bool = attn_mask.dtype == torch.bool
            weights = weights.masked_fill(~attn_mask, -torch.inf) if is_bool else weights + attn_mask
        weights = weights.softmax(-1)
        return dropped(self._call, weights, dropout_p, weights.shape) @ value


def _with_other_globals(function: Any, others: Mapping[str, Any]) -> Callable[..., Any]:
    """The same code, in which some global names mean something else."""
    return types.FunctionType(
        function.__code__,
        {**function.__globals__, **others},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )

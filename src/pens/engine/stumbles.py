# SPDX-License-Identifier: Apache-2.0
"""Tells users, in words of ours, where and why PyTorch could not run a network, or runs it slowly."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.jit import ScriptModule

from pens.errors import PensWarning

_STUMBLES = (
    ("random operation", "draws random numbers of its own, which do not come from a peer's key (nn.Dropout is fine)"),
    ("control flow", "decides by values"),
    (".item()", "takes a number out of a tensor"),
    ("dynamic shape", "makes a tensor whose shape depends on values, as with a mask for an index"),
    ("differently shaped", "makes a tensor whose shape depends on values, as with a mask for an index"),
    ("doesn't have storage", "takes numbers out of a tensor, as NumPy does"),
    ("accessing `data`", "uses the .data of a tensor"),
    ("inplace", "writes into a tensor that is not each model's own: torch.cat, torch.where and the like make new ones"),
    ("escaped", "computes layers again in the backward pass, as torch.utils.checkpoint does"),
    ("setup_context", "uses a torch.autograd.Function without setup_context and generate_vmap_rule = True"),
)
"""What PyTorch says when vmap fails, and what the network does, in words for users."""


class Inside:
    """Follows which modules are being called; after an exception, the last of them is the one that raised it."""

    def __init__(self) -> None:
        self._entered: list[tuple[str, str]] = []

    @property
    def where(self) -> str:
        """The innermost module, unless it is the network itself."""
        name, layer = self._entered[-1] if self._entered else ("", "")
        return f"layer {name!r} ({layer}): " if name else ""

    @contextmanager
    def following(self, *modules: nn.Module) -> Iterator[None]:
        hooks = []
        for name, part in ((n, p) for m in modules for n, p in m.named_modules() if not isinstance(p, ScriptModule)):

            def enter(called: nn.Module, _: object, name: str = name) -> None:
                self._entered.append((name, type(called).__name__))

            def leave(*_: object) -> None:
                self._entered.pop()

            hooks += [part.register_forward_pre_hook(enter), part.register_forward_hook(leave)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


@contextmanager
def noted() -> Iterator[list[warnings.WarningMessage]]:
    """Notes what PyTorch warns of in a stack. Functions that it runs model by model it is to tell of in trials alone:
    `warn_of_slow_operations` says it in other words, once. The setting is one for the whole process."""
    tell = torch._C._functorch._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]
    tell(True)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield said
    finally:
        tell(False)


def stumble(error: Exception) -> str:
    said = brief(error)
    if unknown := re.search(r"(?:Batching rule not implemented for|do not yet support) (aten::[\w.]*\w)", said):
        return f"calls {unknown[1]}, which PyTorch cannot compute for several models at once"
    return next((words for part, words in _STUMBLES if part in said), said.rstrip("."))


def warn_of_slow_operations(network: str, said: list[str]) -> None:
    slow = {found[1] for text in said if (found := re.search(r"batching rule for (\S+?)\. ", text))}
    if slow:
        warnings.warn(
            f"{network} uses operations that PyTorch computes model by model in a stack, so that it trains more "
            f"slowly: {', '.join(sorted(slow))}. The results are the same",
            PensWarning,
            stacklevel=2,
        )


def brief(error: Exception) -> str:
    """The first line of what an exception says."""
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__

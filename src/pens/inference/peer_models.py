# SPDX-License-Identifier: Apache-2.0
"""The tested models of a run, reached by peer or by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, overload, runtime_checkable

from torch import Tensor

from pens.errors import ResultError


@runtime_checkable
class ReadsRows(Protocol):
    """Stacked tensors of which a single row can be read, as from a file."""

    def row(self, name: str, index: int) -> Tensor:
        """One model's tensor of this name."""
        ...

    def num_rows(self) -> int:
        """How many models there are."""
        ...


class PeerModels(Mapping[str, Tensor]):
    """All tested models of a run: `models[3]` is that of peer 3, and `models["out.weight"]` a tensor of all, one row
    for each model; `models["clinic-a"]` is that of a peer with a name. As a mapping it is {name: [peer, *shape]}.

    Where one learner stands for all peers, its model is every peer's. Models of a run on disk are read when they are
    asked for, and of one peer only its own."""

    def __init__(self, stacked: Mapping[str, Tensor], peer_names: Sequence[str] = ()) -> None:
        self._stacked, self._names = stacked, tuple(peer_names)

    @overload
    def __getitem__(self, key: int) -> dict[str, Tensor]: ...

    @overload
    def __getitem__(self, key: str) -> Tensor: ...

    def __getitem__(self, key: int | str) -> Any:
        if not isinstance(key, str):
            return self._of(key)
        if key in self._stacked or key not in self._names:
            return self._stacked[key]
        return self._of(self._names.index(key))

    def _of(self, peer: int) -> dict[str, Tensor]:
        stacked, count = self._stacked, self.num_models
        row = 0 if count == 1 else peer
        if not 0 <= row < count:
            raise ResultError(f"there is no peer {peer}: the run has models of peers 0 to {count - 1}")
        if isinstance(stacked, ReadsRows):
            return {name: stacked.row(name, row) for name in stacked}
        return {name: tensor[row] for name, tensor in stacked.items()}

    @property
    def num_models(self) -> int:
        """As many as peers, or one where one learner stands for all."""
        if not self._stacked:
            return 0
        return self._stacked.num_rows() if isinstance(self._stacked, ReadsRows) else len(next(iter(self.values())))

    def __iter__(self) -> Iterator[str]:
        return iter(self._stacked)

    def __len__(self) -> int:
        return len(self._stacked)

    def __contains__(self, name: object) -> bool:
        return name in self._stacked

    def __repr__(self) -> str:
        return f"PeerModels({self.num_models:,} models: {', '.join(self)})"

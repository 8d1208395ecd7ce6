# SPDX-License-Identifier: Apache-2.0
"""How inputs were prepared before peers trained on them, so that new ones can be prepared alike.

Each peer's inputs are standardised by its own numbers. They stay with the peer: a run records them for its user, and no
peer is told those of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Standard:
    """What inputs are standardised by: networks are given (x − shift) / scale. Each feature of a table has numbers of
    its own; other inputs have one pair for all their numbers.  [feature], or []"""

    shift: NDArray[np.float64]
    scale: NDArray[np.float64]

    @staticmethod
    def of(train: NDArray[Any]) -> Standard:
        """The means and deviations of training inputs; the scale of a feature that never changes is 1."""
        axes = 0 if train.ndim == 2 else None
        deviation = np.asarray(train.std(axes, dtype=np.float64))
        return Standard(np.asarray(train.mean(axes, dtype=np.float64)), np.where(deviation > 0, deviation, 1.0))

    def applied(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Standardised inputs.  [sample, ...]"""
        found: NDArray[np.float32] = ((x - self.shift) / self.scale).astype(np.float32)
        return found


@dataclass(frozen=True)
class Preparation:
    """How the inputs of all peers of a federation were prepared."""

    columns: tuple[str, ...] = ()
    """The names of a table's features, in their order; empty: inputs have no names."""
    standards: tuple[Standard | None, ...] = ()
    """Each peer's, None where its inputs are as they were given; a single one holds for all peers, as where data were
    standardised before a partition shared them out. Empty: no inputs were standardised."""
    lost: bool = False
    """Whether the inputs of peers without a standard were standardised by numbers that the record does not have: it is
    of an older version, or the peer keeps them to itself."""

    def standard_of(self, peer: int) -> Standard | None:
        """By what a peer's inputs were standardised; None: they were not, or it is not on record."""
        if not self.standards:
            return None
        return self.standards[peer if len(self.standards) > 1 else 0]

    def of_peer(self, peer: int) -> Preparation:
        """What a peer itself knows of this: nothing of other peers."""
        own = self.standard_of(peer)
        return Preparation(self.columns, (own,) if own else ())

    @property
    def without_numbers(self) -> Preparation:
        """What others may know of this."""
        return Preparation(self.columns, lost=self.lost or any(self.standards))

    def to_json(self) -> dict[str, Any]:
        """As plain data; empty where inputs are as they were given."""
        standards = [one and {"shift": one.shift.tolist(), "scale": one.scale.tolist()} for one in self.standards]
        told = {"columns": list(self.columns), "standards": standards, "lost": self.lost}
        return {name: value for name, value in told.items() if value}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Preparation:
        standards = (
            one and Standard(np.asarray(one["shift"], np.float64), np.asarray(one["scale"], np.float64))
            for one in data.get("standards", ())
        )
        return Preparation(tuple(data.get("columns", ())), tuple(standards), bool(data.get("lost", False)))


AS_GIVEN = Preparation()
"""Inputs are as they were given, and have no names."""

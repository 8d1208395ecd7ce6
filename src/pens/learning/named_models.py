# SPDX-License-Identifier: Apache-2.0
"""Names of models and where their values are: a model lives as long as its name has references.

A name (`ModelRef`) exists from the moment its update is recorded, its values from the moment the update is computed.
Several names, and a peer's best model, may share one row of the stack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from pens.engine.layout import Layout
from pens.engine.stack import ModelStack
from pens.learning.received import ReceivedModels
from pens.protocol.messages import ModelRef, PeerId
from pens.settings.schema import WireForm


class NamedModels:
    """The models of a run by name, with the number of references to each."""

    def __init__(self, stack: ModelStack, layout: Layout, wire: WireForm) -> None:
        self.stack = stack
        self.rows: dict[ModelRef, int] = {}
        """Where the values of each model are, as far as they are known."""
        self._uses: Counter[ModelRef] = Counter()
        self._received = ReceivedModels(stack, layout, wire)

    def retain(self, ref: ModelRef) -> ModelRef:
        """Keep a model alive until it is released once more."""
        self._uses[ref] += 1
        return ref

    def retain_all(self, refs: tuple[ModelRef, ...]) -> tuple[ModelRef, ...]:
        """Keep several models alive, each until it is released once more."""
        self._uses.update(refs)
        return refs

    def release(self, ref: ModelRef) -> None:
        """Drop one reference to a model; without references its row is released."""
        self.release_all((ref,))

    def release_all(self, refs: Iterable[ModelRef]) -> None:
        """Release each of several models once."""
        uses = self._uses
        for ref in refs:
            left = uses[ref] - 1
            if left:
                uses[ref] = left
            else:
                self._forget(ref)

    def _forget(self, ref: ModelRef) -> None:
        """Nobody refers to this model any more."""
        del self._uses[ref]
        self._received.forget(ref)
        if ref in self.rows:
            self.stack.release(self.rows.pop(ref))

    def holds(self, ref: ModelRef) -> bool:
        """Whether there are references to a model of this name."""
        return ref in self._uses

    def row(self, ref: ModelRef) -> int:
        """Where a model's values are."""
        return self.rows[ref]

    def received_rows(self, refs: Sequence[ModelRef]) -> list[int]:
        """Where the values of models are as their receivers get them: rounded as the wire leaves them."""
        return self._received.rows(refs, self.rows)

    def give_values(self, ref: ModelRef, row: int) -> None:
        """Let a name stand for the model in a row, in place of an earlier one that was not read."""
        self.stack.retain(row)
        if ref in self.rows:
            self.stack.release(self.rows[ref])
        self.rows[ref] = row

    def take_in(self, ref: ModelRef, model: Tensor) -> None:
        """A model that was sent from elsewhere, retained once for the peer that received it.  [size]"""
        self.retain(ref)
        if ref not in self.rows:
            (self.rows[ref],) = self.stack.add(model[None].to(self.stack.device))

    def let_go(self) -> None:
        """Release all rows."""
        self._received.let_go()
        for row in self.rows.values():
            self.stack.release(row)
        self.rows.clear()

    # --- state on disk ------------------------------------------------------------------------------------------------

    def in_order(self) -> list[int]:
        """The rows of all names, in the order of the names."""
        return [row for _, row in sorted(self.rows.items())]

    def state(self, place: Mapping[int, int]) -> list[list[Any]]:
        """All names as plain data. `place`: of each row among those that are written."""
        places = {ref: place[row] for ref, row in self.rows.items()}
        return [[*ref, uses, places.get(ref)] for ref, uses in sorted(self._uses.items())]

    def restore(self, state: Sequence[Sequence[Any]], rows: Sequence[int]) -> None:
        """Become what `state` described. `rows`: where the models are now that were written."""
        self.let_go()
        self._uses.clear()
        for owner, version, uses, place in state:
            ref = ModelRef(PeerId(owner), version)
            self._uses[ref] = uses
            if place is not None:
                self.rows[ref] = self.stack.retain(rows[place])

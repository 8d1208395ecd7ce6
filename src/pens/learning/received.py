# SPDX-License-Identifier: Apache-2.0
"""Models as their receivers get them: the sender's own rows, or rounded copies beside them (`pens.engine.rounding`).

A rounded copy is made when the model is first read, and lives as long as the model has a name. It follows from the
model's own row, so checkpoints do not contain it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pens.engine.layout import Layout
from pens.engine.rounding import round_rows
from pens.engine.stack import ModelStack
from pens.protocol.messages import ModelRef
from pens.settings.schema import WireForm


class ReceivedModels:
    """Rows of models that came from other peers."""

    def __init__(self, models: ModelStack, layout: Layout, form: WireForm) -> None:
        self._models, self._layout, self._form = models, layout, form
        self._rounded: dict[ModelRef, int] = {}

    def rows(self, refs: Sequence[ModelRef], own: Mapping[ModelRef, int]) -> list[int]:
        """The row of each model; `own`: the one that its sender trained. What a peer made itself never travelled."""
        if self._form == "fp32":
            return [own[ref] for ref in refs]
        missing = [ref for ref in dict.fromkeys(refs) if ref not in self._rounded and not ref.is_made]
        if missing:
            rounded = round_rows(self._models.read([own[ref] for ref in missing]), self._layout, self._form)
            self._rounded.update(zip(missing, self._models.add(rounded), strict=True))
        return [own[ref] if ref.is_made else self._rounded[ref] for ref in refs]

    def forget(self, ref: ModelRef) -> None:
        """Release the rounded copy of a model whose name has no references."""
        if ref in self._rounded:
            self._models.release(self._rounded.pop(ref))

    def let_go(self) -> None:
        """Release all rounded copies."""
        for ref in list(self._rounded):
            self.forget(ref)

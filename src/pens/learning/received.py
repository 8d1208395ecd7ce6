# SPDX-License-Identifier: Apache-2.0
"""Models as their receivers get them: the sender's own rows, or rounded twins beside them (`pens.engine.rounding`).

A twin is made when somebody first reads the model, and lives as long as the model has a name. It follows from the
model's own row, so no checkpoint holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pens.engine.layout import Layout
from pens.engine.rounding import round_rows
from pens.engine.stack import ModelStack
from pens.protocol.messages import ModelRef
from pens.settings.schema import WireForm


class ReceivedModels:
    """The rows to read where a model came from another peer."""

    def __init__(self, models: ModelStack, layout: Layout, form: WireForm) -> None:
        self._models, self._layout, self._form = models, layout, form
        self._twins: dict[ModelRef, int] = {}

    def rows(self, refs: Sequence[ModelRef], own: Mapping[ModelRef, int]) -> list[int]:
        """The row of each model; `own`: the one that its sender trained."""
        if self._form == "fp32":
            return [own[ref] for ref in refs]
        missing = [ref for ref in dict.fromkeys(refs) if ref not in self._twins]
        if missing:
            rounded = round_rows(self._models.read([own[ref] for ref in missing]), self._layout, self._form)
            self._twins.update(zip(missing, self._models.add(rounded), strict=True))
        return [self._twins[ref] for ref in refs]

    def forget(self, ref: ModelRef) -> None:
        """The model has no name any more."""
        if ref in self._twins:
            self._models.release(self._twins.pop(ref))

    def let_go(self) -> None:
        """Free all places."""
        for ref in list(self._twins):
            self.forget(ref)

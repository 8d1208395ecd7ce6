# SPDX-License-Identifier: Apache-2.0
"""Strangers that may become neighbours in step 2: their models are kept, judged, and their wins counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pens.protocol.messages import Action, Ask, Chose, Drop, Losses, ModelRef, PeerId
from pens.protocol.policies import Trials, admitted, is_win
from pens.protocol.situation import Situation

_STRANGERS = 16  # models of strangers that are kept until they are judged


class Admission:
    """What one peer knows of strangers."""

    def __init__(self, trials_needed: int) -> None:
        self._needed = trials_needed
        self._strangers: dict[PeerId, ModelRef] = {}
        """The newest model of each, oldest first."""
        self._asked: tuple[PeerId, ...] = ()
        """Whose models are being judged, or were the last time."""
        self._trials = Trials()

    def meet(self, model: ModelRef) -> ModelRef | None:
        """Keep a stranger's model to be judged; returns one that makes room for it."""
        older = self._strangers.pop(model.owner, None)
        if older is None and len(self._strangers) == _STRANGERS:
            older = self._strangers.pop(next(iter(self._strangers)))
        self._strangers[model.owner] = model
        return older

    def ask(self, beside: tuple[ModelRef, ...]) -> list[Action]:
        """Judge the strangers that are kept beside the models that are merged, or beside the own one without any.

        On validation data: the neighbours' models descend from the peer's own, which knows its training data by heart.
        """
        if not self._strangers:
            return []
        models = tuple(self._strangers.values())
        self._asked, self._strangers = tuple(self._strangers), {}
        query = Losses(models, beside, on="val", own=not beside)
        return [Ask("strangers", query, when="updated"), *(Drop(model, "judged") for model in models)]

    def judge(self, peer: Situation, losses: Sequence[float]) -> list[Action]:
        """Count who was at least as good as half of the others, and admit those who were often enough."""
        others = losses[len(self._asked) :]
        for stranger, loss in zip(self._asked, losses, strict=False):
            if not peer.conduct.is_dropped(stranger):
                self._trials.add(stranger, is_win(loss, others))
        before = tuple(peer.neighbours)
        after = tuple(sorted({*before, *admitted(self._trials, self._needed)}))
        if after == before:
            return []
        peer.neighbours = after
        return [Chose(after, "admission")]

    def leave(self) -> list[Action]:
        """The phase ends: nobody is judged any more."""
        return [Drop(model, "unused") for model in self._strangers.values()]

    def forget(self, peers: Sequence[PeerId]) -> list[Action]:
        """These are dropped: what they won does not count any more, should they come back."""
        self._trials.forget(peers)
        return [Drop(self._strangers.pop(peer), "refused") for peer in peers if peer in self._strangers]

    def state(self) -> dict[str, Any]:
        return {
            "strangers": [[ref.owner, ref.version] for ref in self._strangers.values()],
            "asked": list(self._asked),
            "trials": self._trials.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._strangers = {PeerId(o): ModelRef(PeerId(o), v) for o, v in state["strangers"]}
        self._asked = tuple(PeerId(p) for p in state["asked"])
        self._trials = Trials.restored(state["trials"])

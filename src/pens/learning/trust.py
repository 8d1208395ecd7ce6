# SPDX-License-Identifier: Apache-2.0
"""What is remembered and decided about others' models where they are not trusted (docs/decisions/0081).

TrustRules   what all peers of a run have in common
Mistrust     what one peer remembers: sketches of what it sent, and how others' models did
inspected    the models that count for nothing, whatever their losses are
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pens.data.samples import Array
from pens.engine.sketches import off_the_line
from pens.protocol.conduct import Verdict
from pens.protocol.messages import ModelRef, PeerId
from pens.settings.schema import WireForm

NEAR = 0.1
"""A copy lies nearer to its original than this share of what the peer's last training changed. Two honest models differ
by about as much as a training changes, since each was trained on other data: 0.49 and more were seen."""
ABSURD = 10.0
"""A model may be so many times as long as the peer's own one, or as short. Trained models of one network differ by less
than two. Numbers of another form (fp16 read as fp32) make models that are far too short."""
_SENT_KEPT = 32
_ROUNDING = 1e-5  # of a model's length: two models that differ by less are the same


@dataclass(frozen=True)
class TrustRules:
    """How far others' models are trusted."""

    margin: float
    """A merge is clearly worse than the own model where its loss is higher by more than so many standard errors."""
    sent_as: WireForm = "fp32"
    """The form in which the peer's own models reach the others."""


@dataclass
class Mistrust:
    """What one peer remembers of its own models and of others'."""

    length: float = 0.0
    """Of its newest model."""
    change: float = 0.0
    """How far its last training moved its model."""
    sent: list[Array] = field(default_factory=list)
    """Sketches of the newest of its models that it sent, the oldest first."""
    agrees: bool = False
    """Whether merges are known to work: one was not worse than the own model, or all peers began with one model."""
    verdicts: list[tuple[PeerId, Verdict]] = field(default_factory=list)
    """How models did since the peer asked last."""
    counts: Counter[Verdict] = field(default_factory=Counter)
    """Likewise in all, whoever sent them."""
    judged: int = 0
    """Models that it ran over its validation samples for that: received ones, merged ones and its own."""
    kept_own: int = 0
    """Merges of which nothing was taken."""

    @property
    def nearness(self) -> float:
        """Within this distance two models are copies."""
        return max(NEAR * self.change, _ROUNDING * self.length)

    def has_sent(self, sketch: Array) -> bool:
        """Whether a model is (nearly) a multiple of one that the peer itself sent lately."""
        return any(off_the_line(sketch, own) <= self.nearness for own in self.sent)

    def is_absurd(self, length: float) -> bool:
        """Whether a model of this length is far larger, or far smaller, than the peer's own."""
        if not np.isfinite(length):
            return True
        return self.length > 0 and not self.length / ABSURD <= length <= self.length * ABSURD

    def remember(self, sketch: Array, length: float) -> None:
        """The peer has a new model, which it will send."""
        self.length = length
        self.sent = [*self.sent, sketch][-_SENT_KEPT:]

    def note(self, peer: PeerId, verdict: Verdict) -> None:
        """Count how a model did."""
        self.verdicts.append((peer, verdict))
        self.counts[verdict] += 1

    def tell(self) -> tuple[tuple[PeerId, Verdict], ...]:
        """How models did since this was asked last, in the order of senders: not that of computing."""
        told, self.verdicts = tuple(sorted(self.verdicts)), []
        return told

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "numbers": [self.length, self.change, self.agrees, self.judged, self.kept_own],
            "sent": [sketch.astype(np.float64).tobytes().hex() for sketch in self.sent],
            "verdicts": [list(of) for of in self.verdicts],
            "counts": dict(self.counts),
        }

    @staticmethod
    def restored(state: Mapping[str, Any]) -> Mistrust:
        """What `state` described."""
        length, change, agrees, judged, kept_own = state["numbers"]
        sent = [np.frombuffer(bytes.fromhex(text), np.float64) for text in state["sent"]]
        verdicts = [(PeerId(peer), verdict) for peer, verdict in state["verdicts"]]
        return Mistrust(length, change, sent, agrees, verdicts, Counter(state["counts"]), judged, kept_own)


def inspected(
    mistrust: Mistrust, refs: Sequence[ModelRef], sketches: Mapping[ModelRef, Array], lengths: Mapping[ModelRef, float]
) -> dict[ModelRef, Verdict]:
    """Those of some received models that count for nothing, and why. `refs`: in the order of receipt: of two that are
    copies of each other, the later one counts for nothing."""
    found: dict[ModelRef, Verdict] = {}
    fine: list[ModelRef] = []
    for ref in refs:
        if mistrust.is_absurd(lengths[ref]):
            found[ref] = "absurd"
        elif mistrust.has_sent(sketches[ref]):
            found[ref] = "echo"
        elif any(_are_twins(mistrust, sketches, ref, other) for other in fine):
            found[ref] = "twin"
        else:
            fine.append(ref)
    return found


def _are_twins(mistrust: Mistrust, sketches: Mapping[ModelRef, Array], ref: ModelRef, other: ModelRef) -> bool:
    return ref.owner != other.owner and off_the_line(sketches[ref], sketches[other]) <= mistrust.nearness

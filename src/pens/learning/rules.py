# SPDX-License-Identifier: Apache-2.0
"""How all peers of a run learn: what a method says once, for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pens.data.samples import Array
from pens.engine.optimizers import Recipe
from pens.learning.trust import TrustRules
from pens.merging.rule import Merging, chosen
from pens.protocol.policies import EarlyStopping
from pens.settings.schema import Score, StoppingSettings, WireForm
from pens.settings.tree import Settings


@dataclass(frozen=True)
class LearningRules:
    """What all peers of a run have in common."""

    recipe: Recipe
    stopping: StoppingSettings
    own_in_merge: bool
    seed: int
    score_on: Literal["train", "val"] = "train"
    score: Score = "loss"
    """How the models of step 1 are compared: by loss, by the main metric, or by how far they lie from the own model.
    Questions are answered by what they ask for."""
    counts_heights: bool = True
    """Whether it is counted how high each loss was, and not only which models were among the top m."""
    score_samples: int | None = None
    """Models are compared on so many of the receiver's training samples; None: all."""
    max_batch: int = 0
    """At most so many updates, or comparisons, at once; 0: all that are ready."""
    optimizer_remembers: bool = False
    """Whether a peer's optimizer keeps its moments from update to update; else each update resets them."""
    scores: bool = True
    """Whether received models may be compared on samples, so that whole models have to travel."""
    common_start: bool = False
    """Whether all peers begin with the same model, so that each knows what training changed in any model."""
    wire: WireForm = "fp32"
    """How models travel: received models are rounded to this form, a peer's own is not."""
    merging: Merging = field(default_factory=lambda: chosen(Settings()))
    """How a peer's own model and those that it received become one."""

    trust: TrustRules | None = None
    """How far others' models are trusted; None: fully."""
    higher_is_better: bool = True
    """Whether higher values of the task's main metric are better: the direction of early stopping and `score`."""

    def goodness(self, scores: Array) -> Array:
        """Values of the main metric such that higher ones are better."""
        return scores if self.higher_is_better else -scores

    def new_stopping(self) -> EarlyStopping:
        """Early stopping of one peer that has not been validated yet."""
        return EarlyStopping(self.stopping.stop_on, self.stopping.window, self.stopping.patience)

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms of its model that a peer validates at each update."""
        return ("trained", "merged") if self.stopping.validated == "either" else (self.stopping.validated,)

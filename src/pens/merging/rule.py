# SPDX-License-Identifier: Apache-2.0
"""What a merge rule is: models in, one model out.

A model is a row of numbers. A rule is told who merges whose models, and says what comes out, in one of two ways.

A `LinearRule` says how much each model counts: weights that sum to one. The engine adds the models up; the rule never
sees a number of theirs.

Any other `MergeRule` gets the rows themselves, of several merges with equally many models at once, and returns one row
for each. It works on tensors of any device, and no merge may depend on those beside it: how many are computed at once
is the engine's choice.

A rule may divide the network into segments, each a set of tensors that are named by the beginnings of their names. It
is then asked segment by segment, and tensors outside all segments keep the values of the peer's own model.

The module is light to import: tensors are named for type checkers alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pens import parts
from pens.errors import SettingsError
from pens.hooks import plain_numbers
from pens.settings.schema import SettingsTree
from pens.settings.section import Section

if TYPE_CHECKING:
    from torch import Tensor

    from pens.engine.layout import Layout

_SUM_OFF = 1e-6  # how far from 1 weights may sum to
SegmentWeights = tuple[tuple[str, tuple[float, ...]], ...]
"""(prefix, weights): tensors whose names begin with the prefix have weights of their own."""


@dataclass(frozen=True)
class Merge:
    """One merge, but for its numbers. Models are in the order of their rows: the own model first, where it is merged,
    then the received ones in the order in which they came."""

    receiver: int
    """The number of the peer that merges."""
    senders: tuple[int, ...]
    """Whose model each one is."""
    own_in_merge: bool
    """Whether the first model is the receiver's own."""
    samples: tuple[int, ...] | None = None
    """The senders' numbers of training samples; None: nobody says them, as between real peers."""
    weights: tuple[float, ...] | None = None
    """How much each model counts, where the method says it; they take precedence over a rule's own weights."""


@dataclass(frozen=True)
class Rows:
    """The numbers of one segment of several merges with equally many models."""

    own: Tensor
    """Each receiver's own model, whether it is merged or not.  [merge, number]"""
    models: Tensor
    """The models to merge, the own one first where it is merged.  [merge, model, number]"""
    merges: Sequence[Merge]
    segment: str = ""
    """The name that the rule gave to the segment; empty where it has none."""

    @property
    def received(self) -> Tensor:
        """The models of others.  [merge, model, number]"""
        return self.models[:, int(self.merges[0].own_in_merge) :]


class MergeRule:
    """The base of all merge rules. Derive from `LinearRule` where weights say all."""

    name: ClassVar[str] = ""
    """How it is named in settings."""
    about: ClassVar[str] = ""
    """What it does, in a line."""
    section: ClassVar[type[Section] | None] = None
    """The class of its own section of the settings, if it has one."""
    takes_weights: ClassVar[bool] = False
    """Whether it heeds the weights of a method that says some (`Merge.weights`) and has none of its own that would be
    ignored then; else such a method is refused."""
    needs_samples: ClassVar[bool] = False
    """Whether it needs the senders' numbers of samples, which real peers do not tell."""
    is_plain: ClassVar[bool] = False
    """Whether it is the plain average, which the engine knows."""
    coordinatewise: ClassVar[bool] = False
    """Whether each number of the merged model depends on the same number of each model alone, so that long rows may be
    cut into pieces."""

    def segments(self, options: Any) -> Mapping[str, Sequence[str]]:
        """Names of segments, and the beginnings of the names of each one's tensors; none: the whole network is one.

        `options`: the rule's section of the settings, here and below.
        """
        return {}

    def merge(self, rows: Rows, options: Any) -> Tensor:
        """One model for each merge.  → [merge, number]"""
        raise NotImplementedError


class LinearRule(MergeRule):
    """A rule that adds models up, each with a weight.

    Where a method says weights for some tensors alone, the rule's own weights count for the others.
    """

    def weights(self, merge: Merge, segment: str, options: Any) -> Sequence[float] | None:
        """How much each model counts: weights that sum to one, or None for the plain average."""
        raise NotImplementedError


@dataclass(frozen=True)
class Merging:
    """How the peers of a run merge: a rule, its options, and which tensors it is for."""

    rule: MergeRule
    options: Section | None = None
    only: tuple[str, ...] = ()
    """Merge only tensors whose names begin with one of these; empty: all."""
    keeps_batch_norm: bool = True
    """Whether each peer keeps its own scales, shifts and running statistics of batch normalisation."""
    own: tuple[str, ...] = ()
    """Tensors whose names begin with one of these are never merged, nor sent: they stay each peer's own."""

    def is_plain(self, layout: Layout) -> bool:
        """Whether it is the plain average of whole models, so that nobody need be asked."""
        return self.rule.is_plain and not self.only and not self.kept(layout)

    def kept(self, layout: Layout) -> frozenset[str]:
        """The tensors that are never merged."""
        own = frozenset(layout.places_of(self.own)) if self.own else frozenset()
        return own | layout.batch_norm if self.keeps_batch_norm else own

    @property
    def key(self) -> str:
        """The same for what may be computed together."""
        return f"{self.rule.name} {self.options!r} {self.only!r} {self.keeps_batch_norm} {self.own!r}"


def chosen(settings: SettingsTree) -> Merging:
    """What the settings say."""
    rule: MergeRule = parts.MERGE_RULES.find(settings.gossip.merge)
    options = settings.section(rule.section) if rule.section else None
    return Merging(rule, options, settings.gossip.merge_only, settings.model.batch_norm != "merged")


def read_weights(weights: Iterable[Any], models: int, who: str) -> tuple[float, ...]:
    """Weights as plain numbers, whatever sequence or array they come in; refused where they are no weights of so many
    models. `who` says them."""
    found = plain_numbers(weights)
    if found is None:
        shown = " ".join(repr(weights).split())
        raise SettingsError(f"{who} says the weights {shown:.60}: say a list of numbers, one for each model")
    if len(found) != models:
        raise SettingsError(f"{who} says {len(found)} weights for {models} models: say one for each")
    if wrong := [weight for weight in found if not math.isfinite(weight)]:
        raise SettingsError(f"{who} says a weight that is {wrong[0]}: say finite numbers, which sum to 1")
    if not abs((total := math.fsum(found)) - 1) <= _SUM_OFF:
        raise SettingsError(f"{who} says weights that sum to {total:g}: divide them by their sum, so that it is 1")
    return found


def check_heeds(rule: MergeRule, who: str, weights: bool, segments: bool) -> None:
    """Refuse a rule that would ignore what a method says. `weights`: for whole models; `segments`: for some tensors."""
    if (weights and not rule.takes_weights) or (segments and not (rule.takes_weights or isinstance(rule, LinearRule))):
        why = "has weights of its own" if isinstance(rule, LinearRule) else "knows no weights"
        raise SettingsError(
            f"merge = {rule.name!r} {why}, but {who} says how much each model counts: set merge = 'mean'"
        )


def check_said(
    merging: Merging, who: str, models: int, weights: tuple[float, ...] | None, segments: SegmentWeights
) -> None:
    """Refuse a method's weights that are none, or that the rule does not heed. `models`: those received."""
    check_heeds(merging.rule, who, weights is not None, bool(segments))
    for said in (*([] if weights is None else [weights]), *(of for _, of in segments)):
        read_weights(said, 1 + models, f"{who} (its own model first)")


def check_real(settings: SettingsTree) -> None:
    """Refuse a rule that real peers cannot follow."""
    if (rule := chosen(settings).rule).needs_samples:
        raise SettingsError(
            f"merge = {rule.name!r} needs the senders' numbers of training samples, which real peers do not tell: "
            "set merge = 'mean'"
        )

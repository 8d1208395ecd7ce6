# SPDX-License-Identifier: Apache-2.0
"""What happens to a peer (events) and what it wants done (actions). Plain data: no tensors, clock, socket or file.

    Event  = Start | Wake | Received | Pulled | Updated | Selected
    Action = Send | Request | WakeAfter | Score | Judge | Update | Select | Drop | Finish

A driver turns actions into events: the simulator in virtual time and in batches, a networked node in real time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, NewType

PeerId = NewType("PeerId", int)


class ModelRef(NamedTuple):
    """A name for one version of one peer's model. What it stands for is the driver's business."""

    owner: PeerId
    version: int


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """The peer begins its life."""


@dataclass(frozen=True, slots=True)
class Wake:
    """WAIT(Δ) is over; or, in rounds, a round begins."""


@dataclass(frozen=True, slots=True)
class Received:
    """ONRECEIVEMODEL: a model came from `model.owner`."""

    model: ModelRef
    answer: bool = False
    """Whether it came as an answer."""


@dataclass(frozen=True, slots=True)
class Pulled:
    """ONRECEIVEMODEL for all models of a `Request`: they come together, since many single events take long."""

    models: tuple[ModelRef, ...]


@dataclass(frozen=True, slots=True)
class Updated:
    """The `Update` in progress is complete; the peer's model is the new one."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The answer to `Select`, and to `Judge`: who the neighbours are from now on."""

    neighbours: tuple[PeerId, ...]


Event = Start | Wake | Received | Pulled | Updated | Selected

# --- actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Push the peer's current model, as it is now, to another peer."""

    to: PeerId
    answer: bool = False
    """In return for one of its models. An answer is never answered."""


@dataclass(frozen=True, slots=True)
class Request:
    """Pull the current models of some peers, which come back as `Pulled`."""

    sources: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class WakeAfter:
    """WAIT: send `Wake` after this much time."""

    delay: float


@dataclass(frozen=True, slots=True)
class Score:
    """Score models on the peer's own training data and count the top m as selected, without merging."""

    models: tuple[ModelRef, ...]
    m: int


@dataclass(frozen=True, slots=True)
class Judge:
    """Score the models of strangers beside those of neighbours, on the peer's own validation data, and count who wins.

    Comes before the `Update` that merges the neighbours' models; answered by `Selected` when that is complete, before
    `Updated`. `against` nobody: the peer has no neighbours, and strangers are scored beside its own model.
    """

    strangers: tuple[ModelRef, ...]
    against: tuple[ModelRef, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """The one expensive action: choose among the models, average with the peer's own, train, validate, keep the best.

    `top_m`: merge only the m that score best on the peer's own training data, and count them as selected; None: all.
    `may_stop`: whether early stopping applies.
    `anew`: begin with the model that is kept for step 2, in place of the peer's own.
    `weights`: how much each model counts in the merge, the peer's own first, then `models` in their order; they sum to
    one. None: as the merge rule says. The own model is merged with its weight, whatever `own_in_merge` says. Not
    together with `top_m`: whoever says weights has chosen.
    `segment_weights`: (prefix, weights) for parameters whose names begin with the prefix, in place of `weights`.
    """

    models: tuple[ModelRef, ...]
    top_m: int | None
    epochs: int
    may_stop: bool
    anew: bool = False
    weights: tuple[float, ...] | None = None
    segment_weights: tuple[tuple[str, tuple[float, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Select:
    """SELECTNEIGHBORS: end step 1. Answered by `Selected`, the one event that brings numbers back to a peer."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A received model is not needed."""

    model: ModelRef
    why: Literal["refused", "replaced", "unused"]


@dataclass(frozen=True, slots=True)
class Finish:
    """The peer has done its updates. It goes on serving its model to others."""


Action = Send | Request | WakeAfter | Score | Judge | Update | Select | Drop | Finish

# SPDX-License-Identifier: Apache-2.0
"""What happens to a peer (events) and what it wants done (actions). Plain data: no tensors, clock, socket or file.

    Event  = Start | Wake | Received | Pulled | Updated | Answered
    Action = Send | Request | WakeAfter | Compare | Blend | Update | Ask | Chose | Shun | Drop | Finish
    Query  = Counts | Losses | Distances | Verdicts

A driver turns actions into events: the simulator in virtual time and in batches, a networked node in real time.
Numbers come back to a peer in one way only: it asks (`Ask`), and is answered (`Answered`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NewType

from pens.settings.schema import Distance, Keep

PeerId = NewType("PeerId", int)


NOTE_BYTES = 4096

Note = Any
"""What a sender says beside a model, to others of its method: plain data as JSON has it, and little. None: nothing."""


class ModelRef(NamedTuple):
    """A name for one version of one peer's model. What it stands for is the driver's business."""

    owner: PeerId
    version: int
    """Below zero for a model that the peer made beside its own one (`Blend`), which is never sent."""

    @property
    def is_made(self) -> bool:
        """Whether its peer made it beside its own model."""
        return self.version < 0


class Phase(NamedTuple):
    """A part of an update in which only some parameters are trained, by an optimizer that begins anew. All other
    tensors of the model, buffers included, stand still to the last bit."""

    epochs: int
    only: tuple[str, ...] = ()
    """Train parameters whose names begin with one of these prefixes; empty: all."""
    without: tuple[str, ...] = ()
    """But not those whose names begin with one of these. "auto", here and above, stands for the last layer."""


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
    note: Note = None


@dataclass(frozen=True, slots=True)
class Pulled:
    """ONRECEIVEMODEL for all models of a `Request`: they come together, since many single events take long."""

    models: tuple[ModelRef, ...]
    notes: tuple[Note, ...] = ()
    """One of each sender, or none at all."""


@dataclass(frozen=True, slots=True)
class Updated:
    """The `Update` in progress is complete; the peer's model is the new one."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What the peer asked for under this name. `answer` is what the query says that it is answered by."""

    name: str
    answer: Any


Event = Start | Wake | Received | Pulled | Updated | Answered

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
class Compare:
    """Score models on the peer's own training data and count the top m as selected, without merging."""

    models: tuple[ModelRef, ...]
    m: int


@dataclass(frozen=True, slots=True)
class Blend:
    """Make a model of the peer's own beside the one that it trains: a weighted average, which uses no model up.

    The peer holds it as it holds a received one: it may ask for its losses, and it ends in an `Update` or in a `Drop`.
    `Situation.blend` makes this action, and keeps the model by name.
    """

    out: ModelRef
    models: tuple[ModelRef, ...]
    weights: tuple[float, ...]
    """How much each model counts: the peer's own one as it is now, then `models` in their order, then the untrained one
    where there is one. They sum to one."""
    segment_weights: tuple[tuple[str, tuple[float, ...]], ...] = ()
    """(prefix, weights) for parameters whose names begin with the prefix, in place of `weights`."""
    untrained: tuple[int | str, ...] = ()
    """The name of an untrained model that counts as the last one: the same name gives all peers of a run the same
    numbers. Empty: none."""


@dataclass(frozen=True, slots=True)
class Update:
    """The one expensive action: choose among the models, average with the peer's own, train, validate, keep the best.

    `top_m`: merge only the m that score best on the peer's own training data, and count them as selected; None: all.
    `may_stop`: whether early stopping applies.
    `keep`: which model is kept aside from this update on; what was kept before is let go where this is `last`.
    `from_kept`: begin with the model that was kept aside before, if one was, in place of the peer's own.
    `from_first`: begin with the peer's own model as it was before the first update that kept one, if one did.
    `weights`: how much each model counts in the merge, the peer's own first, then `models` in their order; they sum to
    one. None: as the merge rule says. The own model is merged with its weight, whatever `own_in_merge` says. Not
    together with `top_m`: whoever says weights has chosen.
    `segment_weights`: (prefix, weights) for parameters whose names begin with the prefix, in place of `weights`.
    """

    models: tuple[ModelRef, ...]
    top_m: int | None
    epochs: int
    may_stop: bool
    keep: Keep = "last"
    from_kept: bool = False
    weights: tuple[float, ...] | None = None
    segment_weights: tuple[tuple[str, tuple[float, ...]], ...] = ()
    apart: bool = False
    """Whether this is a trial of what the peer reaches without others. Its best model is kept beside that of all other
    updates, and is tested if the peer's validation data prefer it."""
    phases: tuple[Phase, ...] = ()
    """What is trained, one after the other; their epochs add up to `epochs`. Empty: all parameters together."""
    from_first: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """A query: how often each other was compared and selected so far. Answered by a `pens.protocol.policies.Tally`."""


@dataclass(frozen=True, slots=True)
class Losses:
    """A query: how well models do on the peer's own samples. Answered by a tuple of losses: those of `models`, those of
    `beside`, and that of the peer's own model where `own` is set, in this order.

    It uses no model up: the peer drops what it does not need for anything else.
    """

    models: tuple[ModelRef, ...]
    beside: tuple[ModelRef, ...] = ()
    """Models that are only there to compare with."""
    on: Literal["train", "val"] = "train"
    own: bool = False
    """Whether the peer's own model is asked for, too, as it is now."""


@dataclass(frozen=True, slots=True)
class Distances:
    """A query: how far models lie from the peer's own, as it is now. Answered by a tuple with one number for each of
    `models`, which is lower for models that lie nearer (`pens.engine.distances` defines each kind).

    Parameters count that are trained and merged: frozen parts, batch normalisation that stays local, and what
    `merge_only` leaves out do not. `cosine-update` compares what training changed since the model that all peers began
    with, so it needs init = common. No samples are needed: a server may ask, too. It uses no model up.
    """

    models: tuple[ModelRef, ...]
    by: Distance


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A query: how the models did that came since it was last asked, where others' models are not trusted. Answered by
    a tuple of (sender, `pens.protocol.conduct.Verdict`), in the order of senders. Only together with an update."""


Query = Counts | Losses | Distances | Verdicts


def received_in(query: Query) -> tuple[ModelRef, ...]:
    """The received models that a query is about."""
    match query:
        case Counts() | Verdicts():
            return ()
        case Losses(models, beside):
            return (*models, *beside)
        case Distances(models):
            return models


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask for numbers. They may not be computed yet, so the answer is an event of its own, `Answered`."""

    name: str
    """By which the peer knows the answer when it comes."""
    query: Query
    when: Literal["now", "updated"] = "now"
    """now: the answer comes next. updated: it comes just before the `Updated` of the update that is asked for in the
    same breath, after the question. Until then nobody waits: events run ahead."""


@dataclass(frozen=True, slots=True)
class Chose:
    """The peer's neighbours from now on, for whoever keeps a record."""

    neighbours: tuple[PeerId, ...]
    by: Literal["selection", "fallback", "admission", "distrust"]
    """selection: by the rule at the end of step 1; fallback: the rule found nobody; admission: strangers joined;
    distrust: some were dropped (`Shun`)."""


@dataclass(frozen=True, slots=True)
class Shun:
    """These others sent too many models that hurt: for a while the peer takes nothing of theirs. For whoever keeps a
    record."""

    peers: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """A model that was received, or made, is not needed."""

    model: ModelRef
    why: Literal["refused", "replaced", "unused", "judged"]


@dataclass(frozen=True, slots=True)
class Finish:
    """The peer has done its updates. It goes on serving its model to others."""


Action = Send | Request | WakeAfter | Compare | Blend | Update | Ask | Chose | Shun | Drop | Finish

Trace = Callable[[float, PeerId, Event, list[Action]], None]
"""What a driver calls with every event: when it happened, to which peer, and what that peer wanted done."""

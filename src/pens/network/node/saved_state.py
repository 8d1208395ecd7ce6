# SPDX-License-Identifier: Apache-2.0
"""What a saved state must hold, so that a peer can go on from it: the one place that says so.

A state is checked twice. Before it is written: one that a restart could not read must not replace one that it can, so
a peer with such a state ends, and begins again from the last state on disk. And when it is read: by another version of
pens, or after somebody changed it, it may be anything.

The first part says which values there are, and of which types and bounds. The second part says what must agree: a job
is about models that are held, an answer is there for each question that is due, and so on. What a behaviour keeps for
itself is its own business; `Peer.restore` reads it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError
from torch import Tensor

from pens.learning.curves import UpdateRecord
from pens.learning.learner import VERDICTS
from pens.network.node.encoded_jobs import decode_job, models_of
from pens.protocol.conduct import Verdict
from pens.protocol.messages import ModelRef, PeerId, Update

_MOST = 2**63
WholeNumber = Annotated[int, Field(ge=0, lt=_MOST)]
Version = Annotated[int, Field(ge=-_MOST, lt=_MOST)]
Pairs = list[tuple[WholeNumber, WholeNumber]]
Hexadecimal = Annotated[str, Field(pattern="^[0-9a-f]{1,40}$")]
Base64 = Annotated[str, Field(pattern="^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")]
Seconds = Annotated[FiniteFloat, Field(ge=0)]
_VERSION = UpdateRecord._fields.index("version")


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


P = TypeVar("P", bound=_Part)


# --- values -----------------------------------------------------------------------------------------------------------


class SavedStopping(_Part):
    """`EarlyStopping`"""

    window: WholeNumber
    patience: WholeNumber
    recent: list[float]
    best: float
    rounds_since_best: WholeNumber
    stopped: bool


class SavedUpdates(_Part):
    """`Updater.state`"""

    setbacks: Pairs
    num_updates: WholeNumber
    num_batches: WholeNumber


class SavedMistrust(_Part):
    """`Mistrust.state`"""

    numbers: tuple[FiniteFloat, FiniteFloat, bool, WholeNumber, WholeNumber]
    sent: list[Annotated[str, Field(pattern="^([0-9a-f]{16})+$")]]
    verdicts: list[tuple[WholeNumber, Verdict]]
    counts: dict[Verdict, WholeNumber]


class SavedLearner(_Part):
    """`Learner.state`"""

    counts: tuple[WholeNumber, WholeNumber, WholeNumber, WholeNumber]
    forms: dict[str, tuple[SavedStopping, WholeNumber | None, float, WholeNumber, WholeNumber]]
    may_stop: bool
    stop_time: float
    kept: tuple[WholeNumber, WholeNumber, float] | None
    moments: tuple[list[WholeNumber], WholeNumber] | None
    tally: tuple[
        Pairs, Pairs, WholeNumber, WholeNumber, list[tuple[WholeNumber, Pairs]], list[tuple[WholeNumber, float, float]]
    ]
    counted: tuple[WholeNumber, list[tuple[WholeNumber, Any]]]
    merges: Pairs
    answers: list[tuple[str, Annotated[int, Field(ge=VERDICTS, lt=_MOST)], list[float]]]
    asked: list[tuple[float, WholeNumber]]
    mistrust: SavedMistrust | None = None


class SavedLearners(_Part):
    """`Learners.state`"""

    names: list[tuple[WholeNumber, Version, WholeNumber, WholeNumber | None]]
    learners: Annotated[list[SavedLearner], Field(min_length=1, max_length=1)]
    jobs: Annotated[list[Any], Field(max_length=0)]
    """A node saves between jobs: what its learners had to do is done."""
    updates: SavedUpdates


class SavedLearning(_Part):
    """`Learning.state`"""

    learners: SavedLearners
    current: WholeNumber
    held: list[tuple[WholeNumber, Version, Annotated[int, Field(ge=1, lt=_MOST)]]]


SavedConduct = tuple[WholeNumber, list[tuple[WholeNumber, list[bool]]], Pairs, Pairs]
"""`Conduct.state`"""


class SavedPeer(_Part):
    """`Peer.state`"""

    phase: str
    updates: WholeNumber
    waits: WholeNumber
    draws: WholeNumber
    busy: bool
    saved: list[tuple[WholeNumber, Version]]
    neighbours: list[WholeNumber] | None
    made: list[tuple[str, Version]]
    num_made: WholeNumber
    notes: list[tuple[WholeNumber, Any]]
    behaviour: dict[str, Any]
    conduct: SavedConduct | None = None


class SavedPast(_Part):
    """`Past`"""

    seconds: Seconds
    completed: list[Seconds]
    received: list[WholeNumber]
    lives: WholeNumber


class SavedState(_Part):
    """`take_snapshot`"""

    learning: SavedLearning
    peer: SavedPeer
    jobs: list[list[Any]]
    due: list[str]
    chosen: list[WholeNumber]
    names: list[tuple[WholeNumber, str]]
    counts: dict[str, WholeNumber]
    past: SavedPast
    finished: bool
    alone: dict[str, float | None] | None
    wake_in: Seconds | None
    versions: list[tuple[str, WholeNumber, WholeNumber, str]]
    dropped: list[tuple[FiniteFloat, WholeNumber, WholeNumber]]


class SavedMembership(_Part):
    """`Membership.state`"""

    incarnation: WholeNumber
    records: list[tuple[str, str, WholeNumber, WholeNumber, WholeNumber, bool, bool, Hexadecimal, Base64]] = []
    """Members of older versions have none: theirs were not signed."""
    certificates: list[Base64] = []


# --- what must agree --------------------------------------------------------------------------------------------------


def check_saved(state: bytes, tensors: Mapping[str, Tensor]) -> None:
    """Raise a ValueError that says what a saved state lacks. `state`: as JSON."""
    _check_numbers(json.loads(state))
    saved = _read(SavedState, state)
    found = [*_wrong_tensors(saved, tensors)] or [*_wrong_jobs(saved), *_wrong_counts(saved, tensors)]
    if found:
        raise ValueError("; ".join(found))


def check_membership(state: bytes) -> None:
    """Raise a ValueError that says what a saved membership lacks. `state`: as JSON."""
    _read(SavedMembership, state)


def _read(form: type[P], state: bytes) -> P:
    try:
        return form.model_validate_json(state)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place or 'the state'}: {first['msg']}, not {str(first['input'])[:80]!r}") from None


def _check_numbers(data: Any) -> None:
    """Refuse whole numbers that no table can hold, wherever they are."""
    if isinstance(data, int) and not -_MOST <= data < _MOST:
        raise ValueError(f"a number of {len(str(data))} digits: at most 19 are possible")
    for value in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        _check_numbers(value)


def _wrong_tensors(saved: SavedState, tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Rows of models that are named, but not there."""
    missing = {"models", "held", "history", "comparisons"} - tensors.keys()
    flat = [name for name, tensor in tensors.items() if tensor.dim() != 2]
    if missing or flat:
        yield f"the tensors {', '.join(sorted([*missing, *flat]))} are missing, or not tables"
        return
    models, held, (learner,) = tensors["models"], tensors["held"], saved.learning.learners.learners
    if held.shape != (len(saved.learning.held), models.shape[1]) or held.dtype != models.dtype:
        yield f"{len(saved.learning.held)} received models of {models.shape[1]} numbers are named, not {held.shape}"
    if tensors["history"].shape[1] != len(UpdateRecord._fields):
        yield f"the history has {tensors['history'].shape[1]} columns"
    kept = learner.kept[:2] if learner.kept else ()
    moments = learner.moments[0] if learner.moments else []
    best = [form[1] for form in learner.forms.values()]
    named = [place for *_, place in saved.learning.learners.names]
    if any(row is not None and row >= len(models) for row in (*named, *best, *kept, *moments)):
        yield f"there are {len(models)} models, but a later one is named"
    current = (version for _, version, uses, place in saved.learning.learners.names if uses and place is not None)
    if saved.learning.current not in current:
        yield f"the current model, version {saved.learning.current}, is not there"


def _wrong_jobs(saved: SavedState) -> Iterator[str]:
    """Jobs that could not be carried out."""
    jobs = [decode_job(job) for job in saved.jobs]
    named = Counter(ref for job in jobs for ref in models_of(job)) + Counter(_refs(saved.peer.saved))
    held = Counter({ModelRef(PeerId(owner), version): uses for owner, version, uses in saved.learning.held})
    made = {version for _, version, _, _ in saved.learning.learners.names if version < 0}
    made |= {ref.version for job in jobs for ref in [getattr(job, "out", None)] if ref}
    received = Counter({ref: uses for ref, uses in named.items() if not ref.is_made})
    if lost := received - held:
        yield f"jobs and the peer are about models that are not held: {dict(lost)}"
    own = {ref.version for ref in named if ref.is_made} | {version for _, version in saved.peer.made}
    if own - made:
        yield f"jobs and the peer are about models that were never made: {sorted(own - made)}"
    for update in (job for job in jobs if isinstance(job, Update)):
        said = (update.weights, *(weights for _, weights in update.segment_weights))
        if update.epochs < 0 or any(of is not None and len(of) != 1 + len(update.models) for of in said):
            yield f"an update of {update.epochs} epochs does not say a weight for each of its models"
    if saved.peer.busy and not jobs:
        yield "the peer waits for an update, but there are no jobs"


def _wrong_counts(saved: SavedState, tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Answers and times that would be missed later."""
    (learner,) = saved.learning.learners.learners
    if lost := Counter(saved.due) - Counter(name for name, _, _ in learner.answers):
        yield f"questions are due that were not answered: {dict(lost)}"
    history = tensors["history"]
    newest = int(history[:, _VERSION].max()) if len(history) else 0
    if min(len(saved.past.completed), len(saved.past.received)) < newest or newest > saved.learning.current:
        yield f"the history has {newest} updates, of which the times of {len(saved.past.completed)} are known"


def _refs(models: list[tuple[int, int]]) -> list[ModelRef]:
    return [ModelRef(PeerId(owner), version) for owner, version in models]

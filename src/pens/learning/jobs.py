# SPDX-License-Identifier: Apache-2.0
"""Recorded work that is not computed yet: comparisons and updates, and which of them wait for which models.

Theory of operation. A job names the models that it reads; the models are computed by other jobs. Each job counts
its missing inputs, and each missing model lists the jobs that wait for it. When a model becomes known, the counts of
these jobs go down, and a job without missing inputs is ready: every edge of the graph is visited once, however long
jobs wait and however many there are.

An update that chooses among its models is two jobs, a comparison and the update, which waits for it: a comparison needs
the received models alone, so that a peer's choice of neighbours need not wait for its training.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, TypeVar

from pens.protocol.messages import Blend, ModelRef, PeerId, Phase, Update
from pens.settings.schema import Score


@dataclass(eq=False, slots=True)
class Updating:
    """A recorded update: merge and train."""

    peer: PeerId
    time: float
    """When it is complete."""
    action: Update
    """What the peer wants done."""
    models: tuple[ModelRef, ...]
    """Those to merge: as received; once compared, the chosen ones."""
    own: ModelRef
    """The peer's own model before."""
    out: ModelRef
    """The one that comes out."""
    place: int = 0
    """In the order of recording."""
    missing: int = 0
    """Inputs that are not known yet."""
    begun: bool = False
    open: bool = True
    """Whether it is not done yet."""

    @property
    def received(self) -> list[PeerId]:
        """Whose models it merges, beside those that the peer made itself."""
        return [owner for owner, version in self.models if version >= 0]


class Question(NamedTuple):
    """What a scoring answers that is no comparison: it is not counted in step 1."""

    name: str
    on: Literal["train", "val"]
    """The samples of the peer on which the models are scored."""
    time: float
    """When it is answered."""
    num_asked: int
    """The peer asked for the losses of the first so many models; the others are there to compare with. 0: it asked for
    distances, and nothing is evaluated."""


@dataclass(eq=False, slots=True)
class Scoring:
    """A recorded comparison: score models, and count the top m."""

    peer: PeerId
    number: int
    """Of the peer's comparisons."""
    round: int
    """Updates that the peer had begun before: in step 1, the round."""
    models: tuple[ModelRef, ...]
    top_m: int
    update: Updating | None
    """The update that merges the top m, if one does."""
    question: Question | None = None
    by: Score = "loss"
    """How the models are compared."""
    own: ModelRef | None = None
    """The peer's own model, where the others are compared by how far they lie from it."""
    refused: frozenset[ModelRef] = frozenset()
    """Models that count for nothing (`pens.learning.gate`), found when the job is computed."""
    place: int = 0
    missing: int = 0

    @property
    def reads(self) -> tuple[ModelRef, ...]:
        """All models that have to be known."""
        return self.models if self.own is None else (self.own, *self.models)


@dataclass(eq=False, slots=True)
class Blending:
    """A recorded blend: an average that becomes a model of the peer's own, beside the one that it trains."""

    peer: PeerId
    own: ModelRef
    """The peer's own model at that moment."""
    action: Blend
    place: int = 0
    missing: int = 0


@dataclass(eq=False, slots=True)
class Forging:
    """A recorded forgery: what an attacker of a simulation sends in place of its model."""

    peer: PeerId
    own: ModelRef
    """The attacker's own model at that moment."""
    receiver: ModelRef
    """The receiver's."""
    out: ModelRef
    searching: bool
    """Whether the attacker is still looking for neighbours."""
    place: int = 0
    missing: int = 0


Job = Scoring | Updating | Blending | Forging


class JobGraph:
    """The jobs of one run that are recorded and not yet done."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._open: dict[int, Job] = {}
        self._recorded = 0
        self._waiting: dict[ModelRef, list[Job]] = {}
        self._ready_blendings: list[Blending] = []
        self._ready_forgings: list[Forging] = []
        self._ready_scorings: list[Scoring] = []
        self._ready_updates: list[Updating] = []
        self._chains: dict[PeerId, deque[Updating]] = {}
        self._unscored: Counter[PeerId] = Counter()
        self.num_updates = 0
        """Updates that have not begun."""

    # --- questions ----------------------------------------------------------------------------------------------------

    def next_update(self, peer: PeerId) -> Updating | None:
        """A peer's first update that is not done."""
        chain = self._chains.get(peer)
        return chain[0] if chain else None

    def is_scored(self, peer: PeerId) -> bool:
        """Whether all comparisons of a peer are done."""
        return not self._unscored[peer]

    # --- what goes in -------------------------------------------------------------------------------------------------

    def add_scoring(self, job: Scoring, known: Collection[ModelRef]) -> None:
        self._add(job, job.reads, known)
        self._unscored[job.peer] += 1

    def add_blending(self, job: Blending, known: Collection[ModelRef]) -> None:
        self._add(job, (job.own, *job.action.models), known)

    def add_forging(self, job: Forging, known: Collection[ModelRef]) -> None:
        self._add(job, (job.own, job.receiver), known)

    def add_update(self, job: Updating, known: Collection[ModelRef], compares: bool) -> None:
        """`compares`: a comparison follows, which waits for the models and chooses among them."""
        job.missing = int(compares)
        self._add(job, (job.own,) if compares else (job.own, *job.models), known)
        self._chains.setdefault(job.peer, deque()).append(job)
        self.num_updates += 1

    def _add(self, job: Job, reads: Iterable[ModelRef], known: Collection[ModelRef]) -> None:
        job.place = self._recorded
        self._recorded += 1
        self._open[job.place] = job
        for ref in reads:
            if ref not in known:
                self._waiting.setdefault(ref, []).append(job)
                job.missing += 1
        if not job.missing:
            self._make_ready(job)

    # --- what comes out -----------------------------------------------------------------------------------------------

    def know(self, ref: ModelRef) -> None:
        """A model has got its values."""
        for job in self._waiting.pop(ref, ()):
            self._miss_one_less(job)

    def take_blendings(self, at_most: int) -> list[Blending]:
        """Blends that are ready, in the order of recording; 0: all. Each is then to be `blended`."""
        taken, self._ready_blendings = _first(self._ready_blendings, at_most)
        return taken

    def take_forgings(self) -> list[Forging]:
        """Forgeries that are ready, in the order of recording. Each is then to be `forged`."""
        taken, self._ready_forgings = _first(self._ready_forgings, 0)
        return taken

    def take_scorings(self, at_most: int) -> list[Scoring]:
        """Comparisons that are ready, in the order of recording; 0: all. Each is then to be `scored`."""
        taken, self._ready_scorings = _first(self._ready_scorings, at_most)
        return taken

    def take_updates(self, at_most: int) -> list[Updating]:
        """Updates that are ready, in the order of recording; 0: all. Each is then to be `updated`."""
        taken, self._ready_updates = _first([job for job in self._ready_updates if job.open], at_most)
        for job in taken:
            self._begin(job)
        return taken

    def forged(self, job: Forging) -> None:
        """A forgery is done."""
        del self._open[job.place]

    def blended(self, job: Blending) -> None:
        """A blend is done."""
        del self._open[job.place]

    def scored(self, job: Scoring, chosen: tuple[ModelRef, ...]) -> None:
        """A comparison is done."""
        del self._open[job.place]
        self._unscored[job.peer] -= 1
        if job.update:
            job.update.models = chosen
            self._miss_one_less(job.update)

    def updated(self, job: Updating) -> None:
        """The first update of a peer's chain is done: it was computed, or its peer has stopped."""
        job.open = False
        del self._open[job.place]
        first = self._chains[job.peer].popleft()
        assert first is job
        self._begin(job)

    def _begin(self, job: Updating) -> None:
        self.num_updates -= not job.begun
        job.begun = True

    def _miss_one_less(self, job: Job) -> None:
        job.missing -= 1
        if not job.missing:
            self._make_ready(job)

    def _make_ready(self, job: Job) -> None:
        match job:
            case Blending():
                self._ready_blendings.append(job)
            case Forging():
                self._ready_forgings.append(job)
            case Scoring():
                self._ready_scorings.append(job)
            case Updating():
                self._ready_updates.append(job)

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self) -> list[list[Any]]:
        """All open jobs in the order of recording, as plain data."""
        return [_encode(job) for job in self._open.values()]

    def restore(self, state: list[list[Any]], known: Collection[ModelRef]) -> None:
        """Become what `state` described."""
        self._clear()
        compared = {(job[1], job[6]) for job in state if job[0] == "scoring"}  # (peer, the update that merges the best)
        updates: dict[tuple[int, int], Updating] = {}
        for kind, peer, *values in state:
            if kind == "update":
                time, own, out, action = values
                me, update = PeerId(peer), decode_update(action)
                job = Updating(me, time, update, update.models, ModelRef(me, own), ModelRef(me, out))
                updates[peer, out] = job
                self.add_update(job, known, (peer, out) in compared)
            elif kind == "blend":
                own, blend = values
                me = PeerId(peer)
                self.add_blending(Blending(me, ModelRef(me, own), decode_blend(blend)), known)
            elif kind == "forge":
                own, receiver, out, searching = values
                me, theirs = PeerId(peer), _refs([receiver])[0]
                self.add_forging(Forging(me, ModelRef(me, own), theirs, ModelRef(me, out), searching), known)
            else:
                number, round_, models, top_m, merging, question, by, own = values
                merges = None if merging is None else updates[peer, merging]
                how = Question(*question) if question else None
                me = PeerId(peer)
                beside = None if own is None else ModelRef(me, own)
                self.add_scoring(Scoring(me, number, round_, _refs(models), top_m, merges, how, by, beside), known)


def _encode(job: Job) -> list[Any]:
    if isinstance(job, Blending):
        return ["blend", job.peer, job.own.version, encode_blend(job.action)]
    if isinstance(job, Forging):
        return ["forge", job.peer, job.own.version, list(job.receiver), job.out.version, job.searching]
    if isinstance(job, Updating):
        action = encode_update(replace(job.action, models=job.models))
        return ["update", job.peer, job.time, job.own.version, job.out.version, action]
    merging, own = job.update.out.version if job.update else None, job.own.version if job.own else None
    how = [list(map(list, job.models)), job.top_m, merging, job.question, job.by, own]
    return ["scoring", job.peer, job.number, job.round, *how]


_BESIDE_MODELS = [of.name for of in fields(Update)][1:]


def encode_update(update: Update) -> list[Any]:
    """As plain data: its models, and then all that it says beside them."""
    return [list(map(list, update.models)), *(getattr(update, name) for name in _BESIDE_MODELS)]


def decode_update(data: Sequence[Any]) -> Update:
    """What `encode_update` made plain data of."""
    models, *others = data
    said = dict(zip(_BESIDE_MODELS, map(_with_tuples, others), strict=True))
    return Update(_refs(models), **{**said, "phases": tuple(Phase(*phase) for phase in said["phases"])})


def encode_blend(blend: Blend) -> list[Any]:
    """As plain data."""
    models = [list(ref) for ref in (blend.out, *blend.models)]
    return [models, list(blend.weights), [list(pair) for pair in blend.segment_weights], list(blend.untrained)]


def decode_blend(data: Sequence[Any]) -> Blend:
    """What `encode_blend` made plain data of."""
    models, *said = data
    out, *others = _refs(models)
    return Blend(out, tuple(others), *map(_with_tuples, said))


def _with_tuples(value: Any) -> Any:
    """JSON has lists only: tuples in their place."""
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _refs(models: list[list[int]]) -> tuple[ModelRef, ...]:
    return tuple(ModelRef(PeerId(owner), version) for owner, version in models)


J = TypeVar("J", Scoring, Updating, Blending, Forging)


def _first(ready: list[J], at_most: int) -> tuple[list[J], list[J]]:
    """The first jobs in the order of recording, and the rest."""
    ready.sort(key=lambda job: job.place)
    cut = at_most or len(ready)
    return ready[:cut], ready[cut:]

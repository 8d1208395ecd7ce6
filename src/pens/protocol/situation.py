# SPDX-License-Identifier: Apache-2.0
"""What outlives a phase of a peer's life: whom it knows, its counters, the models it saved, its random choices."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pens import rng
from pens.protocol.conduct import Conduct
from pens.protocol.messages import Action, Blend, Drop, ModelRef, Note, PeerId, Phase, Update
from pens.protocol.plan import Plan
from pens.settings.schema import Keep


class Situation:
    """A peer as its behaviours see it."""

    tries_state: bool = False
    """Whether behaviours of others are tried out early: whether they come back from their state (`guarded`)."""

    def __init__(self, me: PeerId, seed: int, plan: Plan, reachable: Sequence[PeerId]) -> None:
        """`reachable`: whom it may talk to, in ascending order."""
        self.me, self.plan = me, plan
        self._seed, self._key = seed, rng.key(seed, "peer", me)
        self.reachable = reachable
        self.neighbours: Sequence[PeerId] = reachable
        self.updates = 0
        """Updates done in this phase."""
        self.waits = 0
        """WAIT(Δ)s since step 1 began; in step 2, since the last update."""
        self.busy = False
        """Whether an update is in progress, or a behaviour has put one off until it is answered."""
        self.notes: dict[PeerId, Note] = {}
        """What each sender said last beside a model."""
        self.made: dict[str, ModelRef] = {}
        """Models that it made beside its own one, by name (`blend`). They outlive phases, until it finishes."""
        self.conduct = Conduct()
        """How others' models did, where the plan does not trust them."""
        self._num_made = 0
        self._draws = 0  # random decisions taken so far
        self._saved: dict[PeerId, ModelRef] = {}  # SAVE(w_i): the newest model of each sender, oldest first

    def enter(self, phase: str) -> list[Action]:
        """Begin a phase afresh: counters at zero, nothing saved."""
        raise NotImplementedError

    def update(
        self,
        models: tuple[ModelRef, ...],
        *,
        may_stop: bool,
        top_m: int | None = None,
        epochs: int | None = None,
        keep: Keep = "last",
        from_kept: bool = False,
        weights: tuple[float, ...] | None = None,
        segment_weights: tuple[tuple[str, tuple[float, ...]], ...] = (),
        apart: bool = False,
        phases: tuple[Phase, ...] = (),
        from_first: bool = False,
    ) -> Update:
        """Merge and train: the peer is busy until that is done. `Update` explains the arguments."""
        self.busy = True
        if epochs is None:
            phases = phases or self.plan.phases
            epochs = sum(phase.epochs for phase in phases) if phases else self.plan.epochs
        said = (models, top_m, epochs, may_stop, keep, from_kept, weights, segment_weights, apart, phases, from_first)
        return Update(*said)

    def blend(
        self,
        name: str,
        models: tuple[ModelRef, ...],
        weights: tuple[float, ...],
        segment_weights: tuple[tuple[str, tuple[float, ...]], ...] = (),
        untrained: tuple[int | str, ...] = (),
    ) -> list[Action]:
        """Make a model beside the own one, and keep it as `made[name]` in place of what had that name. `Blend` explains
        the arguments. Whoever uses it up in an update takes it out of `made`."""
        self._num_made += 1
        older, self.made[name] = self.made.get(name), ModelRef(self.me, -self._num_made)
        blend = Blend(self.made[name], models, weights, segment_weights, untrained)
        return [blend, Drop(older, "replaced")] if older else [blend]

    @property
    def num_saved(self) -> int:
        """Senders of whom a model waits to be used."""
        return len(self._saved)

    @property
    def saved(self) -> tuple[ModelRef, ...]:
        """The models that wait to be used, the oldest first."""
        return tuple(self._saved.values())

    def save(self, model: ModelRef) -> ModelRef | None:
        """SAVE(w_i): keep a received model; returns the sender's older one, which it replaces."""
        older = self._saved.pop(model.owner, None)
        self._saved[model.owner] = model
        return older

    def save_all(self, models: Sequence[ModelRef]) -> list[ModelRef]:
        """Likewise, several at once; returns those that are replaced."""
        if not self._saved and len(new := {model.owner: model for model in models}) == len(models):
            self._saved = new
            return []
        return [older for model in models if (older := self.save(model))]

    def take(self, count: int) -> tuple[ModelRef, ...]:
        """The oldest saved models, which are no longer saved then."""
        if count >= len(self._saved):
            taken, self._saved = tuple(self._saved.values()), {}
            return taken
        senders = list(self._saved)[:count]
        return tuple(self._saved.pop(sender) for sender in senders)

    def next_wait(self) -> float:
        """Δ, with jitter."""
        return self.plan.interval * (1 + self.plan.jitter * (2 * self.number() - 1))

    def shared_random(self, number: int) -> random.Random:
        """A stream that is the same for all participants of a run, for what several decide alike. `number`: that of the
        decision."""
        return rng.stream(self._seed, "shared", number)

    def random(self) -> random.Random:
        """A stream for the next random decision."""
        self._draws += 1
        return rng.stream(self._seed, "peer", self.me, self._draws)

    def number(self) -> float:
        """The next random number.  0 … 1"""
        self._draws += 1
        return rng.number(self._key, self._draws)

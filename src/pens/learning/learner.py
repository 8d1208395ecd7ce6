# SPDX-License-Identifier: Apache-2.0
"""One peer's numbers: how far its model is, its early stopping, what it counted, and the rows that it holds.

There is one `Learner` per peer, of 100,000 in a large simulation: it has slots, and counters of others hold only those
whom the peer met.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from pens.engine.stack import ModelStack
from pens.learning.executor import MomentRows
from pens.learning.trust import Mistrust
from pens.protocol.messages import ModelRef, PeerId
from pens.protocol.policies import EarlyStopping, Tally

_LATELY = 20
"""Validation results over which forms are compared: more than early stopping looks at, since forms differ by little."""
LATELY_ALONE = 5
"""Likewise of a trial alone, which is short: what it was like at its beginning does not count."""

APART = "alone"
FORMS = {"trained": "fine-tuned", "merged": "merged", APART: "trained without others"}
"""The forms of a model that a peer may validate, and what they are called."""

VERDICTS = -1
"""In place of the number of a scoring, where a peer asked how others' models did."""

NO_SAMPLES = -1
"""The slot of a server, which holds no samples."""


class Answer(NamedTuple):
    """The answer to a question, until the peer is told."""

    name: str
    """The name of the question."""
    number: int
    """The number of the scoring that computes the answer; 0: the peer asked for its counts; `VERDICTS`: how others'
    models did."""
    losses: tuple[float, ...] = ()


class Compared(NamedTuple):
    """What a peer counts of one comparison of step 1."""

    senders: tuple[PeerId, ...]
    chosen: tuple[PeerId, ...]
    """Those whose models were among the top m."""
    heights: tuple[float, ...]
    """How high each loss was (`pens.protocol.lowest_group.heights_of`); none where nobody asks for it."""


class Kept(NamedTuple):
    """A model that a peer keeps aside, for a later update to begin with (`pens.settings.schema.Keep`)."""

    row: int
    first: int
    """The row of its own model before the first update that kept one: an update can begin with that, too."""
    val_loss: float = math.inf
    """Infinite for the first model: any other is better."""

    @property
    def rows(self) -> tuple[int, int]:
        """The rows that are held for it."""
        return self.row, self.first


@dataclass(slots=True)
class Form:
    """A form of a peer's model that is validated: as it was fine-tuned, or as it was merged."""

    stopping: EarlyStopping
    best: int | None = None
    """The row of the best model of this form."""
    level: float = -math.inf
    """How good models of this form were lately: the mean of the first results, and later a running mean."""
    rounds: int = 0
    lately: int = _LATELY
    """Over about how many results the running mean goes."""

    def observe(self, loss: float, goodness: float) -> bool:
        """Take in one validation result; whether its model is the best of this form so far."""
        value = self.stopping.value(loss, goodness)
        self.rounds += 1
        if math.isinf(self.level) or math.isinf(value):
            self.level = value
        else:
            self.level += (value - self.level) / min(self.rounds, self.lately)
        return self.stopping.observe(loss, goodness)

    def state(self, place: Mapping[int, int]) -> list[Any]:
        """As plain data. `place`: of each row among those that are written."""
        best = None if self.best is None else place[self.best]
        return [asdict(self.stopping), best, self.level, self.rounds, self.lately]

    @staticmethod
    def restored(state: Sequence[Any], rows: Sequence[int], stack: ModelStack) -> Form:
        """What `state` described. `rows`: where the models are now that were written."""
        stopping, best, *how = state
        return Form(EarlyStopping(**stopping), None if best is None else stack.retain(rows[best]), *how)


@dataclass(slots=True)
class Learner:
    """What is known of one peer."""

    slot: int
    """The slot of its samples in the stacks of samples; `NO_SAMPLES` where it holds none."""
    latest: ModelRef
    """Its newest model that is computed."""
    forms: dict[str, Form]
    """The forms of its model that it validates, by their names in `FORMS`."""
    recorded: int = 0
    """Updates that are recorded, whether computed or not."""
    scorings: int = 0
    """Comparisons and questions for losses that are recorded, whether computed or not."""
    may_stop: bool = False
    """Whether early stopping applies already."""
    stop_time: float = math.inf
    """When it stopped early, in virtual time."""
    kept: Kept | None = None
    """The model that it keeps aside, where its newest update says so."""
    moments: MomentRows | None = None
    """What its optimizer remembers between updates, where it does."""
    tally: Tally = field(default_factory=Tally)
    """What it counted in step 1."""
    counted: int = 0
    """Scorings that are computed and counted, in the order in which they were recorded."""
    uncounted: dict[int, Compared | None] = field(default_factory=dict)
    """Scorings that were computed before an earlier one, by their numbers; None: a question, which is not counted."""
    merges: Counter[PeerId] = field(default_factory=Counter)
    """How often it merged a model of each other."""
    scored: int = 0
    """Models that it compared in step 1."""
    answers: list[Answer] = field(default_factory=list)
    """Answers that the peer was not told yet, in the order of its questions."""
    asked: list[tuple[float, int]] = field(default_factory=list)
    """(time, models) of each question for losses."""
    mistrust: Mistrust = field(default_factory=Mistrust)
    """What it remembers where others' models are not trusted."""

    @property
    def has_samples(self) -> bool:
        """Whether its models are trained and validated; those of a server are merged, and no more."""
        return self.slot != NO_SAMPLES

    @property
    def num_computed(self) -> int:
        """Updates that are computed, the first training included."""
        return self.latest.version

    @property
    def has_stopped(self) -> bool:
        """Whether it stopped early: its later updates are no work."""
        return self.may_stop and self.forms[self.preferred(of_gossip=True)].stopping.stopped

    def preferred(self, of_gossip: bool = False) -> str:
        """The form that does best on its validation data. `of_gossip`: of those that its updates end with."""
        if len(self.forms) == 1:
            return next(iter(self.forms))
        return max((name for name in self.forms if name != APART or not of_gossip), key=lambda of: self.forms[of].level)

    @property
    def best(self) -> int | None:
        """The row of its best model on its validation data."""
        return self.forms[self.preferred()].best

    def begin_stopping(self, new: Callable[[], EarlyStopping]) -> None:
        """From here on early stopping applies, and the past does not count."""
        self.may_stop = True
        for name, form in self.forms.items():
            if name != APART:
                form.stopping, form.level, form.rounds = new(), -math.inf, 0

    def num_asked(self, until: float) -> int:
        """Models whose losses it had asked for by this time."""
        return sum(count for time, count in self.asked if time <= until)

    def count(self, number: int, compared: Compared | None) -> None:
        """Count the scoring of this number as soon as all earlier ones are counted: what is known of senders depends on
        the order, and must not depend on which scorings are computed together."""
        self.uncounted[number] = compared
        while self.counted + 1 in self.uncounted:
            self.counted += 1
            if done := self.uncounted.pop(self.counted):
                self.tally.add(*done)

    def note(self, number: int, losses: Sequence[float]) -> None:
        """Keep the answer to the question that this scoring computed, until the peer is told."""
        place = next(i for i, answer in enumerate(self.answers) if answer.number == number)
        self.answers[place] = self.answers[place]._replace(losses=tuple(losses))

    def take_answer(self, name: str) -> Any:
        """The answer to the first question of this name that the peer was not told yet."""
        answer = next(answer for answer in self.answers if answer.name == name)
        self.answers.remove(answer)
        if answer.number == VERDICTS:
            return self.mistrust.tell()
        return answer.losses if answer.number else self.tally

    @property
    def awaits_verdicts(self) -> bool:
        """Whether it asked how others' models did, which is known when its update is computed."""
        return any(answer.number == VERDICTS for answer in self.answers)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def held_rows(self) -> Iterator[int]:
        """Rows that it holds beside those of named models."""
        yield from (form.best for form in self.forms.values() if form.best is not None)
        if self.kept:
            yield from self.kept.rows
        if self.moments:
            yield from self.moments.rows

    def let_go(self, stack: ModelStack) -> None:
        """Release all these rows."""
        for row in self.held_rows():
            stack.release(row)
        for form in self.forms.values():
            form.best = None
        self.kept = self.moments = None

    # --- state on disk ------------------------------------------------------------------------------------------------

    def state(self, place: Mapping[int, int], *, mistrusts: bool = False) -> dict[str, Any]:
        """All that changes, as plain data. `place`: of each row among those that are written. `mistrusts`: whether it
        remembers anything of others' models."""
        kept, moments = self.kept, self.moments
        return {
            "counts": [self.recorded, self.num_computed, self.scorings, self.scored],
            "forms": {name: form.state(place) for name, form in self.forms.items()},
            "may_stop": self.may_stop,
            "stop_time": self.stop_time,
            "kept": [*(place[row] for row in kept.rows), kept.val_loss] if kept else None,
            "moments": [[place[row] for row in moments.rows], moments.steps] if moments else None,
            "tally": self.tally.state(),
            "counted": [self.counted, list(self.uncounted.items())],
            "merges": [[peer, count] for peer, count in self.merges.items()],
            "answers": [list(answer) for answer in self.answers],
            "asked": [list(asked) for asked in self.asked],
            **({"mistrust": self.mistrust.state()} if mistrusts else {}),
        }

    def restore(self, state: Mapping[str, Any], rows: Sequence[int], stack: ModelStack) -> None:
        """Become what `state` described. `rows`: where the models are now that were written."""
        self.let_go(stack)
        self.recorded, computed, self.scorings, self.scored = state["counts"]
        self.latest = ModelRef(self.latest.owner, computed)
        self.forms = {name: Form.restored(form, rows, stack) for name, form in state["forms"].items()}
        self.may_stop, self.stop_time = state["may_stop"], state["stop_time"]
        self.tally = Tally.restored(state["tally"])
        self.counted, uncounted = state["counted"]
        self.uncounted = {number: done and _compared(done) for number, done in uncounted}
        self.merges = Counter({PeerId(peer): count for peer, count in state["merges"]})
        self.answers = [Answer(name, number, tuple(losses)) for name, number, losses in state["answers"]]
        self.asked = [(time, count) for time, count in state["asked"]]
        self.mistrust = Mistrust.restored(state["mistrust"]) if "mistrust" in state else Mistrust()
        if state["kept"]:
            row, first, val_loss = state["kept"]
            self.kept = Kept(stack.retain(rows[row]), stack.retain(rows[first]), val_loss)
        if state["moments"]:
            places, steps = state["moments"]
            self.moments = MomentRows([stack.retain(rows[place]) for place in places], steps)


def _compared(data: Sequence[Any]) -> Compared:
    """JSON has lists only: tuples in their place."""
    senders, chosen, heights = data
    return Compared(tuple(map(PeerId, senders)), tuple(map(PeerId, chosen)), tuple(heights))

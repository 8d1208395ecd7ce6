"""The decisions of the paper that depend on numbers: pure functions, each rule in one place.

    select_top_m         Algorithm 2, SELECT_TOP_M
    choose_neighbours    Algorithm 2, SELECTNEIGHBORS ("merged with i more than expected")
    EarlyStopping        section 5.4, "early stopping on local validation data"

Drivers call them with the numbers; `pens.peer` never sees a number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pens.messages import PeerId


def select_top_m(senders: Sequence[PeerId], losses: Sequence[float], m: int) -> list[int]:
    """Algorithm 2, SELECT_TOP_M: positions of the m models with the lowest loss on the receiver's training data.

    A loss that is not a number is the worst of all; ties go to the lower peer number.
    """

    def rank(i: int) -> tuple[float, int]:
        return (math.inf if math.isnan(losses[i]) else losses[i], senders[i])

    return sorted(range(len(senders)), key=rank)[:m]


@dataclass
class Tally:
    """What one peer counts during step 1."""

    selected: Counter[PeerId] = field(default_factory=Counter)
    """How often each peer was among the top m."""
    sampled: Counter[PeerId] = field(default_factory=Counter)
    """How often each peer was compared."""
    samplings: int = 0

    def add(self, senders: Sequence[PeerId], chosen: Sequence[PeerId]) -> None:
        """Count one sampling: who was compared, who was among the top m."""
        self.sampled.update(senders)
        self.selected.update(chosen)
        self.samplings += 1


@dataclass(frozen=True)
class SelectionRule:
    """What "more than expected" means."""

    m: int
    n_sampled: int
    num_others: int
    """Peers that could have been sampled."""
    expected: Literal["uniform", "received"]
    significance: float = 0.0
    """0: more than expected. Else a neighbour must have been selected so often that chance would do so less likely."""


@dataclass(frozen=True)
class Selection:
    """The end of step 1."""

    neighbours: tuple[PeerId, ...]
    fallback: bool
    """Nobody was selected more than expected, and the most often selected were taken."""


def choose_neighbours(tally: Tally, rule: SelectionRule) -> Selection:
    """Algorithm 2, SELECTNEIGHBORS: those selected more often than expected.

    Whoever finds nobody takes the m selected most often, rather than train alone.
    """
    found = [p for p, count in tally.selected.items() if is_neighbour(count, tally.sampled[p], tally.samplings, rule)]
    if found:
        return Selection(tuple(sorted(found)), fallback=False)
    by_count = sorted(tally.selected.items(), key=lambda item: (-item[1], item[0]))
    return Selection(tuple(sorted(p for p, _ in by_count[: rule.m])), fallback=True)


def is_neighbour(selected: int, compared: int, samplings: int, rule: SelectionRule) -> bool:
    """Whether a peer that was selected so often, of so many comparisons, in so many samplings, becomes a neighbour."""
    if not more_than_expected(selected, compared, samplings, rule):
        return False
    trials, among = (samplings, rule.num_others) if rule.expected == "uniform" else (compared, rule.n_sampled)
    return not rule.significance or _upper_tail(selected, trials, rule.m / among) < rule.significance


def more_than_expected(selected: Any, compared: Any, samplings: Any, rule: SelectionRule) -> Any:
    """Selected strictly more often than if chance had been the only cause: for one pair of peers, or arrays of them.

    uniform:  each of a peer's samplings takes each other peer with probability m / (k − 1).
    received: each comparison ends in the top m with probability m / n_sampled. For pushed models, where some senders
              are heard more often than others.
    """
    if rule.expected == "uniform":
        return selected * rule.num_others > rule.m * samplings
    return selected * rule.n_sampled > rule.m * compared


def _upper_tail(count: int, trials: int, chance: float) -> float:
    """The probability of at least `count` successes: the upper tail of a binomial distribution."""
    return math.fsum(math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(count, trials + 1))


@dataclass
class EarlyStopping:
    """Section 5.4, per peer: what counts is the mean of the last `window` validation results, by accuracy (default) or
    by loss. The round in which it is highest has the best model; after `patience` rounds without a new best, stop.

    The mean, because one result on a hundred samples is off by five points now and then: the highest single result
    is mostly luck.
    """

    stop_on: Literal["accuracy", "loss"]
    window: int
    patience: int
    recent: list[float] = field(default_factory=list)
    best: float = -math.inf
    rounds_since_best: int = 0
    stopped: bool = False

    def observe(self, loss: float, accuracy: float) -> bool:
        """Take in one round's validation result; whether its model is the best so far."""
        value = accuracy if self.stop_on == "accuracy" else -loss
        value = -math.inf if math.isnan(value) else value
        self.recent = [*self.recent, value][-self.window :]
        mean = -math.inf if -math.inf in self.recent else math.fsum(self.recent) / len(self.recent)
        is_best = self.best == -math.inf or mean > self.best + 1e-9
        self.best = mean if is_best else self.best
        self.rounds_since_best = 0 if is_best else self.rounds_since_best + 1
        self.stopped = self.rounds_since_best >= self.patience
        return is_best

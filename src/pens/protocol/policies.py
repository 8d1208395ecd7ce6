# SPDX-License-Identifier: Apache-2.0
"""The decisions of the paper that depend on numbers: pure functions, each rule in one place.

    select_top_m         Algorithm 2, SELECT_TOP_M
    choose_neighbours    Algorithm 2, SELECTNEIGHBORS ("merged with i more than expected"), of what a peer counted
    select_neighbours    the same rule on columns of counts, for all who have counts
    upper_group          not in the paper: neighbours as those whose models are selected often when compared
    is_win, admitted     not in the paper: strangers that become neighbours in step 2 (docs/decisions/0018)
    EarlyStopping        section 5.4, "early stopping on local validation data"

Learners call `select_top_m` and `EarlyStopping` with the numbers that they compute. A peer calls `choose_neighbours`,
`is_win` and `admitted` with the counts and losses that it asked for (`Ask`) and was answered (`Answered`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Literal

from pens.protocol.lowest_group import lowest_group
from pens.protocol.messages import PeerId

_EM_STEPS = 200

_TRIALS_KEPT = 64


def select_top_m(senders: Sequence[PeerId], losses: Sequence[float], m: int) -> list[int]:
    """Algorithm 2, SELECT_TOP_M: positions of the m models with the lowest loss on the receiver's training data.

    A loss that is not a number is the worst of all. Of equal ones the model that was received first goes first: the
    order of receipt is random, that of peer numbers is not.
    """

    def rank(i: int) -> float:
        return math.inf if math.isnan(losses[i]) else losses[i]

    return sorted(range(len(senders)), key=rank)[:m]


@dataclass
class Tally:
    """What one peer counts during step 1."""

    selected: Counter[PeerId] = field(default_factory=Counter)
    """How often each peer was among the top m."""
    sampled: Counter[PeerId] = field(default_factory=Counter)
    """How often each peer was compared."""
    samplings: int = 0
    size: int = 0
    """Models in a sampling: in the first one, and in all that are not set apart."""
    apart: dict[int, Counter[PeerId]] = field(default_factory=dict)
    """How often each peer was compared in samplings of another size, by that size; counted in `sampled`, too."""
    above: dict[PeerId, float] = field(default_factory=dict)
    """How far the heights of each peer's models lay above the levels of their samplings, times the samplings' weights,
    summed up."""
    weights: dict[PeerId, float] = field(default_factory=dict)
    """The weights of the samplings in which each peer was, summed up."""

    def add(self, senders: Sequence[PeerId], chosen: Sequence[PeerId], heights: Sequence[float] = ()) -> None:
        """Count one sampling: who was compared, who was among the top m, and how high each loss was (`heights_of`)."""
        if heights:
            self._add_heights(senders, heights)
        self.sampled.update(senders)
        self.selected.update(chosen)
        self.samplings += 1
        if len(senders) != self.size:
            self._set_apart(senders)

    def _add_heights(self, senders: Sequence[PeerId], heights: Sequence[float]) -> None:
        """Count how far each model's height lies above the level of this sampling: the level is such that those of its
        senders that are known keep their mean. A height that is no number counts as the highest of the sampling.

        The n-th sampling weighs n: models of other data are told apart far better when they have been trained for some
        time (docs/decisions/0040)."""
        finite = [height for height in heights if math.isfinite(height)]
        if not finite:
            return
        values = [height if math.isfinite(height) else max(finite) for height in heights]
        known = [i for i, sender in enumerate(senders) if sender in self.above] or range(len(senders))
        level = math.fsum(values[i] - self.height(senders[i]) for i in known) / len(known)
        weight = float(self.samplings + 1)
        for sender, value in zip(senders, values, strict=True):
            self.above[sender] = self.above.get(sender, 0.0) + weight * (value - level)
            self.weights[sender] = self.weights.get(sender, 0.0) + weight

    def height(self, peer: PeerId) -> float:
        """How far the heights of a peer's models lay above those beside which they were compared, on average; 0 for
        whoever was never compared."""
        return self.above[peer] / self.weights[peer] if peer in self.above else 0.0

    def _set_apart(self, senders: Sequence[PeerId]) -> None:
        if not self.size:
            self.size = len(senders)
        else:
            self.apart.setdefault(len(senders), Counter()).update(senders)

    def expected(self, peer: PeerId, rule: SelectionRule) -> float:
        """How often a peer would be among the top m, were chance the only cause in each of its comparisons."""
        apart = {size: compared[peer] for size, compared in self.apart.items()}
        counts = {**apart, self.size or rule.n_sampled: self.sampled[peer] - sum(apart.values())}
        return math.fsum(count * rule.chance(size) for size, count in counts.items() if count)

    def state(self) -> list[Any]:
        """As plain data."""
        apart = [[size, _pairs(compared)] for size, compared in self.apart.items()]
        above = [[peer, total, self.weights[peer]] for peer, total in self.above.items()]
        return [_pairs(self.selected), _pairs(self.sampled), self.samplings, self.size, apart, above]

    @staticmethod
    def restored(state: Sequence[Any]) -> Tally:
        """What `state` described."""
        selected, sampled, samplings, size, apart, above = state
        counters = {n: _counter(c) for n, c in apart}
        totals = {PeerId(peer): total for peer, total, _ in above}
        weights = {PeerId(peer): weight for peer, _, weight in above}
        return Tally(_counter(selected), _counter(sampled), samplings, size, counters, totals, weights)


@dataclass(frozen=True)
class SelectionRule:
    """What "more than expected" means."""

    m: int
    n_sampled: int
    num_others: int
    """Peers that could have been sampled: those that the peer can reach."""
    expected: Literal["uniform", "received"]
    by: Literal["expected", "groups", "levels"] = "expected"
    """Whether "more than expected" decides, or the upper of two groups of counts, or the lowest group of losses."""
    offset: float = 0.0
    """Added to the expected count."""
    nobody_found: Literal["most-selected", "alone"] = "most-selected"
    """What becomes of a peer that finds nobody."""

    def chance(self, size: int) -> float:
        """The probability that a comparison in a sampling of so many models ends in the top m."""
        return min(1.0, self.m / size)

    def by_chance(self, samplings: int, received: Iterable[float], num: int) -> list[float]:
        """How often each of `num` peers would have been selected, had chance been the only cause.

        uniform:  each sampling takes each of those that can be reached with probability m / num_others, which is
                  m / (k − 1) where all can be reached.
        received: each comparison ends in the top m with probability m / n_sampled, or by the size of its own sampling:
                  `received`. For pushed models, where some senders are heard more often than others.
        """
        if self.expected == "received":
            return list(received)
        return [self.m * samplings / self.num_others] * num if num else []


@dataclass(frozen=True)
class Selection:
    """The end of step 1."""

    neighbours: tuple[PeerId, ...]
    fallback: bool
    """Nobody was selected more than expected, and the most often selected were taken."""


def choose_neighbours(tally: Tally, rule: SelectionRule) -> Selection:
    """Algorithm 2, SELECTNEIGHBORS: those selected more often than expected; or by another rule, where there is one."""
    heard = sorted({*tally.sampled, *tally.selected})
    selected, compared = ([counts[peer] for peer in heard] for counts in (tally.selected, tally.sampled))
    if rule.by == "levels":
        is_lowest = lowest_group([tally.height(peer) for peer in heard])
        return Selection(tuple(compress(heard, is_lowest)), fallback=False)
    received = (tally.expected(peer, rule) for peer in heard)
    by_chance = rule.by_chance(tally.samplings, received, len(heard))
    return select_neighbours(heard, selected, compared, by_chance, rule)


def select_neighbours(
    heard: Sequence[PeerId],
    selected: Sequence[int],
    compared: Sequence[int],
    by_chance: Sequence[float],
    rule: SelectionRule,
) -> Selection:
    """The neighbours of one peer among those it heard, by how often it selected and compared each of them.

    `heard`: in ascending order. `by_chance`: how often each would have been selected (`SelectionRule.by_chance`).
    Whoever finds nobody takes the m selected most often, or trains alone.
    """
    if rule.by == "groups":
        is_found = _in_upper_group(selected, compared)
    else:
        is_found = [count > chance + rule.offset + 1e-9 for count, chance in zip(selected, by_chance, strict=True)]
    if any(is_found):
        return Selection(tuple(compress(heard, is_found)), fallback=False)
    if rule.nobody_found == "alone":
        return Selection((), fallback=True)
    by_count = sorted((-count, peer) for peer, count in zip(heard, selected, strict=True) if count)
    return Selection(tuple(sorted(peer for _, peer in by_count[: rule.m])), fallback=True)


def _in_upper_group(selected: Sequence[int], compared: Sequence[int]) -> list[bool]:
    """Nobody is in it who was never compared."""
    upper = iter(upper_group(list(compress(selected, compared)), list(filter(None, compared))))
    return [bool(trials) and next(upper) for trials in compared]


def upper_group(selected: Sequence[int], compared: Sequence[int]) -> list[bool]:
    """Not in the paper: which peers are among those whose models are selected often when they are compared.

    Models of a peer's own cluster are in its top m again and again, others hardly ever. So the counts are those of two
    groups, each with a probability of its own. Expectation maximisation finds both and how large the groups are;
    whoever is more probably in the upper one is in. "More than expected" lies between the two, but not where it tells
    them apart best: too low where many clusters share the rest, too high where a cluster is so large that its members
    crowd each other out (docs/decisions/0019).

    All are in where one group explains the counts as well (Bayesian information criterion): then there is one cluster.
    """
    if not any(selected):
        return [False] * len(selected)
    counts = sorted(Counter(zip(selected, compared, strict=True)).items())  # peers with the same counts go together
    size, all_hits, all_trials = len(selected), sum(selected), sum(compared)
    line = _best_line(counts)
    upper = [0.95 if hits / trials >= line else 0.05 for (hits, trials), _ in counts]  # the probability of being in it
    for _ in range(_EM_STEPS):
        weights = [is_in * peers for is_in, (_, peers) in zip(upper, counts, strict=True)]
        hits_in = sum(weight * hits for weight, ((hits, _), _) in zip(weights, counts, strict=True))
        trials_in = sum(weight * trials for weight, ((_, trials), _) in zip(weights, counts, strict=True))
        share = min(max(sum(weights) / size, 1e-3), 1 - 1e-3)
        often, seldom = _rate(hits_in, trials_in), _rate(all_hits - hits_in, all_trials - trials_in)
        prior, hit, miss = (math.log(a / b) for a, b in ((1 - share, share), (seldom, often), (1 - seldom, 1 - often)))
        before, upper = upper, [_sigmoid(-prior - hits * hit - (trials - hits) * miss) for (hits, trials), _ in counts]
        if max(abs(new - old) for new, old in zip(upper, before, strict=True)) < 1e-6:
            break
    groups = ((share, often), (1 - share, seldom))
    two = sum(
        peers * _log_of_sum(*(math.log(of) + _log_likelihood(*pair, rate) for of, rate in groups))
        for pair, peers in counts
    )
    one = _log_likelihood(all_hits, all_trials, _rate(all_hits, all_trials))
    if two - one <= math.log(size):  # two more parameters, each worth half the logarithm of the number of peers
        return [True] * size
    is_upper = {pair: is_in > 0.5 for (pair, _), is_in in zip(counts, upper, strict=True)}
    return [is_upper[pair] for pair in zip(selected, compared, strict=True)]


def _best_line(counts: Sequence[tuple[tuple[int, int], int]]) -> float:
    """The rate at which to cut the peers in two so that two probabilities explain them best: where to begin."""
    by_rate = sorted((hits / trials, hits * peers, trials * peers) for (hits, trials), peers in counts)
    all_hits, all_trials = sum(hits for _, hits, _ in by_rate), sum(trials for _, _, trials in by_rate)
    below_hits = below_trials = 0
    best, line = -math.inf, by_rate[0][0]
    for place, (rate, hits, trials) in enumerate(by_rate):
        if place and rate > by_rate[place - 1][0]:
            parts = ((below_hits, below_trials), (all_hits - below_hits, all_trials - below_trials))
            best, line = max((best, line), (sum(_log_likelihood(*part, _rate(*part)) for part in parts), rate))
        below_hits, below_trials = below_hits + hits, below_trials + trials
    return line


def _rate(hits: float, trials: float) -> float:
    """Never quite 0 or 1."""
    return (hits + 0.5) / (trials + 1)


def _log_likelihood(hits: float, trials: float, rate: float) -> float:
    """Of such counts, the binomial coefficient left out."""
    return hits * math.log(rate) + (trials - hits) * math.log1p(-rate)


def _log_of_sum(a: float, b: float) -> float:
    """Of two numbers, given their logarithms."""
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(min(max(-x, -50.0), 50.0)))


@dataclass
class Trials:
    """What one peer counts of strangers in step 2: those that it did not select, but that send to it."""

    wins: dict[PeerId, list[bool]] = field(default_factory=dict)
    """Of each stranger's latest trials, which it won."""

    def add(self, stranger: PeerId, win: bool) -> None:
        """Count one trial."""
        self.wins[stranger] = [*self.wins.get(stranger, []), win][-_TRIALS_KEPT:]

    def forget(self, peers: Iterable[PeerId]) -> None:
        """Their trials never happened."""
        for peer in peers:
            self.wins.pop(peer, None)

    def state(self) -> list[Any]:
        """As plain data."""
        return [[peer, wins] for peer, wins in self.wins.items()]

    @staticmethod
    def restored(state: Sequence[Any]) -> Trials:
        """What `state` described."""
        return Trials({PeerId(peer): list(won) for peer, won in state})


def is_win(loss: float, neighbours: Sequence[float]) -> bool:
    """Whether a stranger's model is at least as good as half of the neighbours' on the same samples.

    About half of the time for a mature model of the same cluster; hardly ever for an immature one, or another
    cluster's.
    """
    known = sorted(math.inf if math.isnan(other) else other for other in neighbours)
    middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
    return not math.isnan(loss) and loss <= middle


def admitted(trials: Trials, needed: int) -> tuple[PeerId, ...]:
    """Strangers that have had enough trials and won more than a quarter of the latest, in ascending order.

    The latest are at most twice as many as are needed: a newcomer's first models, which are not mature, do not count
    for ever.
    """
    latest = {peer: wins[-2 * needed :] for peer, wins in trials.wins.items()}
    return tuple(sorted(p for p, wins in latest.items() if len(wins) >= needed and 4 * sum(wins) > len(wins)))


def _pairs(counter: Counter[PeerId]) -> list[list[int]]:
    return [[peer, count] for peer, count in counter.items()]


def _counter(pairs: Sequence[Sequence[int]]) -> Counter[PeerId]:
    return Counter({PeerId(peer): count for peer, count in pairs})


@dataclass
class EarlyStopping:
    """Section 5.4, per peer: what counts is the mean of the last `window` validation results, by accuracy (default; in
    other tasks the main metric, as a number of which more is better) or by loss. The round in which it is highest has
    the best model; after `patience` rounds without a new best, stop.

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

    def value(self, loss: float, accuracy: float) -> float:
        """What counts of a validation result: more is better."""
        value = accuracy if self.stop_on == "accuracy" else -loss
        return -math.inf if math.isnan(value) else value

    def observe(self, loss: float, accuracy: float) -> bool:
        """Take in one round's validation result; whether its model is the best so far."""
        value = self.value(loss, accuracy)
        self.recent = [*self.recent, value][-self.window :]
        mean = -math.inf if -math.inf in self.recent else math.fsum(self.recent) / len(self.recent)
        is_best = self.best == -math.inf or mean > self.best + 1e-9
        self.best = mean if is_best else self.best
        self.rounds_since_best = 0 if is_best else self.rounds_since_best + 1
        self.stopped = self.rounds_since_best >= self.patience
        return is_best

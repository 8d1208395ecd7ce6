# SPDX-License-Identifier: Apache-2.0
"""The numbers of a report: differences between methods, the gain of each peer, and the cost of each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from pens.data.samples import Array
from pens.measuring.metrics import FEWEST_SEEDS, Interval, interval
from pens.measuring.results import DataSizes, RunResult, Summary, summarise, work_of
from pens.methods.names import in_order
from pens.paper.cells import PaperValue, paper_accuracy
from pens.report.study import Study
from pens.settings.tree import MethodName
from pens.tasks.metric import Measure

SIGNIFICANT = 0.05
"""A difference is significant where the p-value after Holm's correction is below this."""
FEWEST_FOR_WILCOXON = 6
"""With n seeds the p-value of the signed-rank test is at least 2 / 2ⁿ, so fewer than six seeds never reach 0.05."""


# --- differences between methods --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """By how much the better of two methods is better, seed by seed."""

    better: MethodName
    other: MethodName
    seeds: tuple[int, ...]
    values: tuple[float, ...]
    """Differences of the means over peers.  [seed]"""
    mean: Interval
    p_t: float | None
    """The p-value of the two-sided paired t test; None with fewer than three seeds, or where all differences are
    equal."""
    p_wilcoxon: float | None
    """The p-value of Wilcoxon's two-sided signed-rank test; None with too few seeds."""
    p_holm: float | None = None
    """`p_t` after Holm's correction for all differences of the experiment."""

    @property
    def is_clear(self) -> bool:
        """Whether the 95 % interval leaves out zero."""
        return self.mean.half_width is not None and abs(self.mean.mean) > self.mean.half_width

    @property
    def is_significant(self) -> bool:
        """Whether the test after Holm's correction rejects that the methods are alike; never with too few seeds."""
        return self.p_holm is not None and self.p_holm < SIGNIFICANT


@dataclass(frozen=True)
class SeedScores:
    """The mean scores of a method's runs by their seeds: all that a paired test needs."""

    method: MethodName
    by_seed: Mapping[int, float]
    measure: Measure

    @staticmethod
    def of(runs: Sequence[RunResult]) -> SeedScores:
        """Of the runs of one method."""
        return SeedScores(runs[0].method, {run.seed: run.mean_score for run in runs}, runs[0].metric)


def difference(one: Sequence[RunResult], two: Sequence[RunResult]) -> Difference | None:
    """Compare two methods over the seeds that both have; None where they share no seed."""
    return paired_test(SeedScores.of(one), SeedScores.of(two)) if one and two else None


def paired_test(one: SeedScores, two: SeedScores) -> Difference | None:
    """Compare two methods over the seeds that both have; None where they share no seed."""
    from scipy import stats  # imported here: it takes half a second, and only a report needs it

    shared = [seed for seed in one.by_seed if seed in two.by_seed]
    if not shared:
        return None
    measure, seeds = one.measure, tuple(shared)
    values = measure.goodness(1) * np.array([one.by_seed[seed] - two.by_seed[seed] for seed in seeds])
    better, other = one.method, two.method
    if values.mean() < 0:
        better, other, values = other, better, -values
    differ = len(values) >= FEWEST_SEEDS and float(np.ptp(values)) > 0
    enough = len(values) >= FEWEST_FOR_WILCOXON and bool(values.any())
    return Difference(
        better,
        other,
        seeds,
        tuple(values.tolist()),
        interval(values.tolist(), measure),
        float(stats.ttest_1samp(values, 0).pvalue) if differ else None,
        float(stats.wilcoxon(values).pvalue) if enough else None,
    )


def paired(one: Sequence[RunResult], two: Sequence[RunResult]) -> Interval | None:
    """The mean accuracy of `one` minus that of `two`, over the seeds that both have; None where they share no seed."""
    second = {run.seed: run.mean_score for run in two}
    values = [run.mean_score - second[run.seed] for run in one if run.seed in second]
    return interval(values, one[0].metric) if values else None


def differences(study: Study) -> list[Difference]:
    """The differences between all pairs of methods, the largest first."""
    return all_differences([SeedScores.of(runs) for runs in study.by_method()])


def all_differences(methods: Sequence[SeedScores]) -> list[Difference]:
    """The differences between all pairs of these methods, the largest first, corrected for their number."""
    pairs = combinations(methods, 2)
    uncorrected = sorted((d for a, b in pairs if (d := paired_test(a, b))), key=lambda d: -d.mean.mean)
    corrected = iter(holm([d.p_t for d in uncorrected if d.p_t is not None]))
    return [d if d.p_t is None else replace(d, p_holm=next(corrected)) for d in uncorrected]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: the k-th smallest p-value times n − k + 1, and never less than those before it."""
    order = np.argsort(p_values)
    corrected = np.zeros(len(p_values))
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, (len(p_values) - rank) * p_values[place])
        corrected[place] = min(1.0, highest)
    return corrected.tolist()


def summary_of(study: Study, method: MethodName) -> Summary:
    """Summarise a method as a row of a table. Its work is None where the records do not tell it."""
    parts = _work(study, study.of(method))
    work = None if None in parts else sum(part or 0.0 for part in parts)
    return replace(summarise(study.of(method)), work=work)


def ranking(study: Study) -> list[MethodName]:
    """The methods by their mean over seeds, the best first."""
    good = study.metric.goodness(1)
    means = {runs[0].method: good * np.mean([run.mean_score for run in runs]) for runs in study.by_method()}
    return sorted(in_order(means), key=lambda method: -means[method])


def paper_cells(study: Study) -> dict[MethodName, PaperValue]:
    """The paper's accuracies for the methods of an experiment; empty where users brought their own data or network, and
    for other tasks than classification."""
    if study.record.own_parts or study.settings.model.task != "classification":
        return {}
    cells = {method: paper_accuracy(study.settings, method) for method in study.methods}
    return {method: cell for method, cell in cells.items() if cell}


# --- what each peer gained --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeerOutcome:
    """The outcome of one peer in one run."""

    method: MethodName
    seed: int
    peer: int
    name: str
    cluster: str
    """The name of the peer's cluster; empty where clusters are not known."""
    score: float
    gain: float | None
    """By how much it is better than training alone with the same seed; None where no run trained alone with it."""


@dataclass(frozen=True)
class Gains:
    """The gains of a method's peers over training alone, for all seeds for which training alone was run, too."""

    method: MethodName
    values: Array
    """[seed and peer]"""
    worst: PeerOutcome

    @property
    def lost(self) -> int:
        """The number of peers that are less accurate than when training alone."""
        return int((self.values < 0).sum())

    @property
    def share_lost(self) -> float:
        return self.lost / len(self.values)


def _alone(study: Study) -> tuple[RunResult, ...]:
    return study.of(study.alone) if study.alone else ()


def outcomes(study: Study) -> list[PeerOutcome]:
    """The outcomes of all peers in all runs."""
    alone, good = {run.seed: run.score for run in _alone(study)}, study.metric.goodness(1)
    result = []
    for run in study.runs:
        gains = good * (run.score - alone[run.seed]) if run.seed in alone else [None] * run.num_peers
        for peer, (score, gain) in enumerate(zip(run.score, gains, strict=True)):
            if peer in run.attackers:
                continue
            gained = None if gain is None else float(gain)
            who = run.peer_label(peer), run.cluster_label(peer)
            result.append(PeerOutcome(run.method, run.seed, peer, *who, float(score), gained))
    return result


def gains(study: Study, peer_outcomes: Sequence[PeerOutcome]) -> list[Gains]:
    """The gains of each method other than training alone, where it shares seeds with that."""
    result = []
    for method in study.methods:
        mine = [(o.gain, o) for o in peer_outcomes if o.method == method and o.gain is not None]
        if mine and method != study.alone:
            _, worst = min(mine, key=lambda one: one[0])
            result.append(Gains(method, np.array([gain for gain, _ in mine]), worst))
    return result


# --- what it cost -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """The cost of a method per peer: means over peers and seeds. Work on pooled data is divided among the peers."""

    method: MethodName
    sent: float
    received: float
    refused: float
    merged: float
    scored: float
    """The number of models, as in the four fields above."""
    bytes_received: float
    training: float | None
    validation: float | None
    scoring: float | None
    """Work in forward passes of one sample, as in the two fields above; None where the sizes of the data are not on
    record."""
    seconds: float
    """The wall-clock time of one seed, all peers together."""
    score: float
    gain: float | None
    """By how much its mean score is better than that of training alone."""

    @property
    def forwards(self) -> float | None:
        parts = (self.training, self.validation, self.scoring)
        return None if None in parts else float(sum(part or 0.0 for part in parts))

    def per_gb(self, what: float | None) -> float | None:
        """Divide a quantity by the GB that a peer received; None where a peer received nothing."""
        return None if what is None or not self.bytes_received else what / (self.bytes_received / 1e9)


def costs(study: Study) -> list[Cost]:
    """The cost of each method."""
    return [_cost(study, study.of(method)) for method in study.methods]


def _cost(study: Study, runs: Sequence[RunResult]) -> Cost:
    gain = None if runs[0].method == study.alone else paired(runs, _alone(study))
    peers = runs[0].num_peers

    def models(name: str) -> float:
        return float(np.mean([getattr(run.communication, name).sum() / peers for run in runs]))

    return Cost(
        runs[0].method,
        models("sent"),
        models("received"),
        models("refused"),
        models("merged"),
        models("scored"),
        models("received") * runs[0].communication.model_bytes,
        *_work(study, runs),
        float(np.mean([run.seconds for run in runs])),
        float(np.mean([run.mean_score for run in runs])),
        study.metric.goodness(gain.mean) if gain else None,
    )


def _work(study: Study, runs: Sequence[RunResult]) -> tuple[float | None, float | None, float | None]:
    """Forward passes per peer for training, validation and scoring; None where the records do not tell them."""
    works = [work for run in runs if (work := work_of(run, study.spec(run), data_sizes(study, run)))]
    if len(works) < len(runs):
        return None, None, None
    training, validation, scoring = np.mean(works, axis=0).tolist()
    return training, validation, scoring


def data_sizes(study: Study, run: RunResult) -> DataSizes | None:
    """The number of samples that each learner held. Older records of simulations lack it; there, the settings tell
    it."""
    if run.data_sizes or study.record.real_peers or "data" in study.record.own_parts:
        return run.data_sizes
    scenario, peers = study.settings.scenario, run.num_peers
    shares = [[n * peers] if run.method in study.pooled else [n] * peers
              for n in (scenario.train_per_peer, scenario.val_per_peer)]  # fmt: skip
    return DataSizes(*(np.array(share) for share in shares))

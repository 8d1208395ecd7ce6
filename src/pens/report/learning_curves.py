# SPDX-License-Identifier: Apache-2.0
"""Learning curves: the main metric on validation data over rounds, virtual time, bytes and work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pens.data.samples import Array
from pens.measuring.results import RunResult, samples_per_score, work_of_updates
from pens.methods.names import method_of
from pens.report.analysis import data_sizes
from pens.report.study import Study
from pens.settings.tree import MethodName

Axis = Literal["rounds", "time", "seconds", "bytes", "forwards"]
POINTS = 120
"""The largest number of points of a curve."""


@dataclass(frozen=True)
class Curve:
    """A method's main metric on validation data: mean over peers and seeds, and the middle half.  [point] each"""

    method: MethodName
    at: Array
    """Rounds, virtual time, seconds of real peers, bytes received by a peer, or forward passes of a peer."""
    mean: Array
    low: Array
    high: Array

    def first_reach(self, value: float, higher_is_better: bool = True) -> float | None:
        """Where the mean first is at least so high; or so low, where that is better."""
        there = np.flatnonzero(self.mean >= value if higher_is_better else self.mean <= value)
        return float(self.at[there[0]]) if len(there) else None


def curves(study: Study, axis: Axis, points: int = POINTS) -> list[Curve]:
    """The learning curves over an axis, for each method that moves along it and has it on record, with at most `points`
    points."""
    result = []
    for runs in study.by_method():
        if (traces := _traces(study, runs, axis)) is not None:
            end = max(float(places[-1]) for places, _ in traces)
            if end > 0:
                result.append(curve_at(runs[0].method, traces, _grid(end, points, whole=axis == "rounds")))
    return result


def value_at(study: Study, method: MethodName, axis: Axis, budget: float) -> float | None:
    """A method's mean on validation data once each peer has spent so much; None where that is not on record."""
    traces = _traces(study, study.of(method), axis)
    return None if traces is None else float(curve_at(method, traces, np.array([budget])).mean[0])


def _grid(end: float, points: int, whole: bool) -> Array:
    if whole and end < points:
        return np.arange(end + 1)
    return np.linspace(0, end, points)


def curve_at(method: MethodName, traces: Sequence[tuple[Array, Array]], grid: Array) -> Curve:
    """Average the peers on a common axis. A peer keeps its last value after its end, and has its first value from the
    start."""
    values = np.stack(
        [what[np.clip(np.searchsorted(places, grid, side="right") - 1, 0, None)] for places, what in traces]
    )  # [peer, point]
    low, high = np.percentile(values, [25, 75], axis=0)
    return Curve(method, grid, values.mean(0), low, high)


def _traces(study: Study, runs: Sequence[RunResult], axis: Axis) -> list[tuple[Array, Array]] | None:
    """Each peer's places on the axis and its main metric on validation data there, in order."""
    traces = []
    for run in runs:
        places = positions(study, run, axis)
        if places is None:
            return None
        traces += traces_of(run, places)
    return traces


def traces_of(run: RunResult, places: Array) -> list[tuple[Array, Array]]:
    """Each peer's places on an axis and its validation accuracy at them, for one run.  `places`: those of its updates
    [update]"""
    order = np.lexsort((run.history.version, run.history.peer))
    cuts = np.flatnonzero(np.diff(run.history.peer[order])) + 1
    return list(zip(np.split(places[order], cuts), np.split(run.history.val_accuracy[order], cuts), strict=True))


def first_trainings(study: Study) -> int:
    """The number of updates of a peer before its first round."""
    return int(study.settings.training.train_first)


def positions(study: Study, run: RunResult, axis: Axis) -> Array | None:
    """The place of each update on an axis; None where that is not on record.  [update]"""
    history = run.history
    if axis == "rounds":
        rounds: Array = history.version - first_trainings(study)
        return rounds
    if axis in ("time", "seconds"):
        return history.time
    if axis == "bytes":
        return None if history.received is None else history.received * run.communication.model_bytes
    sizes, scored = data_sizes(study, run), _scored_by(run)
    if sizes is None or scored is None:
        return None
    spec = study.spec(run)
    updates = work_of_updates(run, spec, sizes)
    scoring = scored * samples_per_score(spec.settings, sizes)[history.peer]
    order = np.lexsort((history.version, history.peer))
    work = (updates.training + updates.validation + scoring)[order]
    total = np.cumsum(work)
    begins = np.flatnonzero(np.diff(history.peer[order], prepend=-1))
    before = np.repeat(total[begins] - work[begins], np.diff(begins, append=len(work)))
    result = np.empty(len(work))
    result[order] = total - before
    return result


def asks_for_losses(study: Study, method: MethodName) -> bool:
    """Whether a method's peers scored models beside a first step in which they compare: what they asked for is counted
    as a whole, so that their work cannot be told update by update."""
    runs = study.of(method)
    return not method_of(method).selects and any(run.communication.scored.any() for run in runs)


def _scored_by(run: RunResult) -> Array | None:
    """The number of models that a peer scored in the round that each update ends; None where that is not on
    record.  [update]"""
    history, counts = run.history, run.comparisons
    if counts is None:
        return None if run.communication.scored.any() else np.zeros(len(history.version), np.int64)
    table = np.zeros((run.num_peers, int(counts.round.max()) + 2), np.int64)  # the last column stays empty
    np.add.at(table, (counts.receiver, counts.round), counts.sampled)
    scored: Array = table[history.peer, np.minimum(history.version - 1, table.shape[1] - 1)]
    return scored

# SPDX-License-Identifier: Apache-2.0
"""The course of a run: learning curves over rounds, virtual time, bytes and work; the neighbours, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pens.data.samples import Array
from pens.errors import SettingsError
from pens.measuring.metrics import Agreement, num_alike
from pens.measuring.results import Comparisons, RunResult, samples_per_score, work_of_updates
from pens.protocol.policies import SelectionRule, more_than_expected, upper_group
from pens.report.analysis import data_sizes
from pens.report.discovered import Discovered
from pens.report.study import Study
from pens.settings.tree import MethodName
from pens.topologies.complete import Everybody
from pens.topologies.topology import Graph, build_graph

Axis = Literal["rounds", "time", "seconds", "bytes", "forwards"]
POINTS = 120
"""Of a curve, at most."""


@dataclass(frozen=True)
class Curve:
    """A method's validation accuracy: mean over peers and seeds, and the middle half of them.  [point] each"""

    method: MethodName
    at: Array
    """Rounds, virtual time, seconds of real peers, bytes received by a peer, or forward passes of a peer."""
    mean: Array
    low: Array
    high: Array

    def first_reach(self, value: float) -> float | None:
        """Where the mean first is at least so high."""
        there = np.flatnonzero(self.mean >= value)
        return float(self.at[there[0]]) if len(there) else None


def curves(study: Study, axis: Axis, points: int = POINTS) -> list[Curve]:
    """One per method that moves along this axis and has it on record; of so many points at most."""
    found = []
    for runs in study.by_method():
        if (traces := _traces(study, runs, axis)) is not None:
            end = max(float(places[-1]) for places, _ in traces)
            if end > 0:
                found.append(_curve(runs[0].method, traces, _grid(end, points, whole=axis == "rounds")))
    return found


def value_at(study: Study, method: MethodName, axis: Axis, budget: float) -> float | None:
    """A method's mean validation accuracy once each peer has spent so much; None where that is not on record."""
    traces = _traces(study, study.of(method), axis)
    return None if traces is None else float(_curve(method, traces, np.array([budget])).mean[0])


def _grid(end: float, points: int, whole: bool) -> Array:
    if whole and end < points:
        return np.arange(end + 1)
    return np.linspace(0, end, points)


def _curve(method: MethodName, traces: Sequence[tuple[Array, Array]], grid: Array) -> Curve:
    """Peers on a common axis; a peer's last value holds, its first one stands before it, too."""
    values = np.stack(
        [what[np.clip(np.searchsorted(places, grid, side="right") - 1, 0, None)] for places, what in traces]
    )  # [peer, point]
    low, high = np.percentile(values, [25, 75], axis=0)
    return Curve(method, grid, values.mean(0), low, high)


def _traces(study: Study, runs: Sequence[RunResult], axis: Axis) -> list[tuple[Array, Array]] | None:
    """Each peer's places on the axis and its validation accuracy there, in order."""
    found = []
    for run in runs:
        places = positions(study, run, axis)
        if places is None:
            return None
        order = np.lexsort((run.history.version, run.history.peer))
        cuts = np.flatnonzero(np.diff(run.history.peer[order])) + 1
        by_peer = zip(np.split(places[order], cuts), np.split(run.history.val_accuracy[order], cuts), strict=True)
        found += list(by_peer)
    return found


def first_trainings(study: Study) -> int:
    """Updates of a peer before its first round."""
    return int(study.settings.training.train_first)


def positions(study: Study, run: RunResult, axis: Axis) -> Array | None:
    """Where each update stands on an axis; None where that is not on record.  [update]"""
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


def _scored_by(run: RunResult) -> Array | None:
    """Models that a peer scored in the round that an update ends.  [update]"""
    history, counts = run.history, run.comparisons
    if counts is None:
        return None if run.communication.scored.any() else np.zeros(len(history.version), np.int64)
    table = np.zeros((run.num_peers, int(counts.round.max()) + 2), np.int64)  # the last column stays empty
    np.add.at(table, (counts.receiver, counts.round), counts.sampled)
    scored: Array = table[history.peer, np.minimum(history.version - 1, table.shape[1] - 1)]
    return scored


# --- the neighbours of step 1 -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectionCurve:
    """Precision and recall of the neighbours, had step 1 ended after so many rounds.  [round] each"""

    rounds: Array
    precision: Array
    """Not a number where nobody had selected anybody."""
    recall: Array


def selecting(study: Study, run: RunResult) -> SelectionCurve | None:
    """One run's neighbours over the rounds of step 1; None where comparisons or clusters are not on record."""
    if run.comparisons is None or run.clusters is None:
        return None
    spec = study.spec(run)
    rule = spec.selection(run.num_peers)
    if rule is None:
        return None
    try:
        graph = build_graph(spec.settings, run.num_peers, run.seed)
    except SettingsError:  # its topology, or the file of it, is not there any more
        return None
    sparse = None if isinstance(graph, Everybody) else graph
    found = agreement_by_round(run.comparisons, rule, run.clusters, sparse)
    rounds = np.arange(1, len(found) + 1)
    return SelectionCurve(rounds, np.array([a.precision for a in found]), np.array([a.recall for a in found]))


def agreement_by_round(
    counts: Comparisons, rule: SelectionRule, clusters: Sequence[int], graph: Graph | None = None
) -> list[Agreement]:
    """`policies.choose_neighbours` and `metrics.neighbour_agreement` after each round, for all peers at once. `graph`:
    whom each peer can reach, if not all others."""
    cluster, num = np.array(clusters), len(clusters)
    pairs, pair = np.unique(counts.receiver * num + counts.sender, return_inverse=True)
    receiver, sender = np.divmod(pairs, num)
    alike = cluster[receiver] == cluster[sender]
    others = np.bincount(cluster)[cluster] - 1  # of the same cluster
    reach = np.full(num, rule.num_others)
    if graph is not None:
        others = np.array([num_alike(peer, graph[peer], clusters) for peer in range(num)])
        reach = np.array([len(neighbours) for neighbours in graph])
    sampled, selected = np.zeros(len(pairs), np.int64), np.zeros(len(pairs), np.int64)
    found = []
    for round_ in range(int(counts.round.min()), int(counts.round.max()) + 1):  # from 0 where nobody trains first
        now = counts.round == round_
        np.add.at(sampled, pair[now], counts.sampled[now])
        np.add.at(selected, pair[now], counts.selected[now])
        chosen = _chosen(receiver, sampled, selected, rule, reach)
        size = np.bincount(receiver[chosen], minlength=num)
        right = np.bincount(receiver[chosen & alike], minlength=num)
        some, can = size > 0, others > 0
        precision = (right[some] / size[some]).mean() if some.any() else np.nan
        recall = (right[can] / others[can]).mean() if can.any() else np.nan
        found.append(Agreement(float(precision), float(recall)))
    return found


def _chosen(receiver: Array, sampled: Array, selected: Array, rule: SelectionRule, reach: Array) -> Array:
    """Which pairs are neighbours by these counts. `reach`: how many others each peer can reach.  [pair]"""
    if rule.by == "groups":
        chosen = np.zeros(len(receiver), bool)
        for mine in np.split(np.arange(len(receiver)), np.flatnonzero(np.diff(receiver)) + 1):
            heard = mine[sampled[mine] > 0]
            chosen[heard] = upper_group(selected[heard].tolist(), sampled[heard].tolist())
    else:
        samplings = np.bincount(receiver, sampled, len(reach)) / rule.n_sampled
        chosen = more_than_expected(selected, sampled, samplings[receiver], rule, reach[receiver])
    lonely = np.setdiff1d(receiver, receiver[chosen])
    for peer in lonely:  # takes the m selected most often; ties go to the lower number, as pairs are in that order
        begin, end = np.searchsorted(receiver, [peer, peer + 1])
        mine = begin + np.flatnonzero(selected[begin:end])
        chosen[mine[np.argsort(-selected[mine], kind="stable")[: rule.m]]] = True
    return chosen


# --- who merged whom --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MergeMap:
    """How often peers merged each other's models: figure 2, with peers taken together where there are many."""

    method: MethodName
    seed: int
    groups: tuple[tuple[int, ...], ...]
    """The peers of each row and column, section by section."""
    sections: tuple[str, ...]
    """Of each row and column: the peers' cluster; where clusters are not known, their discovered group, or nothing."""
    names: tuple[str, ...]
    """Of each row and column, where each is one peer that has a name; else empty."""
    mean: Array
    """Merges per pair of peers.  [receiving group, sending group]"""
    within: float | None
    """The share of merges that stayed within the receiver's cluster; None where clusters are not known."""


def merge_map(run: RunResult, cells: int = 100, discovered: Discovered | None = None) -> MergeMap | None:
    """One run's merges with at most about `cells` rows; None where nothing was merged. `discovered`: by which peers are
    ordered where their clusters are not known."""
    if not run.pairs.merged.sum():
        return None
    num = run.num_peers
    sections = _sections(run, discovered)
    rows = [
        (name, tuple(part.tolist()))
        for name, peers in sections
        for part in np.array_split(peers, max(1, min(len(peers), round(cells * len(peers) / max(cells, num)))))
    ]
    groups = [group for _, group in rows]
    place = np.empty(num, np.int64)
    for number, group in enumerate(groups):
        place[list(group)] = number
    merges = np.zeros((len(groups), len(groups)))
    np.add.at(merges, (place[run.pairs.receiver], place[run.pairs.sender]), run.pairs.merged)
    sizes = np.array([len(group) for group in groups])
    pairs = np.outer(sizes, sizes) - np.diag(sizes)  # nobody is sent its own model
    named = len(groups) == num and (run.peer_names or not run.clusters_known)
    return MergeMap(
        run.method,
        run.seed,
        tuple(groups),
        tuple(name for name, _ in rows),
        tuple(run.peer_label(group[0]) for group in groups) if named else (),
        merges / np.maximum(pairs, 1),
        merged_within(run),
    )


def merged_within(run: RunResult) -> float | None:
    """The share of merges that stayed within the receiver's cluster; None where nobody knows, or nothing was merged."""
    total = run.pairs.merged.sum()
    if not total or run.clusters is None:
        return None
    clusters = np.array(run.clusters)
    alike = clusters[run.pairs.receiver] == clusters[run.pairs.sender]
    return float(run.pairs.merged[alike].sum() / total)


def _sections(run: RunResult, discovered: Discovered | None) -> list[tuple[str, Array]]:
    """(name, peers) of each part of a map."""
    if run.clusters is not None:
        clusters = np.array(run.clusters)
        return [
            (name, peers)
            for cluster, name in enumerate(run.cluster_names)
            if len(peers := np.flatnonzero(clusters == cluster))
        ]
    if discovered is None:
        return [("", np.arange(run.num_peers))]
    order, found, begin = np.array(discovered.order), [], 0
    for number, group in enumerate(discovered.groups, 1):
        found.append((f"group {number}", order[begin : begin + len(group)]))
        begin += len(group)
    return found

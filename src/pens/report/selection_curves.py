# SPDX-License-Identifier: Apache-2.0
"""Precision and recall of the neighbours round by round: the rule for the end of step 1, applied to the counts so far.

Records count comparisons by round. A round that an update ended has as many samplings as the settings say, and its
counts give the size of each sampling. Where this size is not n_sampled, because fewer models were available, a sampling
counts by its own size, as in the peer's own tally. A round whose samplings had several sizes counts by their mean; only
real peers have such rounds, while other peers join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pens.data.samples import Array
from pens.errors import SettingsError
from pens.measuring.metrics import Agreement, neighbour_agreement
from pens.measuring.results import Comparisons, RunResult
from pens.protocol.messages import PeerId
from pens.protocol.policies import SelectionRule, select_neighbours
from pens.report.study import Study
from pens.topologies.complete import Everybody
from pens.topologies.topology import Graph, build_graph


@dataclass(frozen=True)
class SelectionCurve:
    """Precision and recall of the neighbours that peers would select if step 1 ended after each round.  [round] each"""

    rounds: Array
    precision: Array
    """NaN where no peer would have neighbours."""
    recall: Array


def selection_curve(study: Study, run: RunResult) -> SelectionCurve | None:
    """The selection curve of one run; None where comparisons or clusters, or what its rule needs, are not on record."""
    if run.comparisons is None or run.clusters is None:
        return None
    spec = study.spec(run)
    rule = spec.selection(run.num_peers)
    if rule is None or not is_by_counts(rule):
        return None
    try:
        graph = build_graph(spec.settings, run.num_peers, run.seed)
    except SettingsError:  # the topology, or its file, no longer exists
        return None
    sparse = None if isinstance(graph, Everybody) else graph
    samplings = spec.settings.pens.step1_samplings
    agreements = agreement_by_round(run.comparisons, rule, run.clusters, sparse, samplings, _last_ended(run))
    rounds = np.arange(1, len(agreements) + 1)
    return SelectionCurve(rounds, np.array([a.precision for a in agreements]), np.array([a.recall for a in agreements]))


def is_by_counts(rule: SelectionRule) -> bool:
    """Whether a rule needs no more than the counts of comparisons, which are on record."""
    return rule.by != "levels"


def _last_ended(run: RunResult) -> Array:
    """The last round of step 1 that each peer ended with an update.  [peer]"""
    history, ended = run.history, np.zeros(run.num_peers, np.int64)
    np.maximum.at(ended, history.peer[history.searching], history.version[history.searching] - 1)
    return ended


def agreement_by_round(
    counts: Comparisons,
    rule: SelectionRule,
    clusters: Sequence[int],
    graph: Graph | None = None,
    samplings: int = 1,
    ended: Array | None = None,
) -> list[Agreement]:
    """Precision and recall after each round.

    `graph`: the peers that each peer can reach; None: all others. `samplings`: the number of samplings of a peer in a
    round that it ended. `ended`: the last round that each peer ended; None: all peers ended all rounds.  [peer]
    """
    agreements = []
    if ended is None:
        ended = np.full(len(clusters), counts.round.max())
    counted = _Counted(counts, rule, samplings, ended)
    selections: dict[PeerId, tuple[PeerId, ...]] = {PeerId(peer): () for peer in range(len(clusters))}
    rules = [rule if graph is None else replace(rule, num_others=len(graph[peer])) for peer in range(len(clusters))]
    for round_ in range(int(counts.round.min()), int(counts.round.max()) + 1):  # from 0 where peers do not train first
        selections |= {peer: counted.neighbours(peer, rules[peer]) for peer in counted.add(round_)}
        agreements.append(neighbour_agreement(selections, clusters, graph) or Agreement(np.nan, np.nan))
    return agreements


class _Counted:
    """The tallies of all peers as columns, with a row for each pair of peers that met."""

    def __init__(self, counts: Comparisons, rule: SelectionRule, samplings: int, ended: Array) -> None:
        self._counts, self._rule, self._samplings, self._ended = counts, rule, samplings, ended
        num_peers = len(ended)
        pairs, self._pair = np.unique(counts.receiver * num_peers + counts.sender, return_inverse=True)
        receiver, sender = np.divmod(pairs, num_peers)
        self._begin = np.searchsorted(receiver, np.arange(num_peers + 1)).tolist()
        self._sender: list[PeerId] = sender.tolist()
        self._sampled, self._selected = np.zeros(len(pairs), np.int64), np.zeros(len(pairs), np.int64)
        self._by_chance = np.zeros(len(pairs))
        self._num_samplings = np.zeros(num_peers, np.int64)

    def add(self, round_: int) -> list[PeerId]:
        """Count one round, and return the peers that compared models in it."""
        now = self._counts.round == round_
        receiver, sampled, pair = self._counts.receiver[now], self._counts.sampled[now], self._pair[now]
        number, size = self._sizes(round_, receiver, sampled)
        chance = np.array([self._rule.chance(models) if models else 0.0 for models in size.tolist()])
        np.add.at(self._sampled, pair, sampled)
        np.add.at(self._selected, pair, self._counts.selected[now])
        np.add.at(self._by_chance, pair, sampled * chance[receiver])
        self._num_samplings += number
        return [PeerId(peer) for peer in np.flatnonzero(number).tolist()]

    def _sizes(self, round_: int, receiver: Array, sampled: Array) -> tuple[Array, Array]:
        """The number of samplings of each peer in a round, and the number of models in each; 0 for peers that compared
        nothing.

        In a round that a peer did not end, the smallest possible number of samplings counts: no sampling has more than
        n_sampled models, and no sender is in a sampling twice.  [peer] each
        """
        total, number = np.zeros(len(self._ended), np.int64), np.zeros(len(self._ended), np.int64)
        np.add.at(total, receiver, sampled)
        np.maximum.at(number, receiver, sampled)
        number = np.maximum(number, -(-total // self._rule.n_sampled))
        planned = np.where((total > 0) & (round_ <= self._ended), self._samplings, 0)
        number = np.maximum(number, planned)
        return number, np.rint(total / np.maximum(1, number)).astype(np.int64)

    def neighbours(self, peer: PeerId, rule: SelectionRule) -> tuple[PeerId, ...]:
        """The neighbours that a peer would select from its counts so far."""
        rows = slice(self._begin[peer], self._begin[peer + 1])
        counts = (column[rows].tolist() for column in (self._sampled, self._selected, self._by_chance))
        # without the pairs that met only in later rounds
        known = [row for row in zip(self._sender[rows], *counts, strict=True) if row[1]]
        heard, compared, selected, received = zip(*known, strict=True)
        by_chance = rule.by_chance(int(self._num_samplings[peer]), received, len(known))
        return select_neighbours(heard, selected, compared, by_chance, rule).neighbours

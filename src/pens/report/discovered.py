# SPDX-License-Identifier: Apache-2.0
"""Who belongs together by the peers' own choices, where nobody knows the clusters.

Peers that chose each other as neighbours are near each other. Average linkage makes a tree of them, whose leaves are
the order in which a map of merges shows its structure, and the tree is cut where Newman's modularity is largest: where
peers chose within their group most more often than chance would have it. Nothing has to be set, and where choices do
not part the peers there is one group. What comes out is discovered, not known: it can be wrong where choices were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pens.data.samples import Array
from pens.measuring.results import RunResult
from pens.methods.names import method_of
from pens.settings.tree import MethodName

MOST_PEERS = 3000
"""A tree needs the distances of all pairs."""


@dataclass(frozen=True)
class Discovered:
    """Groups of peers that chose each other, largest first, and those of nobody's choice after them."""

    groups: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    """All peers, group by group, those that chose each other side by side."""
    within: tuple[float, ...]
    """Of the neighbours that a group's peers chose, the share that are of the group; not a number where they chose
    nobody.  [group]"""
    within_all: float
    """The same for all peers."""


def discover(runs: Sequence[RunResult]) -> Discovered | None:
    """The groups of one method's runs, all seeds together: by the neighbours that peers selected, or, where they have
    none yet, by whose models they merged in step 1. None where peers choose nobody, or are too many."""
    if not runs or not method_of(runs[0].method).selects or runs[0].num_peers > MOST_PEERS:
        return None
    choices = np.mean([_choices(run) for run in runs], axis=0)
    return grouped(choices) if choices.any() else None


def discovered_in(by_method: Sequence[Sequence[RunResult]]) -> tuple[MethodName | None, Discovered | None]:
    """The method whose peers' choices part them best, and the groups; nothing where clusters are known."""
    unknown = [runs for runs in by_method if not runs[0].clusters_known]
    found = [(runs[0].method, groups) for runs in unknown if (groups := discover(runs))]
    return max(found, key=lambda each: each[1].within_all) if found else (None, None)


def _choices(run: RunResult) -> Array:
    """How much a peer chose another, from 0 to 1.  [chooser, chosen]"""
    num = run.num_peers
    chosen = np.zeros((num, num))
    if any(run.neighbours.values()):
        for peer, neighbours in run.neighbours.items():
            chosen[peer, list(neighbours)] = 1
        return chosen
    chosen[run.pairs.receiver, run.pairs.sender] = run.pairs.merged
    chosen /= max(1.0, float(chosen.max()))
    return chosen


def grouped(choices: Array) -> Discovered:
    """Groups by choices from 0 to 1.  [chooser, chosen]"""
    num = len(choices)
    mutual = (choices + choices.T) / 2
    np.fill_diagonal(mutual, 0)
    if num < 3:
        groups = [tuple(range(num))] if mutual.any() else [(peer,) for peer in range(num)]
        return _described(groups, list(range(num)), choices)
    from scipy.cluster.hierarchy import leaves_list, linkage  # here: only pictures and reports have to wait for it
    from scipy.spatial.distance import squareform

    distance = 1 - mutual
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance, checks=False), "average", optimal_ordering=num <= 500)
    label = _best_cut(tree, mutual)
    leaves = leaves_list(tree).tolist()
    members: dict[int, list[int]] = {}
    for peer in leaves:
        members.setdefault(label[peer], []).append(peer)
    groups = sorted((tuple(sorted(group)) for group in members.values()), key=lambda group: (-len(group), group[0]))
    order = [peer for group in groups for peer in members[label[group[0]]]]
    return _described(groups, order, choices)


def _described(groups: Sequence[tuple[int, ...]], order: Sequence[int], choices: Array) -> Discovered:
    of_group = [choices[list(group)] for group in groups]
    kept = [float(rows[:, list(group)].sum()) for rows, group in zip(of_group, groups, strict=True)]
    made = [float(rows.sum()) for rows in of_group]
    shares = tuple(k / m if m else float("nan") for k, m in zip(kept, made, strict=True))
    return Discovered(tuple(groups), tuple(order), shares, sum(kept) / sum(made) if sum(made) else float("nan"))


def _best_cut(tree: Array, mutual: Array) -> list[int]:
    """The group of each peer where the tree is cut at the largest modularity; of equal ones the finest.  [peer]

    Joining groups a and b changes modularity by 2 (e_ab − d_a d_b): e_ab is the share of all weight that lies between
    them, one direction, and d the share of all degrees.
    """
    num, total = len(mutual), float(mutual.sum())
    if not total:
        return list(range(num))
    between = mutual / total  # [group, group], rows of groups that were joined are not read again
    degree = between.sum(1)
    row_of = list(range(num))  # of each node of the tree
    gain, best, best_joins = 0.0, 0.0, 0
    for joins, (left, right, *_) in enumerate(tree, 1):
        a, b = row_of[int(left)], row_of[int(right)]
        gain += 2 * float(between[a, b] - degree[a] * degree[b])
        between[a] += between[b]
        between[:, a] += between[:, b]
        degree[a] += degree[b]
        row_of.append(a)
        if gain > best + 1e-12:
            best, best_joins = gain, joins
    group = list(range(2 * num - 1))
    for joins in range(best_joins - 1, -1, -1):  # from the top of the cut down: a node's group is its parent's
        for child in tree[joins, :2]:
            group[int(child)] = group[num + joins]
    return group[:num]

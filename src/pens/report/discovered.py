# SPDX-License-Identifier: Apache-2.0
"""Groups of peers found from their neighbour selections, when clusters are unknown.

Two peers that selected each other as neighbours are close. Average linkage builds a tree of the peers, and the order of
its leaves is the order of rows in a merge map. The tree is cut where Newman's modularity is largest, that is, where
peers selected members of their own group most often, compared with chance. The procedure has no parameters. Where
selections do not separate the peers, there is one group. The groups are estimates: where selections are wrong, the
groups can be wrong, too.
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
"""With more peers no groups are sought, because the tree needs the distances of all pairs."""


@dataclass(frozen=True)
class Discovered:
    """Groups of peers that selected each other, the largest first; single peers come last."""

    groups: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    """All peers, group by group; peers that selected each other stand side by side."""
    within: tuple[float, ...]
    """The share of a group's selected neighbours that belong to the group; NaN where the group selected none.
    [group]"""
    within_all: float
    """The share over the selected neighbours of all peers."""


def discover(runs: Sequence[RunResult]) -> Discovered | None:
    """The groups of one method's runs, over all seeds: by the neighbours that peers selected or, before any were
    selected, by the models that were merged in step 1. None where peers select no neighbours, or are too many."""
    if not runs or not method_of(runs[0].method).selects or runs[0].num_peers > MOST_PEERS:
        return None
    choices = np.mean([_choices(run) for run in runs], axis=0)
    return grouped(choices) if choices.any() else None


def discovered_in(by_method: Sequence[Sequence[RunResult]]) -> tuple[MethodName | None, Discovered | None]:
    """The method whose selections separate the peers best, and its groups. Both are None where clusters are known, or
    where no method gives groups."""
    unknown = [runs for runs in by_method if not runs[0].clusters_known]
    candidates = [(runs[0].method, groups) for runs in unknown if (groups := discover(runs))]
    return max(candidates, key=lambda each: each[1].within_all) if candidates else (None, None)


def _choices(run: RunResult) -> Array:
    """How strongly each peer selected each other peer, from 0 to 1.  [selecting peer, selected peer]"""
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
    """Group peers by selection strengths from 0 to 1.  [selecting peer, selected peer]"""
    num = len(choices)
    mutual = (choices + choices.T) / 2
    np.fill_diagonal(mutual, 0)
    if num < 3:
        groups = [tuple(range(num))] if mutual.any() else [(peer,) for peer in range(num)]
        return _described(groups, list(range(num)), choices)
    from scipy.cluster.hierarchy import leaves_list, linkage  # imported here: only pictures and reports need it
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
    """The group of each peer when the tree is cut at the largest modularity; among equal cuts, at the finest.  [peer]

    Joining groups a and b changes modularity by 2 (e_ab − d_a d_b), where e_ab is the share of the total weight that
    leads from a to b, and d is a group's share of the total degree.
    """
    num, total = len(mutual), float(mutual.sum())
    if not total:
        return list(range(num))
    between = mutual / total  # [group, group]; rows of joined groups are not read again
    degree = between.sum(1)
    row_of = list(range(num))  # the row of each node of the tree
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
    for joins in range(best_joins - 1, -1, -1):  # from the cut downwards: a node's group is its parent's
        for child in tree[joins, :2]:
            group[int(child)] = group[num + joins]
    return group[:num]

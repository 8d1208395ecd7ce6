# SPDX-License-Identifier: Apache-2.0
"""Merge counts as maps: how often each peer merged each other's models (the paper's figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pens.data.samples import Array
from pens.data.scenarios import UNKNOWN
from pens.measuring.results import RunResult
from pens.report.discovered import Discovered
from pens.settings.tree import MethodName


@dataclass(frozen=True)
class MergeMap:
    """Merge counts between peers, as in figure 2. With many peers, each row and column stands for several."""

    method: MethodName
    seed: int
    groups: tuple[tuple[int, ...], ...]
    """The peers of each row and column, section by section."""
    sections: tuple[str, ...]
    """The section of each row and column: the peers' cluster or, where clusters are not known, their discovered group
    or nothing."""
    names: tuple[str, ...]
    """The name of each row and column, where each is one peer that has a name; otherwise empty."""
    mean: Array
    """Merges per pair of peers.  [receiving group, sending group]"""
    within: float | None
    """The share of merges that stayed within the receiver's cluster; None where clusters are not known."""


def merge_map(run: RunResult, cells: int = 100, discovered: Discovered | None = None) -> MergeMap | None:
    """The merge counts of one run, in at most about `cells` rows; None where nothing was merged. `discovered`: the
    groups that order the peers where their clusters are not known."""
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
    pairs = np.outer(sizes, sizes) - np.diag(sizes)  # no peer receives its own model
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


def stretches(names: Sequence[str]) -> list[tuple[str, int, int]]:
    """Stretches of equal names, as (name, begin, end): the sections of a map, or the names of its rows."""
    begins = [i for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
    return [(names[b], b, e) for b, e in zip(begins, [*begins[1:], len(names)], strict=True)]


def merged_within(run: RunResult) -> float | None:
    """The share of merges that stayed within the receiver's cluster, of those between peers whose clusters are known;
    None without such merges."""
    if run.clusters is None:
        return None
    clusters = np.array(run.clusters)
    receivers, senders = clusters[run.pairs.receiver], clusters[run.pairs.sender]
    known = (receivers != UNKNOWN) & (senders != UNKNOWN)
    total = run.pairs.merged[known].sum()
    return float(run.pairs.merged[known & (receivers == senders)].sum() / total) if total else None


def _sections(run: RunResult, discovered: Discovered | None) -> list[tuple[str, Array]]:
    """The parts of a map, as (name, peers)."""
    if run.clusters is not None:
        clusters = np.array(run.clusters)
        named = [*enumerate(run.cluster_names), (UNKNOWN, "cluster unknown")]
        return [(name, peers) for cluster, name in named if len(peers := np.flatnonzero(clusters == cluster))]
    if discovered is None:
        return [("", np.arange(run.num_peers))]
    order, sections, begin = np.array(discovered.order), [], 0
    for number, group in enumerate(discovered.groups, 1):
        sections.append((f"group {number}", order[begin : begin + len(group)]))
        begin += len(group)
    return sections

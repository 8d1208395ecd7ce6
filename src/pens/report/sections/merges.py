# SPDX-License-Identifier: Apache-2.0
"""The section on merges: whose models each peer merges (the paper's figure 2)."""

from __future__ import annotations

import math

from pens.report.charts.merges import merge_chart
from pens.report.discovered import MOST_PEERS, Discovered, discovered_in
from pens.report.merge_maps import MergeMap, merge_map
from pens.report.section import ReportSection, Table
from pens.report.study import Study
from pens.report.words import count, listed
from pens.settings.tree import MethodName, Settings

_QUESTION = "Whose models does a peer merge?"
_MOST_NAMES = 40
"""The largest number of peers that the row of a group names."""


def merges_section(study: Study) -> ReportSection:
    """Figure 2 and, where clusters are unknown, the groups found from the peers' neighbour selections."""
    chooser, groups = discovered_in(study.by_method())
    maps = [merges for runs in study.by_method() if (merges := merge_map(runs[0], discovered=groups))]
    if not maps:
        answer = f"No models are merged with {listed(study.methods)}."
        return ReportSection("merges", _QUESTION, answer)
    notes = [
        "As in the paper's figure 2, a light cell means that the receiving peer often merged models of the sending "
        f"peer. {_order_words(study, chooser)} All maps share one colour scale."
    ]
    if max(len(group) for merges in maps for group in merges.groups) > 1:
        notes.append(
            f"{study.num_peers} peers are too many for one row each; a cell is the mean over several pairs of peers."
        )
    mapped = {merges.method for merges in maps}
    quiet = [method for method in study.methods if method not in mapped]
    if quiet:
        notes.append(f"{listed(quiet)} merged nothing and {'has' if len(quiet) == 1 else 'have'} no map.")
    most = max(float(merges.mean.max()) for merges in maps)
    return ReportSection(
        "merges",
        _QUESTION,
        _answer(study, maps) if study.clusters_known else _discovered_answer(study, chooser, groups),
        tuple(merge_chart(merges, most) for merges in maps),
        _group_table(study, groups) if groups and len(groups.groups) > 1 else None,
        notes=tuple(notes),
    )


def _answer(study: Study, maps: list[MergeMap]) -> str:
    shares = listed([f"{100 * (merges.within or 0.0):.1f} % with {merges.method}" for merges in maps])
    came = f"The share of merged models that came from a peer of the receiver's own cluster is {shares}"
    if study.settings.gossip.topology != Settings().gossip.topology:
        return f"{came}. In this topology, peers reach only some others, so the share expected by chance depends on it."
    sizes, num = study.runs[0].cluster_sizes.values(), study.num_peers
    by_chance = sum(n * (n - 1) for n in sizes) / max(1, num * (num - 1))
    return f"{came}; {100 * by_chance:.1f} % would be expected by chance."


def _discovered_answer(study: Study, chooser: MethodName | None, groups: Discovered | None) -> str:
    unknown = "The clusters are not known."
    if groups is None and study.num_peers > MOST_PEERS and study.selecting:
        return f"{unknown} {study.num_peers} peers are too many to search for groups."
    if groups is None:
        return f"{unknown} No peer of {listed(study.methods)} selected neighbours, so there are no groups to find."
    if len(groups.groups) == 1:
        return f"{unknown} The neighbour selections of {chooser} put all {study.num_peers} peers into one group."
    several = [group for group in groups.groups if len(group) > 1]
    alone = len(groups.groups) - len(several)
    sizes = f"{len(several)} groups of {listed([str(len(group)) for group in several])} peers"
    if len(several) == 1:
        sizes = f"one group of {len(several[0])} peers"
    words = listed([*([sizes] if several else []), *([f"{count(alone, 'peer')} alone"] if alone else [])])
    return (
        f"{unknown} The neighbour selections of {chooser} give {words}: discovered, not known. "
        f"{100 * groups.within_all:.1f} % of the selected neighbours are in the selecting peer's own group."
    )


def _group_table(study: Study, groups: Discovered) -> Table:
    run = study.runs[0]
    rows = []
    for number, (group, share) in enumerate(zip(groups.groups, groups.within, strict=True), 1):
        names = ", ".join(run.peer_label(peer) for peer in group[:_MOST_NAMES])
        more = f" and {len(group) - _MOST_NAMES} more" if len(group) > _MOST_NAMES else ""
        chosen = "–" if math.isnan(share) else f"{100 * share:.1f}"
        rows.append((f"group {number}", str(len(group)), f"{names}{more}", chosen))
    columns = ("discovered", "peers", "members", "selected neighbours within the group %")
    return Table(columns, tuple(rows), wordy=("members",))


def _order_words(study: Study, chooser: MethodName | None) -> str:
    if study.clusters_known:
        return "Peers are sorted by cluster, so light squares on the diagonal are merges within a cluster."
    if chooser is None:
        return "Peers are sorted by number."
    return (
        f"In all maps, peers that selected each other in {chooser} are side by side: their order is that of a tree "
        "(average linkage), which is cut into groups where modularity is largest."
    )

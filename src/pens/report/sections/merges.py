# SPDX-License-Identifier: Apache-2.0
"""Whose models does a peer merge? The paper's figure 2."""

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
"""Of a group, in its row of the table."""


def merges_section(study: Study) -> ReportSection:
    """Figure 2; and where clusters are not known, who belongs together by the peers' own choices."""
    chooser, groups = discovered_in(study.by_method())
    maps = [found for runs in study.by_method() if (found := merge_map(runs[0], discovered=groups))]
    if not maps:
        answer = f"Nobody's: no models are merged with {listed(study.methods)}, so there is no map."
        return ReportSection("merges", _QUESTION, answer)
    notes = [
        "As in the paper's figure 2: in a light cell the receiving peer often merged a model of the sending one. "
        f"{_order_words(study, chooser)} All maps share one colour scale."
    ]
    if max(len(group) for found in maps for group in found.groups) > 1:
        notes.append(
            f"{study.num_peers} peers are too many for a map; a cell is the mean over pairs of peers side by side."
        )
    quiet = [m for m in study.methods if m not in {found.method for found in maps}]
    if quiet:
        notes.append(f"{listed(quiet)} merged nothing and {'has' if len(quiet) == 1 else 'have'} no map.")
    most = max(float(found.mean.max()) for found in maps)
    return ReportSection(
        "merges",
        _QUESTION,
        _answer(study, maps) if study.clusters_known else _discovered_answer(study, chooser, groups),
        tuple(merge_chart(found, most) for found in maps),
        _group_table(study, groups) if groups and len(groups.groups) > 1 else None,
        notes=tuple(notes),
    )


def _answer(study: Study, maps: list[MergeMap]) -> str:
    shares = ", ".join(f"{100 * (m.within or 0.0):.1f} % with {m.method}" for m in maps)
    came = f"Of all models merged, {shares} came from a peer of the receiver's own cluster"
    if study.settings.gossip.topology != Settings().gossip.topology:
        return f"{came}. Peers reach only those next to them, so what chance would give depends on the graph."
    sizes, num = study.runs[0].cluster_sizes.values(), study.num_peers
    by_chance = sum(n * (n - 1) for n in sizes) / max(1, num * (num - 1))
    return f"{came}; by chance it would be {100 * by_chance:.1f} %."


def _discovered_answer(study: Study, chooser: MethodName | None, groups: Discovered | None) -> str:
    unknown = "Nobody said which peers belong together."
    if groups is None and study.num_peers > MOST_PEERS and study.selecting:
        return f"{unknown} {study.num_peers} peers are too many to look for groups in their choices."
    if groups is None:
        return (
            f"{unknown} No peer of {listed(study.methods)} chose its neighbours, so their choices do not tell either."
        )
    if len(groups.groups) == 1:
        return f"{unknown} The choices of {chooser} do not part them: all {study.num_peers} peers form one group."
    several = [group for group in groups.groups if len(group) > 1]
    alone = len(groups.groups) - len(several)
    sizes = f"{len(several)} groups of {listed([str(len(group)) for group in several])} peers"
    if len(several) == 1:
        sizes = f"one group of {len(several[0])} peers"
    words = listed([*([sizes] if several else []), *([f"{count(alone, 'peer')} alone"] if alone else [])])
    return (
        f"{unknown} By the neighbours that the peers of {chooser} chose themselves there are {words}: discovered, not "
        f"known. {100 * groups.within_all:.1f} % of the chosen neighbours are of the chooser's own group."
    )


def _group_table(study: Study, groups: Discovered) -> Table:
    run = study.runs[0]
    rows = []
    for number, (group, share) in enumerate(zip(groups.groups, groups.within, strict=True), 1):
        names = ", ".join(run.peer_label(peer) for peer in group[:_MOST_NAMES])
        more = f" and {len(group) - _MOST_NAMES} more" if len(group) > _MOST_NAMES else ""
        chosen = "–" if math.isnan(share) else f"{100 * share:.1f}"
        rows.append((f"group {number}", str(len(group)), f"{names}{more}", chosen))
    columns = ("discovered", "peers", "who", "chosen neighbours within the group %")
    return Table(columns, tuple(rows), wordy=("who",))


def _order_words(study: Study, chooser: MethodName | None) -> str:
    if study.clusters_known:
        return "Peers are sorted by cluster, so light squares on the diagonal are peers that found their own."
    if chooser is None:
        return "Peers stand in the order of their numbers."
    return (
        f"In all maps peers stand beside those with whom they chose each other in {chooser}: the order is that of a "
        "tree (average linkage), which is cut into groups where modularity is largest."
    )

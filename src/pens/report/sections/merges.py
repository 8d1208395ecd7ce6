"""Whose models does a peer merge? The paper's figure 2."""

from __future__ import annotations

from collections import Counter

from pens.report.charts.merges import merge_chart
from pens.report.course import merge_map
from pens.report.section import Section, listed
from pens.report.study import Study


def merges_section(study: Study) -> Section:
    """Figure 2."""
    question = "Whose models does a peer merge?"
    maps = [found for runs in study.by_method() if (found := merge_map(runs[0]))]
    if not maps:
        answer = f"Nobody's: no models are merged with {listed(study.methods)}, so there is no map."
        return Section("merges", question, answer)
    shares = ", ".join(f"{100 * m.within:.1f} % with {m.method}" for m in maps)
    sizes = Counter(study.runs[0].kinds)
    by_chance = sum(n * (n - 1) for n in sizes.values()) / max(1, study.num_peers * (study.num_peers - 1))
    quiet = [m for m in study.methods if m not in {found.method for found in maps}]
    notes = [
        "As in the paper's figure 2: in a light cell the receiving peer often merged a model of the sending one. "
        "Peers are sorted by distribution, so light squares on the diagonal are peers that found their own kind. "
        "All maps share one colour scale."
    ]
    if max(len(group) for found in maps for group in found.groups) > 1:
        notes.append(
            f"{study.num_peers} peers are too many for a map; a cell is the mean over pairs of peers side by side."
        )
    if quiet:
        notes.append(f"{listed(quiet)} merged nothing and {'has' if len(quiet) == 1 else 'have'} no map.")
    most = max(float(found.mean.max()) for found in maps)
    answer = f"Of all models merged, {shares} came from a peer of the receiver's own kind; "
    answer += f"by chance it would be {100 * by_chance:.1f} %." if by_chance else "nobody has another of its kind."
    return Section(
        "merges",
        question,
        answer,
        tuple(merge_chart(found, most) for found in maps),
        notes=tuple(notes),
    )

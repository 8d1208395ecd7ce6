# SPDX-License-Identifier: Apache-2.0
"""The section on peers: the distribution of their accuracy, and their gains over training alone."""

from __future__ import annotations

from collections.abc import Sequence

from pens.methods.names import alone
from pens.report.analysis import Gains, gains, outcomes
from pens.report.charts.peers import gains_chart, peers_chart
from pens.report.section import ReportSection, Table
from pens.report.study import Study
from pens.report.words import listed, low_to_high
from pens.tasks.metric import ACCURACY, Measure


def peers_section(study: Study) -> ReportSection:
    """The distribution of scores over peers, and the peers that lost."""
    measure = study.metric
    unit, worst = measure.unit, min if measure.higher_is_better else max
    peer_outcomes = outcomes(study)
    gained = gains(study, peer_outcomes)
    shown = [peers_chart(peer_outcomes, not study.num_untested, measure)]
    question = "Does every peer gain?"
    if not gained:
        reference = study.alone or alone().name
        only = study.methods == (reference,)
        why = f"only {reference} was run" if only else f"{reference} was not run with the same seeds"
        spread = "; ".join(
            f"{m} from {low_to_high([o.score for o in peer_outcomes if o.method == m], measure)} {unit}".rstrip()
            for m in study.methods
        )
        answer = f"Gains cannot be computed, because {why}. {measure.title} of the peers: {spread}."
        return ReportSection("peers", question, answer, tuple(shown))
    columns = (
        "method",
        "mean gain",
        "peers that lost",
        "smallest gain",
        "peer with the smallest gain",
        measure.label("lowest" if measure.higher_is_better else "highest"),
    )
    rows = tuple(
        (
            g.method,
            _signed(measure, float(g.values.mean())),
            f"{g.lost} of {len(g.values)} ({100 * g.share_lost:.1f} %)",
            f"{_signed(measure, g.worst.gain or 0)} {measure.gap_unit}, to {measure.words(g.worst.score)}".replace(
                "-", "−"
            ),
            f"{g.worst.name}, seed {g.worst.seed}{f', cluster {g.worst.cluster}' if g.worst.cluster else ''}",
            measure.number(worst(o.score for o in peer_outcomes if o.method == g.method)),
        )
        for g in gained
    )
    notes = (
        f"A gain is a peer's accuracy minus that of the same peer with {study.alone} and the same seed, in points. "
        "The peer with the smallest gain need not be the least accurate peer."
        if measure == ACCURACY
        else f"A gain is by how much a peer's {measure.name} is better than its own with {study.alone} and the same "
        "seed. The peer with the smallest gain need not be the worst peer.",
    )
    shown.append(gains_chart(peer_outcomes, study.alone, measure))
    answer = f"Compared with training alone, {_gain_words(gained, measure)}."
    return ReportSection(
        "peers", question, answer, tuple(shown), Table(columns, rows, wordy=("peer with the smallest gain",)), notes
    )


def _signed(measure: Measure, value: float) -> str:
    """+1.2, in points or in the unit of the metric."""
    return f"{measure.scale * value:+.{measure.decimals(value)}f}".replace("-", "−")


def _gain_words(gained: Sequence[Gains], measure: Measure) -> str:
    """The losses of each method in words; methods without losses come first, in one clause."""
    happy = [g.method for g in gained if not g.lost]
    loses = "loses accuracy" if measure == ACCURACY else "becomes worse"
    words = [f"no peer {loses} with {listed(happy)}"] if happy else []
    for g in sorted(gained, key=lambda g: g.share_lost):
        if g.lost:
            cluster = f", {g.worst.cluster}" if g.worst.cluster else ""
            worst = f"{g.worst.name}, seed {g.worst.seed}{cluster}"
            loss = f"{measure.number(-(g.worst.gain or 0))} {measure.gap_unit}"
            lose = "lose accuracy" if measure == ACCURACY else "become worse"
            words.append(f"with {g.method}, {100 * g.share_lost:.1f} % of peers {lose}, at most {loss} ({worst})")
    return "; ".join(words)

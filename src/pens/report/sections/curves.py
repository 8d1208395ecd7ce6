# SPDX-License-Identifier: Apache-2.0
"""How fast does each method learn?"""

from __future__ import annotations

import numpy as np

from pens.methods.names import in_order, method_of
from pens.report.charts.curves import curves_chart
from pens.report.learning_curves import Axis, curves, first_trainings
from pens.report.section import OLDER, ReportSection
from pens.report.study import Study
from pens.report.words import count, listed

_EXACT = 100_000
"""More points than there are rounds."""


def curves_section(study: Study) -> ReportSection:
    """Validation accuracy over rounds, virtual time and bytes."""
    in_rounds = study.settings.gossip.schedule == "rounds"
    over_rounds = curves(study, "rounds")
    shown = [curves_chart(over_rounds, {}, "rounds")] if over_rounds else []
    notes = [
        "Accuracy is each peer's on its own validation data, of the model it has at that time; the one that is tested "
        f"is its best. {_stopping_words(study)}"
    ]
    if in_rounds:
        notes.append("Rounds are synchronous: virtual time counts the rounds, so it has no picture of its own.")
    if selecting := [method for method in study.methods if method in study.selecting]:
        pens = study.settings.pens
        notes.append(
            f"The first {count(pens.step1_rounds, 'round')} of {listed(selecting)} are step 1, in each of which a peer "
            f"compares up to {pens.n_sampled * pens.step1_samplings} models; they come before the rounds of gossip."
        )
    clock: Axis = "seconds" if study.record.real_peers else "time"
    if not in_rounds and (over_time := curves(study, clock)):
        shown.append(curves_chart(over_time, {}, clock))
    for method in study.pooled:
        notes.append(
            f"A round of {method} is {count(study.spec_of(method).settings.training.epochs, 'epoch')} over everybody's "
            "data; it cannot be compared with the others'."
        )
    moving = curves(study, "bytes")
    talking = [runs[0].method for runs in study.by_method() if any(r.communication.received.any() for r in runs)]
    if moving:
        still = {c.method: float(c.mean[-1]) for c in over_rounds if c.method not in talking}
        shown.append(curves_chart(moving, still, "bytes"))
        notes.append(
            "Bytes are models received times the size of one, counted when the update began; refused models count."
        )
    if not talking:
        notes.append("Over bytes there is no picture: no method here receives anything.")
    elif unknown := [method for method in talking if method not in {curve.method for curve in moving}]:
        notes.append(f"Over bytes {listed(unknown)} cannot be shown: {OLDER}.")
    return ReportSection(
        "curves", "How fast does each method learn?", _curves_answer(study), tuple(shown), notes=tuple(notes)
    )


def _curves_answer(study: Study) -> str:
    """Who is as good as random ends, and when; or as the weakest, where nobody gossips at random."""
    found = {c.method: c for c in curves(study, "rounds", points=_EXACT) if c.method not in study.pooled}
    if not found:
        return "There are no rounds to look at: nobody trained more than once."
    baseline = next((method for method in in_order(found) if method_of(method).is_baseline), None)
    mark = found[baseline] if baseline else min(found.values(), key=lambda c: float(c.mean[-1]))
    target = float(mark.mean[-1])
    if len(found) == 1:
        return f"{mark.method} ends at {100 * target:.1f} % validation accuracy after {mark.at[-1]:.0f} rounds."
    reached = {method: curve.first_reach(target) for method, curve in found.items()}
    known = sorted((at, method) for method, at in reached.items() if at is not None)
    never = [method for method, at in reached.items() if at is None]
    return (
        f"The {100 * target:.1f} % validation accuracy at which {mark.method} ends is first reached, in the mean over "
        f"peers, by {listed([f'{method} in round {at:.0f}' for at, method in known])}"
        f"{f'; never by {listed(never)}' if never else ''}."
    )


def _stopping_words(study: Study) -> str:
    """How long peers went on, on average."""
    lasted = {}
    for runs in study.by_method():
        if runs[0].method not in study.pooled:
            lasted[runs[0].method] = np.mean(
                [len(run.history.version) / run.num_peers - first_trainings(study) for run in runs]
            )
    if not lasted:
        return "Once it has stopped, its last value holds."
    words = ", ".join(f"{method} {rounds:.0f}" for method, rounds in lasted.items())
    return f"Peers that no longer improve stop, and their last value holds. Rounds of a peer on average: {words}."

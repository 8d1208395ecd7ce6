# SPDX-License-Identifier: Apache-2.0
"""The section on learning curves: how fast each method learns."""

from __future__ import annotations

import numpy as np

from pens.methods.names import in_order, method_of
from pens.report.charts.curves import curves_chart
from pens.report.learning_curves import Axis, curves, first_trainings
from pens.report.section import OLDER, ReportSection
from pens.report.study import Study
from pens.report.words import count, listed

_EXACT = 100_000
"""More points than a run has rounds, so that every round is a point."""


def curves_section(study: Study) -> ReportSection:
    """The main metric on validation data over rounds, virtual time and bytes."""
    in_rounds = study.settings.gossip.schedule == "rounds"
    over_rounds = curves(study, "rounds")
    shown = [curves_chart(over_rounds, {}, "rounds", study.metric)] if over_rounds else []
    notes = [
        f"{study.metric.title} is that of each peer's current model on its own validation data; each peer's best model "
        f"is tested. {_stopping_words(study)}"
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
        shown.append(curves_chart(over_time, {}, clock, study.metric))
    for method in study.pooled:
        notes.append(
            f"A round of {method} is {count(study.spec_of(method).settings.training.epochs, 'epoch')} over all peers' "
            "data, so its rounds cannot be compared with those of other methods."
        )
    moving = curves(study, "bytes")
    talking = [runs[0].method for runs in study.by_method() if any(r.communication.received.any() for r in runs)]
    if moving:
        still = {c.method: float(c.mean[-1]) for c in over_rounds if c.method not in talking}
        shown.append(curves_chart(moving, still, "bytes", study.metric))
        notes.append(
            "Bytes are the models received, refused ones included, times the size of a model, counted when the update "
            "began."
        )
    if not talking:
        notes.append("There is no picture over bytes, because no method here receives models.")
    elif unknown := [method for method in talking if method not in {curve.method for curve in moving}]:
        notes.append(f"The picture over bytes lacks {listed(unknown)}: {OLDER}.")
    return ReportSection(
        "curves", "How fast does each method learn?", _curves_answer(study), tuple(shown), notes=tuple(notes)
    )


def _curves_answer(study: Study) -> str:
    """Which methods reach the value at which the baseline ends, and in which round. Without a baseline, the worst
    method takes its place."""
    curve_of = {c.method: c for c in curves(study, "rounds", points=_EXACT) if c.method not in study.pooled}
    measure = study.metric
    if not curve_of:
        return "There are no rounds to show, because no peer trained more than once."
    baseline = next((method for method in in_order(curve_of) if method_of(method).is_baseline), None)
    worst = min(curve_of.values(), key=lambda c: measure.goodness(float(c.mean[-1])))
    mark = curve_of[baseline] if baseline else worst
    target = float(mark.mean[-1])
    ends = f"{mark.method} ends at {measure.words(target)} validation {measure.name}"
    if len(curve_of) == 1:
        return f"{ends} after {mark.at[-1]:.0f} rounds."
    reached = {method: curve.first_reach(target, measure.higher_is_better) for method, curve in curve_of.items()}
    known = sorted((at, method) for method, at in reached.items() if at is not None)
    never = [method for method, at in reached.items() if at is None]
    return (
        f"{ends}. The mean over peers first reaches this "
        f"{measure.name} with {listed([f'{method} in round {at:.0f}' for at, method in known])}"
        f"{f'; never with {listed(never)}' if never else ''}."
    )


def _stopping_words(study: Study) -> str:
    """How long peers train, on average."""
    lasted = {}
    for runs in study.by_method():
        if runs[0].method not in study.pooled:
            lasted[runs[0].method] = np.mean(
                [len(run.history.version) / run.num_peers - first_trainings(study) for run in runs]
            )
    if not lasted:
        return "A peer that has stopped keeps its last value."
    words = ", ".join(f"{method} {rounds:.0f}" for method, rounds in lasted.items())
    return f"Peers that no longer improve stop, and keep their last value. Rounds of a peer on average: {words}."

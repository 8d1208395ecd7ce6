"""How fast does each method learn?"""

from __future__ import annotations

from pens.report.charts.curves import curves_chart
from pens.report.course import Axis, curves
from pens.report.section import OLDER, Section, listed
from pens.report.study import Study


def curves_section(study: Study) -> Section:
    """Validation accuracy over rounds, virtual time and bytes."""
    in_rounds = study.settings.gossip.schedule == "rounds"
    over_rounds = curves(study, "rounds")
    shown = [curves_chart(over_rounds, {}, "rounds")] if over_rounds else []
    notes = ["Accuracy is each peer's on its own validation data; once it has stopped, its last value holds."]
    if in_rounds:
        notes.append("In synchronous rounds virtual time counts the rounds, so it has no picture of its own.")
    clock: Axis = "seconds" if study.record.real_peers else "time"
    if not in_rounds and (over_time := curves(study, clock)):
        shown.append(curves_chart(over_time, {}, clock))
    if "central" in study.methods:
        notes.append(
            "A round of central is so many epochs over everybody's data; it cannot be compared with the others'."
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
    return Section(
        "curves", "How fast does each method learn?", _curves_answer(study), tuple(shown), notes=tuple(notes)
    )


def _curves_answer(study: Study) -> str:
    found = [curve for curve in curves(study, "rounds") if curve.method != "central"]
    if not found:
        return "There are no rounds to look at: nobody trained more than once."
    weakest = min(found, key=lambda c: float(c.mean[-1]))
    target = float(weakest.mean[-1])
    if len(found) == 1:
        return f"{weakest.method} ends at {100 * target:.1f} % validation accuracy after {weakest.at[-1]:.0f} rounds."
    reached = [(c.method, c.first_reach(target)) for c in found if c is not weakest]
    words = ", ".join(f"{m} after {at:.0f}" for m, at in sorted(reached, key=lambda r: r[1] or 0) if at is not None)
    return (
        f"The {100 * target:.1f} % validation accuracy at which {weakest.method} ends after {weakest.at[-1]:.0f} "
        f"rounds is first reached by {words} rounds."
    )

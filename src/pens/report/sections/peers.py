"""Does every peer gain?"""

from __future__ import annotations

from pens.report import charts
from pens.report.analysis import Gains, gains, outcomes
from pens.report.section import Section, Table, low_to_high
from pens.report.study import Study


def peers_section(study: Study) -> Section:
    """Accuracy as a distribution over peers, and who lost."""
    found = outcomes(study)
    gained = gains(study, found)
    shown = [charts.peers_chart(found)]
    question = "Does every peer gain?"
    if not gained:
        why = "local was not run with the same seeds" if study.methods != ("local",) else "only local was run"
        spread = "; ".join(
            f"{m} from {low_to_high([o.accuracy for o in found if o.method == m])} %" for m in study.methods
        )
        answer = f"That cannot be said ({why}), only how far peers are apart: {spread}."
        return Section("peers", question, answer, tuple(shown))
    answer = "; ".join(_gain_words(g) for g in sorted(gained, key=lambda g: g.share_lost))
    columns = ("method", "mean gain", "peers that lost", "worst-off", "its loss or gain")
    rows = tuple(
        (
            g.method,
            f"{100 * g.values.mean():+.1f}".replace("-", "−"),
            f"{g.lost} of {len(g.values)} ({100 * g.share_lost:.1f} %)",
            f"peer {g.worst.peer}, seed {g.worst.seed}, kind {g.worst.kind}",
            f"{100 * (g.worst.gain or 0):+.1f} points, to {100 * g.worst.accuracy:.1f} %".replace("-", "−"),
        )
        for g in gained
    )
    notes = ("A gain is a peer's test accuracy minus its own with local and the same seed, in points.",)
    shown.append(charts.gains_chart(found))
    return Section("peers", question, f"Against training alone, {answer}.", tuple(shown), Table(columns, rows), notes)


def _gain_words(g: Gains) -> str:
    if not g.lost:
        return f"with {g.method} none of {len(g.values)} peers loses"
    worst = f"peer {g.worst.peer} of seed {g.worst.seed} ({g.worst.kind}) by {-100 * (g.worst.gain or 0):.1f} points"
    return f"with {g.method} {100 * g.share_lost:.1f} % of peers lose, the worst {worst}"

"""What does it cost, and who is ahead at equal cost?"""

from __future__ import annotations

from collections.abc import Sequence

from pens.config import Method
from pens.report import charts
from pens.report.analysis import Cost, costs
from pens.report.course import Axis, value_at
from pens.report.section import OLDER, Section, Table, size
from pens.report.study import Study


def costs_section(study: Study) -> Section:
    """Models, bytes, work and seconds, and accuracy at equal terms."""
    found = costs(study)
    notes = [
        f"Per peer: means over peers and seeds. One model weighs {size(study.runs[0].communication.model_bytes)}. "
        "A forward pass looks at one sample; training on a sample counts as three, scoring a received model as one for "
        "each of the receiver's training samples. Seconds are of one seed, all peers, on this machine."
    ]
    budgets, words = _equal_terms(study, found)
    notes += words
    if "central" in study.methods:
        notes.append("The work of central is divided among the peers; it collects data instead of models.")
    columns = (
        "method", "models sent", "received", "merged", "scored", "refused", "MB received", "thousand forward passes",
        "of which scoring", "seconds", "points per GB", "points over local per GB",
        *(f"validation accuracy % at {_budget(axis, amount)}" for axis, amount in budgets.items()),
    )  # fmt: skip
    rows = tuple((*_cost_row(c), *(_equal(study, c.method, axis, b) for axis, b in budgets.items())) for c in found)
    shown = [charts.bytes_chart(found)] if any(c.received for c in found) else []
    shown += [charts.work_chart(found)] if any(c.forwards is not None for c in found) else []
    if not any(c.received for c in found):
        notes.append("No method here sends models, so there is no picture of bytes.")
    if not any(c.forwards is not None for c in found):
        notes.append(f"There is no picture of the work, which depends on how many samples each peer holds: {OLDER}.")
    answer = (
        f"Received and computed per peer: {'; '.join(_cost_words(c) for c in found)}.{_equal_words(study, budgets)}"
    )
    return Section("costs", "What does it cost?", answer, tuple(shown), Table(columns, rows), tuple(notes))


def _equal_terms(study: Study, found: Sequence[Cost]) -> tuple[dict[Axis, float], list[str]]:
    """The least that any method spends on bytes and on work, where more than one spends it and it is on record."""
    budgets: dict[Axis, float] = {}
    talking = [c for c in found if c.received]
    if len(talking) > 1 and all(run.history.received is not None for run in study.runs):
        budgets["bytes"] = min(c.bytes_received for c in talking)
    apart = [c for c in found if c.method != "central"]
    known = [value_at(study, c.method, "forwards", 0) is not None for c in apart]
    if len(apart) > 1 and all(known):
        budgets["forwards"] = min(c.forwards or 0.0 for c in apart)
    if not budgets:
        return {}, ["Accuracy at equal bytes or work needs two methods that spend them, and their record; not so here."]
    return budgets, [
        "At equal terms: the mean validation accuracy when each peer has spent as much as the thriftiest method spends "
        "in all, on bytes received or on work, scoring included."
    ]


def _equal(study: Study, method: Method, axis: Axis, budget: float) -> str:
    value = None if method == "central" else value_at(study, method, axis, budget)
    return "–" if value is None else f"{100 * value:.1f}"


def _equal_words(study: Study, budgets: dict[Axis, float]) -> str:
    words = []
    for axis, budget in budgets.items():
        values = {m: value_at(study, m, axis, budget) for m in study.methods if m != "central"}
        ordered = sorted(((v, m) for m, v in values.items() if v is not None), reverse=True)
        words.append(f"at {_budget(axis, budget)} per peer " + ", ".join(f"{m} {100 * v:.1f} %" for v, m in ordered))
    return f" Validation accuracy at equal terms: {'; '.join(words)}." if words else ""


def _budget(axis: Axis, amount: float) -> str:
    return f"equal {size(amount)}" if axis == "bytes" else f"equal work ({amount / 1e3:,.1f} thousand passes)"


def _cost_row(c: Cost) -> tuple[str, ...]:
    share = "–" if not c.forwards else f"{100 * (c.scoring or 0) / c.forwards:.0f} %"
    return (
        c.method,
        *(f"{n:,.0f}" for n in (c.sent, c.received, c.merged, c.scored, c.refused)),
        f"{c.bytes_received / 1e6:,.1f}",
        "–" if c.forwards is None else f"{c.forwards / 1e3:,.1f}",
        share,
        f"{c.seconds:,.1f}",
        _per_gb(c, c.accuracy),
        _per_gb(c, c.gain),
    )


def _per_gb(c: Cost, what: float | None) -> str:
    value = c.per_gb(what)
    return "–" if value is None else f"{100 * value:,.1f}".replace("-", "−")


def _cost_words(c: Cost) -> str:
    received = size(c.bytes_received) if c.received else "nothing"
    if c.forwards is None:
        return f"{c.method} {received}"
    scoring = f", {100 * (c.scoring or 0) / c.forwards:.0f} % of them to score" if c.scoring else ""
    return f"{c.method} {received}, {c.forwards / 1e3:,.0f} thousand forward passes{scoring}"

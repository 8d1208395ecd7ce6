# SPDX-License-Identifier: Apache-2.0
"""The section on costs: the cost of each method, and its accuracy at equal cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pens.methods.names import alone
from pens.report.analysis import Cost, costs
from pens.report.charts.costs import bytes_chart, work_chart
from pens.report.charts.curves import curves_chart
from pens.report.learning_curves import Axis, asks_for_losses, curves, value_at
from pens.report.section import OLDER, ReportSection, Table
from pens.report.study import Study
from pens.report.words import listed, server_words, size
from pens.settings.tree import MethodName
from pens.tasks.metric import Measure


def costs_section(study: Study) -> ReportSection:
    """Models, bytes, work and seconds of each method, and its main metric at equal bytes or work."""
    all_costs, measure = costs(study), study.metric
    notes = [
        f"Per peer: means over peers and seeds. One model has {size(study.runs[0].communication.model_bytes)}. "
        "A forward pass looks at one sample; training on a sample counts as three, scoring a received model as one for "
        "each sample that it is scored on. Seconds are the wall-clock time of one seed with all peers, on the machine "
        "where it ran."
    ]
    budgets, words = _equal_terms(study, all_costs)
    notes += words
    for traffic in filter(None, (server_words(study.of(method)) for method in study.methods)):
        notes.append(f"Servers are not counted above; {traffic}.")
    for method in study.pooled:
        notes.append(f"The work of {method} is divided among the peers; it collects data instead of models.")
    equal = {_budget(axis, amount): _values_at(study, all_costs, axis, amount) for axis, amount in budgets.items()}
    rows = [
        *_cost_rows(all_costs, study.alone or alone().name, measure),
        *((f"{measure.label('validation')} after {at}", *(_shown(v, measure) for v in of)) for at, of in equal.items()),
    ]
    shown = [bytes_chart(all_costs)] if any(c.received for c in all_costs) else []
    shown += [work_chart(all_costs)] if any(c.forwards is not None for c in all_costs) else []
    over_work = [curve for curve in curves(study, "forwards") if curve.method not in study.pooled]
    shown += [curves_chart(over_work, {}, "forwards", measure)] if over_work else []
    drawn = {*study.pooled, *(curve.method for curve in over_work)}
    if unknown := [c.method for c in all_costs if c.method not in drawn]:
        asking = [method for method in unknown if asks_for_losses(study, method)]
        if asking:
            notes.append(
                f"The picture over work lacks {listed(asking)}: peers ask for losses, which is on record as a total "
                "alone, not update by update."
            )
        if older := [method for method in unknown if method not in asking]:
            notes.append(f"The picture over work lacks {listed(older)}: {OLDER}.")
    if not any(c.received for c in all_costs):
        notes.append("No method here sends models, so there is no picture of bytes.")
    if not any(c.forwards is not None for c in all_costs):
        notes.append(f"There is no picture of the work, which depends on how many samples each peer holds: {OLDER}.")
    answer = (
        f"Per peer, MB received and thousand forward passes computed: {'; '.join(_cost_words(c) for c in all_costs)}."
        f"{_equal_words(all_costs, equal, measure)}"
    )
    table = Table(("per peer", *study.methods), tuple(rows), narrow=True)
    return ReportSection("costs", "What does it cost?", answer, tuple(shown), table, tuple(notes))


def _equal_terms(study: Study, all_costs: Sequence[Cost]) -> tuple[dict[Axis, float], list[str]]:
    """The smallest amount of bytes and of work that any method spends in total, where several methods spend it and it
    is on record; and notes that explain the amounts."""
    budgets: dict[Axis, float] = {}
    talking = [c for c in all_costs if c.received and value_at(study, c.method, "bytes", 0) is not None]
    if len(talking) > 1:
        budgets["bytes"] = min(c.bytes_received for c in talking)
    working = [
        c for c in all_costs if c.method not in study.pooled and value_at(study, c.method, "forwards", 0) is not None
    ]
    if len(working) > 1:
        budgets["forwards"] = min(c.forwards or 0.0 for c in working)
    if not budgets:
        return {}, [
            f"{study.metric.title} at equal bytes or work is not shown, because it needs the records of two methods "
            "that spend them."
        ]
    return budgets, [
        f"Validation {study.metric.name} at equal bytes or work: the mean over peers once each peer has spent as much "
        "as the cheapest method spends in total, on bytes received or on work, scoring included."
    ]


def _values_at(study: Study, all_costs: Sequence[Cost], axis: Axis, budget: float) -> list[float | None]:
    """The main metric of each method on validation data; None for methods that spend nothing on the axis, or whose work
    is not that of a peer."""
    spend = [c.method not in study.pooled and (axis != "bytes" or c.received > 0) for c in all_costs]
    return [value_at(study, c.method, axis, budget) if does else None for c, does in zip(all_costs, spend, strict=True)]


def _equal_words(all_costs: Sequence[Cost], equal: Mapping[str, Sequence[float | None]], measure: Measure) -> str:
    words = []
    for at, values in equal.items():
        known = [(v, c.method) for c, v in zip(all_costs, values, strict=True) if v is not None]
        ordered = sorted(known, reverse=measure.higher_is_better)
        words.append(f"after {at}, " + ", ".join(f"{m} {measure.words(v)}" for v, m in ordered))
    return f" Validation {measure.name} at equal cost: {'; '.join(words)}." if words else ""


def _budget(axis: Axis, amount: float) -> str:
    return f"{size(amount)} received" if axis == "bytes" else f"{amount / 1e3:,.1f} thousand passes"


def _shown(value: float | None, measure: Measure) -> str:
    return "–" if value is None else _percent(value) if measure.unit == "%" else measure.number(value)


def _cost_rows(all_costs: Sequence[Cost], reference: MethodName, measure: Measure) -> list[tuple[str, ...]]:
    """The rows of the table, with a column for each method. `reference`: the method with which peers train alone."""
    scoring = [c.scoring / c.forwards if c.forwards and c.scoring is not None else None for c in all_costs]
    score = f"{measure.name}, points per GB"
    per_gb = [(score, *(_percent(c.per_gb(c.score), digits=0) for c in all_costs))] if measure.unit == "%" else []
    gained = f"… gained over {reference}" if per_gb else f"{measure.gap_unit} per GB, gained over {reference}"
    return [
        ("models sent", *(f"{c.sent:,.0f}" for c in all_costs)),
        ("models received", *(f"{c.received:,.0f}" for c in all_costs)),
        ("… merged", *(f"{c.merged:,.0f}" for c in all_costs)),
        ("… scored", *(f"{c.scored:,.0f}" for c in all_costs)),
        ("… refused", *(f"{c.refused:,.0f}" for c in all_costs)),
        ("MB received", *(_megabytes(c.bytes_received) for c in all_costs)),
        ("thousand forward passes", *("–" if c.forwards is None else f"{c.forwards / 1e3:,.1f}" for c in all_costs)),
        ("… % for scoring", *(_percent(share, digits=0) for share in scoring)),
        ("seconds for one seed", *(f"{c.seconds:,.1f}" for c in all_costs)),
        *per_gb,
        (gained, *(_gained(c.per_gb(c.gain), measure) for c in all_costs)),
    ]


def _gained(per_gb: float | None, measure: Measure) -> str:
    return _percent(per_gb, digits=0) if per_gb is None or measure.unit == "%" else f"{per_gb:.3g}".replace("-", "−")


def _percent(fraction: float | None, digits: int = 1) -> str:
    if fraction is None:
        return "–"
    percent = 100 * fraction
    text = f"{percent:,.{digits}f}" if abs(percent) < 1e5 else f"{percent / 1e3:,.0f}k"
    return text.replace("-", "−")


def _megabytes(amount: float) -> str:
    return f"{amount / 1e6:,.1f}" if amount >= 1e6 else f"{amount / 1e6:.2g}"


def _cost_words(c: Cost) -> str:
    received = f"{c.method} {_megabytes(c.bytes_received) if c.received else '0'}"
    if c.forwards is None:
        return f"{received} and unknown"
    scoring = f" ({100 * c.scoring / c.forwards:.0f} % of it scoring)" if c.scoring else ""
    return f"{received} and {c.forwards / 1e3:,.0f}{scoring}"

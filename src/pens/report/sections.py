"""The sections of a report. Each asks a reader's question, answers it in a sentence, and then shows why.

A section that has nothing to show says so, and what would fill it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pens.config import Method
from pens.metrics import Interval
from pens.report import charts
from pens.report.analysis import (
    FEWEST_FOR_WILCOXON,
    REAL_METHODS,
    Cost,
    Difference,
    Gains,
    costs,
    difference,
    differences,
    gains,
    outcomes,
    ranking,
)
from pens.report.charts import Chart
from pens.report.course import Axis, curves, merge_map, selecting, value_at
from pens.report.paper import Cell, departures, paper_accuracy, paper_agreement
from pens.report.reproduce import command, nearest_preset
from pens.report.study import Study
from pens.report.tables import duration
from pens.results import Summary, summarise

_OLDER = "these runs are older than that record; run them again to have it"


@dataclass(frozen=True)
class Table:
    """Cells as they are shown; the first of each row names it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """A question, its answer, and what it rests on."""

    name: str
    question: str
    answer: str
    charts: tuple[Chart, ...] = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()
    code: str = ""
    settings: tuple[tuple[str, tuple[tuple[str, str, bool], ...]], ...] = ()
    """(section, ((key, value, whether it differs from the nearest preset), …))"""


def sections(study: Study) -> list[Section]:
    """All of them, in order."""
    found = differences(study)
    return [
        accuracy_section(study),
        curves_section(study),
        merges_section(study),
        neighbours_section(study),
        peers_section(study),
        costs_section(study),
        tests_section(study, found),
        settings_section(study),
    ]


# --- the headline -----------------------------------------------------------------------------------------------------


def what_was_run(study: Study) -> str:
    """Setting, peers, seeds, device and versions."""
    run, scenario = study.runs[0], study.settings.scenario
    data = "own data" if "data" in study.record.own_parts else scenario.dataset
    sizes = Counter(run.kind_names[kind] for kind in run.kinds)
    kinds = ", ".join(f"{count} of {name}" for name, count in sizes.items())
    samples = "" if "data" in study.record.own_parts else f", {scenario.train_per_peer} training samples each"
    schedule = "synchronous rounds" if study.settings.gossip.schedule == "rounds" else "event-driven (async)"
    devices = ", ".join(dict.fromkeys(r.device for r in study.runs))
    libraries = dict(item for r in study.runs for item in r.versions.items())
    versions = ", ".join(f"{name} {version}" for name, version in libraries.items()) or "versions not on record"
    seeds = _count(len({r.seed for r in study.runs}), "seed")
    return (
        f"{data}: {study.num_peers} peers ({kinds}){samples}; {', '.join(study.methods)} × {seeds}; {schedule}; "
        f"on {devices}; {versions}."
    )


def verdict(study: Study) -> str:
    """Who wins, by how much, and how sure that is."""
    order = ranking(study)
    real = [method for method in order if method in REAL_METHODS] or order
    best = real[0]
    words = [_lead(study, best, real[1]) if len(real) > 1 else f"{best} reaches {_accuracy(study, best)} %."]
    for reference, what in (("oracle", "which is told the kinds"), ("central", "one model on everybody's data")):
        if reference in order and reference != best:
            words.append(_beside(study, best, reference, what))
    return " ".join(words)


def missing(study: Study) -> str:
    """Which runs are not complete; empty where all are."""
    if not study.missing:
        return ""
    named = ", ".join(f"{method} seed {seed}" for method, seed in study.missing[:12])
    more = f" and {len(study.missing) - 12} more" if len(study.missing) > 12 else ""
    total = len(study.missing) + len(study.runs)
    return (
        f"{len(study.missing)} of {total} runs are missing: {named}{more}. "
        f"What follows is of those that are complete. Continue with: pens run --resume {study.folder}"
    )


def _lead(study: Study, best: Method, second: Method) -> str:
    found = difference(study.of(best), study.of(second))
    if found is None:
        return f"{best} ({_accuracy(study, best)} %) and {second} ({_accuracy(study, second)} %) share no seed."
    gap = f"{_points(found.mean)} points"
    if len(found.seeds) == 1:
        return (
            f"{best} is ahead with {_accuracy(study, best)} %, {gap} before {second}; "
            "but this is one seed, without an interval, and may be luck."
        )
    if found.better != best or not found.is_clear:
        return (
            f"{best} ({_accuracy(study, best)} %) and {second} ({_accuracy(study, second)} %) are level: "
            f"a difference of {gap} may be chance."
        )
    return f"{best} wins with {_accuracy(study, best)} %, {gap} before {second} ({_accuracy(study, second)} %)."


def _beside(study: Study, best: Method, reference: Method, what: str) -> str:
    found = difference(study.of(best), study.of(reference))
    accuracy = f"{reference}, {what}, reaches {_accuracy(study, reference)} %"
    if found is None:
        return f"{accuracy}."
    gap = f"{_points(found.mean)} points"
    if len(found.seeds) > 1 and not found.is_clear:
        return f"{accuracy}: no clear difference ({gap})."
    return f"{accuracy}, {gap} {'less' if found.better == best else 'more'}."


# --- accuracy ---------------------------------------------------------------------------------------------------------


def accuracy_section(study: Study) -> Section:
    """Accuracy per method, and the paper's."""
    table = [summarise(study.of(method)) for method in study.methods]
    cells = _paper_cells(study)
    named = ", ".join(
        f"{row.method} {row.accuracy.percent()} %" for row in sorted(table, key=lambda r: -r.accuracy.mean)
    )
    seeds = max(row.seeds for row in table)
    how = f"95 % interval over {seeds} seeds" if seeds > 1 else "one seed, so no interval"
    rows = tuple(_accuracy_row(row, cells.get(row.method)) for row in table)
    columns = ("method", "test accuracy %", "worst tenth of peers %", *(("paper %", "in words") if cells else ()))
    notes = ["Each peer is tested on its own distribution; the worst tenth is the mean of the least accurate peers."]
    return Section(
        "accuracy",
        "How accurate is each method?",
        f"Mean over peers, {how}: {named}.{_paper_answer(table, cells)}",
        (charts.accuracy_chart(table, cells),),
        Table(columns, rows if cells else tuple(row[:3] for row in rows)),
        (*notes, *_paper_notes(study, cells)),
    )


def _paper_cells(study: Study) -> dict[Method, Cell]:
    if study.record.own_parts:
        return {}
    cells = {method: paper_accuracy(study.settings, method) for method in study.methods}
    return {method: cell for method, cell in cells.items() if cell}


def _accuracy_row(row: Summary, cell: Cell | None) -> tuple[str, ...]:
    ours = (row.method, row.accuracy.percent(), row.worst_tenth.percent())
    return (*ours, cell.value.percent(), f"{cell.where}: {agreement_words(row.accuracy, cell.value)}") if cell else (
        *ours, "–", "not in the paper"
    )  # fmt: skip


def agreement_words(ours: Interval, paper: Interval) -> str:
    """Whether two intervals overlap, in words."""
    apart = 100 * abs(ours.mean - paper.mean)
    side = "higher" if ours.mean > paper.mean else "lower"
    if ours.half_width is None:
        inside = abs(ours.mean - paper.mean) <= (paper.half_width or 0)
        return "one seed, inside the paper's interval" if inside else f"one seed, {apart:.1f} points {side}"
    overlap = abs(ours.mean - paper.mean) <= ours.half_width + (paper.half_width or 0)
    return "the intervals overlap" if overlap else f"the intervals do not overlap: {apart:.1f} points {side}"


def _paper_answer(table: Sequence[Summary], cells: dict[Method, Cell]) -> str:
    if not cells:
        return ""
    words = {row.method: agreement_words(row.accuracy, cells[row.method].value) for row in table if row.method in cells}
    agree = [m for m, w in words.items() if "do not overlap" not in w and not w.endswith(("higher", "lower"))]
    differ = [f"{m} ({w})" for m, w in words.items() if m not in agree]
    parts = [f"{', '.join(agree)} agree{'s' if len(agree) == 1 else ''} with the paper"] if agree else []
    parts += (
        [f"not so {', '.join(differ)}" if agree else f"none agrees with the paper: {', '.join(differ)}"]
        if differ
        else []
    )
    return f" {'; '.join(parts).capitalize()}." if not agree else f" {'; '.join(parts)}."


def _paper_notes(study: Study, cells: dict[Method, Cell]) -> list[str]:
    if not cells:
        why = "own data or an own network" if study.record.own_parts else "other data, peers, samples or initialisation"
        return [f"The paper has no number for these settings ({why}), so there is nothing to set beside them."]
    changed = departures(study.settings)
    notes = [
        "The paper's text says SGD with a rate of 0.001, which does not learn here; pens uses Adam, as its code does."
    ]
    if changed:
        notes.append(f"Compare with care, these settings are not the paper's: {'; '.join(changed)}.")
    return notes


# --- curves -----------------------------------------------------------------------------------------------------------


def curves_section(study: Study) -> Section:
    """Validation accuracy over rounds, virtual time and bytes."""
    in_rounds = study.settings.gossip.schedule == "rounds"
    over_rounds = curves(study, "rounds")
    shown = [charts.curves_chart(over_rounds, {}, "rounds")] if over_rounds else []
    notes = [
        "Each peer's accuracy on its own validation data after each update; when a peer has stopped, its last value holds."
    ]
    if in_rounds:
        notes.append("In synchronous rounds virtual time counts the rounds, so it has no picture of its own.")
    elif over_time := curves(study, "time"):
        shown.append(charts.curves_chart(over_time, {}, "time"))
    if "central" in study.methods:
        notes.append(
            "A round of central is so many epochs over everybody's data; it cannot be compared with the others'."
        )
    moving = curves(study, "bytes")
    if moving:
        still = {c.method: float(c.mean[-1]) for c in over_rounds if c.method not in {m.method for m in moving}}
        shown.append(charts.curves_chart(moving, still, "bytes"))
        notes.append(
            "Bytes are models received times the size of one, counted when the update began; refused models count."
        )
    elif any(run.communication.received.any() for run in study.runs):
        notes.append(f"Over bytes there is no picture: {_OLDER}.")
    else:
        notes.append("Over bytes there is no picture: no method here receives anything.")
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
        f"The {100 * target:.1f} % validation accuracy at which {weakest.method} ends after {weakest.at[-1]:.0f} rounds "
        f"is first reached by {words} rounds."
    )


# --- who merged whom --------------------------------------------------------------------------------------------------


def merges_section(study: Study) -> Section:
    """Figure 2."""
    question = "Whose models does a peer merge?"
    maps = [found for runs in study.by_method() if (found := merge_map(runs[0]))]
    if not maps:
        return Section("merges", question, f"Nobody's: {_and(study.methods)} merge no models, so there is no map.")
    shares = ", ".join(f"{100 * m.within:.1f} % with {m.method}" for m in maps)
    sizes = Counter(study.runs[0].kinds)
    by_chance = sum(n * (n - 1) for n in sizes.values()) / max(1, study.num_peers * (study.num_peers - 1))
    quiet = [m for m in study.methods if m not in {found.method for found in maps}]
    notes = [
        "As in the paper's figure 2: a light cell means that the receiving peer often merged a model of the sending one. "
        "Peers are sorted by distribution, so light squares on the diagonal are peers that found their own kind. "
        "All maps share one colour scale."
    ]
    if max(len(group) for found in maps for group in found.groups) > 1:
        notes.append(
            f"{study.num_peers} peers are too many for a map; a cell is the mean over pairs of peers side by side."
        )
    if quiet:
        notes.append(f"{_and(quiet)} merged nothing and {'has' if len(quiet) == 1 else 'have'} no map.")
    most = max(float(found.mean.max()) for found in maps)
    return Section(
        "merges",
        question,
        f"Of all models merged, {shares} came from a peer of the receiver's own kind; by chance it would be "
        f"{100 * by_chance:.1f} %.",
        tuple(charts.merge_chart(found, most) for found in maps),
        notes=tuple(notes),
    )


# --- neighbours -------------------------------------------------------------------------------------------------------


def neighbours_section(study: Study) -> Section:
    """Precision and recall over the rounds of step 1."""
    question = "Does PENS find the right neighbours, and when?"
    runs = study.of("pens")
    if not runs:
        return Section("neighbours", question, "pens was not run here, and no other method chooses neighbours.")
    summary = summarise(runs)
    if not summary.precision or not summary.recall:
        return Section(
            "neighbours", question, "No peer chose a neighbour that could be judged: each is alone of its kind."
        )
    ended = f"precision {summary.precision.percent()} % and recall {summary.recall.percent()} %"
    paper = None if study.record.own_parts else paper_agreement(study.settings)
    notes = [
        "Precision: the share of the chosen neighbours that are of the peer's own kind. Recall: the share of its kind "
        "that was chosen. Mean over peers. The picture applies the rule of the end of step 1 to the counts so far."
    ]
    if paper:
        precision, recall = paper
        notes.append(
            f"The paper's table 5: precision {precision.value.percent()} % ("
            f"{agreement_words(summary.precision, precision.value)}), recall {recall.value.percent()} % ("
            f"{agreement_words(summary.recall, recall.value)})."
        )
    found = [s for run in runs if (s := selecting(study, run))]
    if len(found) < len(runs) or not found:
        notes.append(f"There is no picture over the rounds: {_OLDER}.")
        return Section("neighbours", question, f"Step 1 ends with {ended}.", notes=tuple(notes))
    last = max(len(s.rounds) for s in found)
    half = [(s.precision[h], s.recall[h]) for s in found if (h := max(0, len(s.rounds) // 2 - 1)) >= 0]
    precision_half, recall_half = np.mean(half, axis=0)
    earlier = (
        f"; had it ended after {last // 2}, precision would have been {100 * precision_half:.1f} % and recall "
        f"{100 * recall_half:.1f} %"
        if last > 1
        else ""
    )
    answer = f"After {_count(last, 'round')} step 1 ends with {ended}{earlier}."
    return Section("neighbours", question, answer, (charts.neighbours_chart(found, paper),), notes=tuple(notes))


# --- peers ------------------------------------------------------------------------------------------------------------


def peers_section(study: Study) -> Section:
    """Accuracy as a distribution over peers, and who lost."""
    found = outcomes(study)
    gained = gains(study, found)
    shown = [charts.peers_chart(found)]
    question = "Does every peer gain?"
    if not gained:
        why = "local was not run with the same seeds" if study.methods != ("local",) else "only local was run"
        spread = "; ".join(
            f"{m} from {_low_high([o.accuracy for o in found if o.method == m])} %" for m in study.methods
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
            f"{100 * (g.worst.gain or 0):+.1f} to {100 * g.worst.accuracy:.1f} %".replace("-", "−"),
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


# --- costs ------------------------------------------------------------------------------------------------------------


def costs_section(study: Study) -> Section:
    """Models, bytes, work and seconds, and accuracy at equal terms."""
    found = costs(study)
    notes = [
        f"Per peer: means over peers and seeds. One model is {_bytes(study.runs[0].communication.model_bytes)} on the wire. "
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
        notes.append(f"There is no picture of the work, which depends on how many samples each peer holds: {_OLDER}.")
    answer = "; ".join(_cost_words(c) for c in found) + "." + _equal_words(study, budgets)
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
    return f"equal {_bytes(amount)}" if axis == "bytes" else f"equal work ({amount / 1e3:,.1f} thousand passes)"


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
    work = "" if c.forwards is None else f" and computes {c.forwards / 1e3:,.0f} thousand forward passes"
    scoring = f" ({100 * (c.scoring or 0) / c.forwards:.0f} % of them to score)" if c.forwards and c.scoring else ""
    return f"{c.method} receives {_bytes(c.bytes_received) if c.received else 'nothing'} per peer{work}{scoring}"


# --- tests ------------------------------------------------------------------------------------------------------------


def tests_section(study: Study, found: Sequence[Difference]) -> Section:
    """Paired tests between methods over seeds."""
    question = "Could the differences be luck?"
    if not found:
        return Section("tests", question, "There is one method only, or no seed in common: nothing to compare.")
    most = max(len(d.seeds) for d in found)
    shown = (charts.differences_chart(found),)
    if most == 1:
        return Section(
            "tests",
            question,
            "With one seed nobody can know: run at least four (--seeds 4) for intervals and tests.",
            shown,
        )
    columns = ("pair", "difference in points", "seeds", "paired t: p", "after Holm", "Wilcoxon: p")
    rows = tuple(
        (
            f"{d.better} − {d.other}",
            _points(d.mean),
            str(len(d.seeds)),
            *(_p(p) for p in (d.p_t, d.p_holm, d.p_wilcoxon)),
        )
        for d in found
    )
    clear = [
        f"{d.better} over {d.other} by {_points(d.mean)}" for d in found if d.p_holm is not None and d.p_holm < 0.05
    ]
    unclear = [f"{d.better} and {d.other}" for d in found if d.p_holm is None or d.p_holm >= 0.05]
    answer = f"Over {most} seeds, paired and corrected for {len(found)} comparisons, hardly luck (p < 0.05): " + (
        f"{'; '.join(clear)} points." if clear else "nothing."
    )
    answer += f" May be luck: {'; '.join(unclear)}." if unclear else ""
    notes = [
        "Differences of the mean accuracy over peers with the same seed, which means the same data and first models."
    ]
    if most < FEWEST_FOR_WILCOXON:
        notes.append(
            f"Wilcoxon's test is left out: with {most} seeds it cannot give less than {2 / 2**most:.3f}, whatever the data; "
            f"it takes {FEWEST_FOR_WILCOXON}."
        )
    if most < 4:
        notes.append(f"{most} seeds are few: the t test then rests on the assumption of normal differences.")
    return Section("tests", question, answer, shown, Table(columns, rows), tuple(notes))


# --- settings ---------------------------------------------------------------------------------------------------------


def settings_section(study: Study) -> Section:
    """Settings, the command, and what the runs warned of."""
    base, changed = nearest_preset(study.settings)
    tree = study.settings.model_dump(mode="json")
    shown = tuple(
        (name, tuple((key, _shown(value), key in changed) for key, value in values.items()))
        for name, values in tree.items()
    )
    warned = [(run, message) for run in study.runs for message in run.warnings]
    notes = [
        f"Settings in bold differ from the preset {base}."
        if changed
        else f"All settings are those of the preset {base}."
    ]
    notes.append(
        f"The same settings and seed give the same run on a CPU, to the last bit; these took "
        f"{duration(sum(run.seconds for run in study.runs))} in all."
    )
    if study.record.own_parts:
        notes.append(f"Own {' and '.join(study.record.own_parts)} came from Python and must be given again.")
    notes += [f"Warning, {run.method} seed {run.seed}: {message}" for run, message in warned[:8]]
    if len(warned) > 8:
        notes.append(f"… and {len(warned) - 8} warnings more; each run's result.json has its own.")
    answer = f"With the command below; the runs gave {_count(len(warned), 'warning') if warned else 'no warnings'}."
    return Section(
        "settings", "How can this be repeated?", answer, notes=tuple(notes), code=command(study.record), settings=shown
    )


# --- several experiments ----------------------------------------------------------------------------------------------


def overview(studies: Sequence[Study]) -> Table:
    """All experiments side by side: accuracy of each method."""
    methods = tuple(dict.fromkeys(m for study in studies for m in study.methods))
    rows = []
    for study in studies:
        cells = [_accuracy(study, m) if m in study.methods else "–" for m in methods]
        rows.append((study.name, _setting_words(study), *cells))
    return Table(("experiment", "setting", *methods), tuple(rows))


def _setting_words(study: Study) -> str:
    scenario = study.settings.scenario
    data = "own data" if "data" in study.record.own_parts else scenario.dataset
    if not study.runs:
        return f"{data}; no run is complete"
    seeds = _count(len({run.seed for run in study.runs}), "seed")
    kinds = len(set(study.runs[0].kinds))
    return f"{data}, {study.num_peers} peers of {_count(kinds, 'kind')}, {study.settings.gossip.schedule}, {seeds}"


# --- words ------------------------------------------------------------------------------------------------------------


def _accuracy(study: Study, method: Method) -> str:
    return summarise(study.of(method)).accuracy.percent()


def _points(value: Interval) -> str:
    half = "" if value.half_width is None else f" ± {100 * value.half_width:.1f}"
    return f"{100 * value.mean:.1f}{half}"


def _p(value: float | None) -> str:
    return "–" if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def _bytes(amount: float) -> str:
    """320 B, 37.0 kB, 16.7 MB, 1.4 GB"""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= size:
            return f"{amount / size:,.1f} {unit}"
    return f"{amount:.0f} B"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _low_high(values: Sequence[float]) -> str:
    return f"{100 * min(values):.1f} to {100 * max(values):.1f}"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

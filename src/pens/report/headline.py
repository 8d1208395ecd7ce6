"""What was run, who wins, and several experiments side by side."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from pens.config import Method
from pens.report.analysis import REAL_METHODS, costs, difference, ranking
from pens.report.section import Table, count, points
from pens.report.study import Study
from pens.results import summarise


def what_was_run(study: Study) -> str:
    """Setting, peers, seeds, device and versions."""
    run, scenario = study.runs[0], study.settings.scenario
    data = "own data" if "data" in study.record.own_parts else scenario.dataset
    sizes = Counter(run.kind_names[kind] for kind in run.kinds)
    kinds = ", ".join(f"{number} of {name}" for name, number in sizes.items())
    samples = "" if "data" in study.record.own_parts else f", {scenario.train_per_peer} training samples each"
    schedule = "synchronous rounds" if study.settings.gossip.schedule == "rounds" else "event-driven (async)"
    schedule = "real peers" if study.record.real_peers else schedule
    devices = ", ".join(dict.fromkeys(r.device for r in study.runs))
    libraries = dict(item for r in study.runs for item in r.versions.items())
    versions = ", ".join(f"{name} {version}" for name, version in libraries.items()) or "versions not on record"
    seeds = count(len({r.seed for r in study.runs}), "seed")
    return (
        f"{data}: {study.num_peers} peers ({kinds}){samples}; {', '.join(study.methods)} × {seeds}; {schedule}; "
        f"on {devices}; {versions}."
    )


def verdict(study: Study) -> str:
    """Who wins, by how much, and how sure that is."""
    order = ranking(study)
    real = [method for method in order if method in REAL_METHODS] or order
    best = real[0]
    words = [_lead(study, best, real[1]) if len(real) > 1 else f"{best} reaches {accuracy_of(study, best)} %."]
    for reference, what in (("oracle", "which is told the kinds"), ("central", "one model on everybody's data")):
        if reference in order and reference != best:
            words.append(_beside(study, best, reference, what))
    if len(real) > 1 and (dearer := _price(study, best, real[1])):
        words.append(dearer)
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
        f"What follows is of those that are complete. Continue with: pens run --resume {shlex.quote(str(study.folder))}"
    )


def _lead(study: Study, best: Method, second: Method) -> str:
    found = difference(study.of(best), study.of(second))
    if found is None:
        return f"{best} ({accuracy_of(study, best)} %) and {second} ({accuracy_of(study, second)} %) share no seed."
    gap = f"{points(found.mean)} points"
    if len(found.seeds) == 1:
        return (
            f"{best} is ahead with {accuracy_of(study, best)} %, {gap} before {second}; "
            "but this is one seed, without an interval, and may be luck."
        )
    if found.better != best or not found.is_clear:
        return (
            f"{best} ({accuracy_of(study, best)} %) and {second} ({accuracy_of(study, second)} %) are level: "
            f"a difference of {gap} may be chance."
        )
    return f"{best} wins with {accuracy_of(study, best)} %, {gap} before {second} ({accuracy_of(study, second)} %)."


def _beside(study: Study, best: Method, reference: Method, what: str) -> str:
    found = difference(study.of(best), study.of(reference))
    accuracy = f"{reference}, {what}, reaches {accuracy_of(study, reference)} %"
    if found is None:
        return f"{accuracy}."
    gap = f"{points(found.mean)} points"
    if len(found.seeds) > 1 and not found.is_clear:
        return f"{accuracy}: no clear difference ({gap})."
    return f"{accuracy}, {gap} {'less' if found.better == best else 'more'}."


def _price(study: Study, best: Method, second: Method) -> str:
    """How much more or less the best method spends than the next; empty where it is the same or cannot be said."""
    found = {cost.method: cost for cost in costs(study)}
    one, two = found[best], found[second]
    ratios = {"bytes": one.bytes_received / two.bytes_received} if two.received else {}
    if one.forwards and two.forwards:
        ratios["work"] = one.forwards / two.forwards
    words = [f"{ratio:.1f} times the {what}" for what, ratio in ratios.items() if abs(ratio - 1) >= 0.05]
    return f"{best} spends {' and '.join(words)} of {second}." if words else ""


def overview(studies: Sequence[Study]) -> Table:
    """All experiments side by side: accuracy of each method."""
    methods = tuple(dict.fromkeys(m for study in studies for m in study.methods))
    rows = []
    for study in studies:
        cells = [accuracy_of(study, m) if m in study.methods else "–" for m in methods]
        rows.append((study.name, _setting_words(study), *cells))
    return Table(("experiment", "setting", *methods), tuple(rows), wordy=("setting",))


def _setting_words(study: Study) -> str:
    scenario = study.settings.scenario
    data = "own data" if "data" in study.record.own_parts else scenario.dataset
    if not study.runs:
        return f"{data}; no run is complete"
    seeds = count(len({run.seed for run in study.runs}), "seed")
    kinds = len(set(study.runs[0].kinds))
    return f"{data}, {study.num_peers} peers of {count(kinds, 'kind')}, {study.settings.gossip.schedule}, {seeds}"


def accuracy_of(study: Study, method: Method) -> str:
    """88.0 ± 3.2, in per cent."""
    return summarise(study.of(method)).accuracy.percent()

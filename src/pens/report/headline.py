# SPDX-License-Identifier: Apache-2.0
"""The head of a report: what was run, which method is the most accurate, and experiments side by side."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from pens.measuring.metrics import FEWEST_SEEDS
from pens.measuring.results import summarise
from pens.methods.names import all_methods, in_order, method_of
from pens.report.analysis import (
    costs,
    data_sizes,
    difference,
    paired,
    paper_cells,
    ranking,
    summary_of,
)
from pens.report.section import Table
from pens.report.study import Study
from pens.report.words import count, listed, points, setting_text, thousands
from pens.settings.keys import flat_values
from pens.settings.tree import MethodName
from pens.tasks.metric import ACCURACY

_FEW_NAMES = 6
"""The largest number of names that a sentence lists."""


def what_was_run(study: Study) -> str:
    """A sentence with the setting, peers, seeds, device and versions."""
    schedule = "synchronous rounds" if study.settings.gossip.schedule == "rounds" else "event-driven (async)"
    schedule = "real peers" if study.record.real_peers else schedule
    devices = ", ".join(dict.fromkeys(r.device for r in study.runs))
    libraries = dict(item for r in study.runs for item in r.versions.items())
    versions = ", ".join(f"{name} {version}" for name, version in libraries.items()) or "versions not on record"
    seeds = count(len({r.seed for r in study.runs}), "seed")
    return (
        f"{study.record.data_name}: {study.num_peers} peers{_peers_words(study)}{_samples_words(study)}; "
        f"{', '.join(study.methods)} × {seeds}; {schedule}; on {devices}; {versions}."
    )


def _peers_words(study: Study) -> str:
    """The clusters of the peers where they are known; otherwise their names where there are few."""
    run = study.runs[0]
    if study.clusters_known:
        return f" ({', '.join(f'{number} of {name}' for name, number in run.cluster_sizes.items())})"
    names = [run.peer_label(peer) for peer in range(study.num_peers)]
    return f" ({', '.join(names)})" if len(names) <= _FEW_NAMES else ""


def _samples_words(study: Study) -> str:
    """The number of samples that a peer trains on; empty where it is not on record."""
    run = next((run for run in study.runs if run.method not in study.pooled), None)
    sizes = data_sizes(study, run) if run else None
    if sizes is None:
        return ""
    low, high = int(sizes.train.min()), int(sizes.train.max())
    return f", {low} training samples each" if low == high else f", {low} to {high} training samples each"


def verdict(study: Study) -> str:
    """Sentences on which method is the most accurate, by how much, and how certain that is."""
    order = ranking(study)
    real = [method for method in order if method_of(method).attainable] or order
    best = real[0]
    words = [_lead(study, best, real[1]) if len(real) > 1 else f"{best} reaches {score_of(study, best)}."]
    words += [_beside(study, best, *reference) for reference in _references(study, best) if reference[0] != best]
    if advantage := _tested_otherwise(study, best):
        words.append(advantage)
    baseline = next((method for method in in_order(real) if method_of(method).is_baseline), best)
    if price := _price(study, best, baseline if baseline != best else real[-1]):
        words.append(price)
    return " ".join(words)


def _references(study: Study, best: MethodName) -> list[tuple[MethodName, str]]:
    """Upper bounds, which no real peer can reach, each with the reason in words. Of the methods that are told the
    clusters, one is shown, preferably one that tests the same model as the best method; methods with pooled data are
    all shown."""
    told = [method for method in in_order(study.methods) if method_of(method).told_clusters]
    told.sort(key=lambda method: _tests(study, method) != _tests(study, best))
    return [
        *((method, "which is told the clusters") for method in told[:1]),
        *((method, "one model trained on the data of all peers") for method in study.pooled),
    ]


def missing(study: Study) -> str:
    """A sentence that lists the missing runs; empty where all are complete."""
    if not study.missing:
        return ""
    named = ", ".join(f"{method} seed {seed}" for method, seed in study.missing[:12])
    more = f" and {len(study.missing) - 12} more" if len(study.missing) > 12 else ""
    total = len(study.missing) + len(study.runs)
    return (
        f"{len(study.missing)} of {total} runs are missing: {named}{more}. "
        "The results below are those of the complete runs. "
        f"Continue with: pens run --resume {shlex.quote(str(study.folder))}"
    )


def _lead(study: Study, best: MethodName, second: MethodName) -> str:
    diff = difference(study.of(best), study.of(second))
    if diff is None:
        return f"{best} ({score_of(study, best)}) and {second} ({score_of(study, second)}) share no seed."
    gap = f"{points(diff.mean)} {study.metric.gap_unit}"
    if len(diff.seeds) < FEWEST_SEEDS:
        more = "more" if (diff.better == best) == study.metric.higher_is_better else "less"
        seeds = "one seed is" if len(diff.seeds) == 1 else f"{len(diff.seeds)} seeds are"
        return (
            f"{best} has {score_of(study, best)}, {gap} {more} than {second}; "
            f"{seeds} too few for an interval, so the difference may be due to chance."
        )
    if diff.better != best or not diff.is_clear:
        return (
            f"{best} ({score_of(study, best)}) and {second} ({score_of(study, second)}) are level: "
            f"a difference of {gap} may be due to chance."
        )
    most = "the most accurate" if study.metric == ACCURACY else f"the best by {study.metric.name}"
    return (
        f"Of the methods that neither pool data nor know the clusters, {best} is {most} with {score_of(study, best)}, "
        f"{gap} ahead of {second} ({score_of(study, second)})."
    )


def _beside(study: Study, best: MethodName, reference: MethodName, what: str) -> str:
    diff = difference(study.of(best), study.of(reference))
    accuracy = f"{reference}, {what}, reaches {score_of(study, reference)}"
    if diff is None:
        return f"{accuracy}."
    gap = f"{points(diff.mean)} {study.metric.gap_unit}"
    if len(diff.seeds) >= FEWEST_SEEDS and not diff.is_clear:
        return f"{accuracy}: no clear difference ({gap})."
    return f"{accuracy}, {gap} {'less' if (diff.better == best) == study.metric.higher_is_better else 'more'}."


def _tested_otherwise(study: Study, best: MethodName) -> str:
    """A caution where the best method tests merged models and other methods, which would gain from that, do not."""
    if _tests(study, best) == "trained":
        return ""
    others = [name for name in study.methods if method_of(name).merges and _tests(study, name) == "trained"]
    if not others:
        return ""
    plus = [method.name for method in all_methods() if method.plus_of and not method.selects]
    either = "the merged or the fine-tuned model, whichever a peer's validation data prefer"
    tests = "the merged model" if _tests(study, best) == "merged" else either
    return (
        f"The choice of neighbours is not the only difference: {best} tests {tests}, while {listed(others)} "
        f"{'tests' if len(others) == 1 else 'test'} the model that a peer fine-tuned from it. That may improve "
        f"{'this method' if len(others) == 1 else 'these methods'}, too: compare with {listed(plus)}."
    )


def _tests(study: Study, method: MethodName) -> str:
    """Which models a method tests: merged, fine-tuned (trained), or either."""
    return study.spec_of(method).settings.stopping.validated


def _price(study: Study, best: MethodName, other: MethodName) -> str:
    """How the bytes and work of the best method compare with those of another; empty where they are equal or
    unknown."""
    cost_of = {cost.method: cost for cost in costs(study)}
    one, two = cost_of[best], cost_of[other]
    words = []
    if two.received and abs((ratio := one.bytes_received / two.bytes_received) - 1) >= 0.05:
        words.append(f"receives {ratio:.1f} times the bytes")
    if one.forwards and two.forwards and abs((ratio := one.forwards / two.forwards) - 1) >= 0.05:
        scoring = f", {100 * one.scoring / one.forwards:.0f} % of it to score models" if one.scoring else ""
        words.append(f"does {ratio:.1f} times the work of {other}{scoring}")
    elif words:
        words[0] += f" of {other}"
    return f"{best} {' and '.join(words)}." if words else ""


def title(studies: Sequence[Study]) -> str:
    """The title of the page."""
    settings = list(dict.fromkeys(_scene(study) for study in studies))
    return settings[0] if len(settings) == 1 else f"{len(studies)} experiments"


def side_by_side(studies: Sequence[Study]) -> str:
    """A sentence that introduces the table of several experiments."""
    apart = _apart(studies)
    differ = f", which differ in {listed(apart)}" if apart else ""
    return (
        f"{len(studies)} experiments side by side{differ}: {_measured(studies)}, mean over peers ± 95 % interval over "
        "seeds; below it, the models that a peer received and the work that it did."
    )


def overview(studies: Sequence[Study]) -> Table:
    """All experiments side by side: the main metric of each method, the paper's, and what lies between two of them."""
    methods = tuple(dict.fromkeys(m for study in studies for m in study.methods))
    apart = _apart(studies)
    rows = []
    for study in studies:
        cells = [summarise(study.of(m)).score.text() if m in study.methods else "–" for m in methods]
        rows.append((study.name, _setting_words(study, apart), *cells))
        if study.runs:
            spent = [_cost_words(study, m) if m in study.methods else "–" for m in methods]
            rows.append(("… its cost", "models received; thousand forward passes of a peer", *spent))
        if papers := paper_cells(study):
            where = listed(list(dict.fromkeys(cell.where for cell in papers.values())))
            rows.append(("the paper", where, *(papers[m].value.percent() if m in papers else "–" for m in methods)))
    if len(studies) == 2 and len({study.metric for study in studies if study.runs}) == 1:
        first, second = studies
        changes = {m: value for m in methods if (value := paired(second.of(m), first.of(m)))}
        words = [changes[m].signed() if m in changes else "–" for m in methods]
        rows += [("difference", "the second minus the first, paired by seed", *words)] if changes else []
    return Table(("experiment", "setting", *methods), tuple(rows), wordy=("setting",))


def _scene(study: Study) -> str:
    data = study.record.data_name
    if not study.runs:
        return data
    peers = f"{data}, {study.num_peers} {'real peers' if study.record.real_peers else 'peers'}"
    if not study.clusters_known:
        return peers
    names = study.runs[0].cluster_names
    return f"{peers} ({', '.join(names) if len(names) <= _FEW_NAMES else count(len(names), 'cluster')})"


def _apart(studies: Sequence[Study]) -> list[str]:
    """The settings in which experiments differ; empty where there are more than four."""
    values = [flat_values(study.settings) for study in studies]
    known = dict.fromkeys(key for each in values for key in each)
    keys = [key for key in known if any(other.get(key) != values[0].get(key) for other in values)]
    return keys if len(keys) <= 4 else []


def _setting_words(study: Study, apart: Sequence[str]) -> str:
    if not study.runs:
        return f"{_scene(study)}; no run is complete"
    values = flat_values(study.settings)
    own = "".join(f", {key} = {setting_text(values[key])}" for key in apart if key in values)
    seeds = count(len({run.seed for run in study.runs}), "seed")
    return f"{_scene(study)}, {study.settings.gossip.schedule}, {seeds}{own}"


def _cost_words(study: Study, method: MethodName) -> str:
    """The models that a peer received and its thousand forward passes: 904; 201"""
    row = summary_of(study, method)
    return f"{row.models_received:,.0f}; {thousands(row.work)}"


def score_of(study: Study, method: MethodName) -> str:
    """88.0 ± 3.2 %"""
    return summarise(study.of(method)).score.words()


def _measured(studies: Sequence[Study]) -> str:
    """What they measured, in words."""
    names = dict.fromkeys(
        "accuracy in per cent" if s.metric == ACCURACY else s.metric.label() for s in studies if s.runs
    )
    return " or ".join(names)

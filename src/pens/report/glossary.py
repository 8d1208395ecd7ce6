# SPDX-License-Identifier: Apache-2.0
"""The words of a report, for those who meet them here first; and what a method changes of an experiment's settings."""

from __future__ import annotations

from collections.abc import Sequence

from pens.config import Method, Settings, flat_values
from pens.report.study import Study

_METHODS: dict[Method, str] = {
    "central": "one model, trained on everybody's data in one place, which a federation wants to avoid",
    "oracle": "gossip within the peer's own cluster: an upper bound, because it needs to know the true clusters",
    "oracle+": "oracle that validates and tests merged models",
    "pens": "performance-based neighbour selection: in step 1 a peer scores the models of random others on its own "
    "training data, merges the best and counts whose they were; in step 2 it gossips with those it chose often",
    "pens+": "pens with changes that are not the paper's: the counts are split into two groups, of which the upper "
    "are the neighbours; what a peer validates, keeps and tests is the average of the models it received, before it "
    "trains it further; and step 2 begins with the model that was best on its validation data in step 1, or, where all "
    "peers began with the same model, with that one again",
    "random": "gossip with random others",
    "random+": "random that validates and tests merged models",
    "local": "every peer alone",
}


def glossary(studies: Sequence[Study]) -> tuple[tuple[str, str], ...]:
    """(word, what it means), of what the page speaks of."""
    there = {method for study in studies for method in study.methods}
    words = [
        ("peer", "one participant, with data of its own that nobody else sees; peers send each other models"),
        ("merge", "to average received models with the own one, and train the average on the own data"),
    ]
    if any(study.runs and study.clusters_known for study in studies):
        words.insert(1, ("cluster", "the distribution that a peer's data come from; peers are not told"))
    if any(study.runs and not study.clusters_known for study in studies):
        words.insert(1, ("group", "peers that chose each other as neighbours: discovered by their choices, not known"))
    return (*words, *((method, _METHODS[method]) for method in _METHODS if method in there))


def own_settings(settings: Settings, method: Method) -> dict[str, object]:
    """What a method changes of the experiment's settings."""
    shared, own = flat_values(settings), flat_values(settings.for_method(method))
    return {key: value for key, value in own.items() if shared[key] != value}

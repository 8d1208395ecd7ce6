# SPDX-License-Identifier: Apache-2.0
"""The words of a report, for those who meet them here first; and what a method changes of an experiment's settings."""

from __future__ import annotations

from collections.abc import Sequence

from pens.methods.names import in_order, method_of
from pens.methods.spec import RunSpec
from pens.report.study import Study
from pens.settings.keys import flat_values
from pens.settings.tree import MethodName, Settings


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
    return (*words, *((name, about) for name in in_order(there) if (about := method_of(name).about)))


def own_settings(settings: Settings, method: MethodName) -> dict[str, object]:
    """What a method changes of the experiment's settings."""
    shared, own = flat_values(settings), flat_values(RunSpec.of(method_of(method), settings, 0).settings)
    return {key: value for key, value in own.items() if shared.get(key) != value}

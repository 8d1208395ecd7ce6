# SPDX-License-Identifier: Apache-2.0
"""The glossary of a report, and the settings in which a method differs from its experiment."""

from __future__ import annotations

from collections.abc import Sequence

from pens.methods.names import in_order, method_of
from pens.methods.spec import RunSpec
from pens.report.study import Study
from pens.settings.keys import flat_values
from pens.settings.tree import MethodName, Settings


def glossary(studies: Sequence[Study]) -> tuple[tuple[str, str], ...]:
    """The terms and methods that the page uses, as (term, meaning)."""
    there = {method for study in studies for method in study.methods}
    words = [
        ("peer", "one participant, whose data no other participant sees; peers send each other models"),
        (
            "merge",
            "to average a peer's own model with received models, and to train the average on the peer's own data",
        ),
    ]
    if any(study.runs and study.clusters_known for study in studies):
        words.insert(1, ("cluster", "the distribution that a peer's data come from; peers do not know their clusters"))
    if any(study.runs and not study.clusters_known for study in studies):
        words.insert(
            1,
            (
                "group",
                "peers that selected each other as neighbours: an estimate, because their clusters are not known",
            ),
        )
    return (*words, *((name, about) for name in in_order(there) if (about := method_of(name).about)))


def own_settings(settings: Settings, method: MethodName) -> dict[str, object]:
    """The settings in which a method differs from its experiment."""
    shared, own = flat_values(settings), flat_values(RunSpec.of(method_of(method), settings, 0).settings)
    return {key: value for key, value in own.items() if shared.get(key) != value}

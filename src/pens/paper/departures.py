# SPDX-License-Identifier: Apache-2.0
"""Lists the settings in which a run departs from those with which pens reproduces the paper's cell."""

from __future__ import annotations

from collections.abc import Iterable

from pens.methods.names import selecting, settings_without_effect
from pens.paper.cells import PAPER_PARTITION, paper_preset
from pens.parts import METHODS
from pens.settings.keys import flat_values
from pens.settings.schema import EngineSettings, TimingSettings
from pens.settings.tree import MethodName, Settings

_PAPER_GIVES = ("val_per_peer", "n_peers", "rounds", "n_sampled", "m")
"""Settings that section 5 gives. The paper does not give the others, or gives values with which models do not learn
(docs/reproduction.md)."""
_STEP1 = ("step1_rounds", "step1_samplings")


def departures(settings: Settings, methods: Iterable[MethodName] | None = None) -> tuple[str, ...]:
    """Settings that affect these methods (None: all of ours) and differ from those with which pens reproduces the
    paper's cell, in words. Empty where there is no such cell, unless the partition is the reason."""
    methods = METHODS.built_in if methods is None else tuple(methods)
    if (partition := settings.scenario.partition) != PAPER_PARTITION:
        return (f"partition = {partition} (paper: {PAPER_PARTITION})",)
    if (preset := paper_preset(settings)) is None:
        return ()
    ours, theirs = flat_values(settings), flat_values(preset)
    ours_resolved, theirs_resolved = flat_values(settings.explicit), flat_values(preset.explicit)
    words = []
    for key in (key for key in theirs if key not in _without_effect(settings, methods)):
        if ours[key] != theirs[key] and ours_resolved[key] != theirs_resolved[key]:
            whose = "paper" if key in _PAPER_GIVES else "preset"
            words.append(f"{key} = {ours[key]} ({whose}: {theirs[key]})")
    samplings, papers = (s.pens.step1_rounds * s.pens.step1_samplings for s in (settings, preset))
    if samplings != papers and selecting(methods):
        words.append(f"samplings of step 1 = {samplings} (paper: {papers})")
    return tuple(words)


def _without_effect(settings: Settings, methods: Iterable[MethodName]) -> set[str]:
    """Settings that cannot change the results of these methods, or that are compared separately: those of the engine,
    of virtual time where rounds are synchronous, of other methods, and of step 1's rounds and samplings."""
    keys = {*EngineSettings.model_fields, *_STEP1}
    if settings.engine.precision == "bf16":
        keys.discard("precision")
    if settings.gossip.schedule == "rounds":
        keys |= {*TimingSettings.model_fields, "accept", "admit", "admission_trials"}
    else:
        keys.add("pull_from")
    return keys | settings_without_effect(methods)

# SPDX-License-Identifier: Apache-2.0
"""Methods and runs of them, in one line."""

from __future__ import annotations

from pens.methods.names import find_method
from pens.methods.spec import RunSpec
from pens.parts import METHODS
from pens.settings.tree import RunSettings, Settings

ALL = METHODS.built_in
SELECTING = tuple(name for name in ALL if find_method(name).selects)
TOLD_CLUSTERS = tuple(name for name in ALL if find_method(name).told_clusters)
IN_STEP = tuple(name for name in ALL if find_method(name).in_step)
ANY_NETWORK = tuple(name for name in ALL if not find_method(name).needs_batch_norm)
"""Those that run with networks that have no batch normalisation."""
NETWORKED = tuple(name for name in ALL if find_method(name).networked)


def spec_of(method: str, settings: Settings, seed: int = 0) -> RunSpec:
    """One run."""
    return RunSpec.of(find_method(method), settings, seed)


def made_of(settings: Settings, method: str) -> RunSettings:
    """What a method makes of settings."""
    return spec_of(method, settings).settings

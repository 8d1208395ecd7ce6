# SPDX-License-Identifier: Apache-2.0
"""What a peer says of itself before models are exchanged: its terms, made of its file, its data and its network.

Which of these parts must be equal is not said here, but in `pens.network.members.agreement`, so that each member
decides it for itself. No part contains a path, a number of samples or anything that was computed from samples; the
names of classes and of a table's features are told, because models of members that order them differently spoil each
other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pens.engine.layout import Layout
from pens.learning.learners import travelling_names
from pens.methods.spec import RunSpec
from pens.network.operating.holding import Holding
from pens.network.transport.terms import Part, Terms, plain
from pens.parts import is_reference
from pens.tasks.task import task_of
from pens.version import VERSION

_SECTIONS = ("model", "training", "gossip", "stopping")
_EACH_ITS_OWN = {"gossip.wire", "model.net", "model.task"}
"""Settings that members need not share, or that other parts tell."""


def own_terms(spec: RunSpec, holding: Holding, layout: Layout) -> Terms:
    """The terms of a peer with these settings, data and network."""
    settings = spec.settings
    parts = (
        Part.of("tensors", _tensors(layout)),
        Part.of("sent tensors", travelling_names(layout, spec.learning()) or ["all"]),
        Part.of("inputs", _inputs(holding)),
        *([Part.of("features", holding.preparation.columns)] if holding.preparation.columns else []),
        Part.of("preparation", ["standardised by each peer's own data" if _is_standardised(holding) else "as given"]),
        Part.of("outputs", holding.class_names or [f"{holding.num_classes} without names"]),
        Part.of("task", [task_of(settings).name]),
        Part.of("notes", [_notes(spec, holding)]),
        Part.of("method", [spec.method.name]),
        Part.of("settings", [*_settings(spec), f"peer.seed = {spec.seed}"]),
    )
    return Terms(parts=parts, sends=settings.gossip.wire, software=plain(VERSION, 16))


def for_trial(terms: Terms) -> Terms:
    """These terms, told by a process that only compares."""
    return replace(terms, trial=True)


def _tensors(layout: Layout) -> Iterator[str]:
    """All tensors have four bytes a number on their way, whatever the network computes with."""
    for place in (*layout.trained, *layout.kept):
        yield f"{place.name} {' × '.join(map(str, place.shape)) or 'one number'} float32"


def _inputs(holding: Holding) -> Iterator[str]:
    shown = holding.data.train.x
    yield f"shape {' × '.join(map(str, shown.shape[1:]))}"
    yield "whole numbers" if np.issubdtype(shown.dtype, np.integer) else "real numbers"


def _is_standardised(holding: Holding) -> bool:
    return any(standard is not None for standard in holding.preparation.standards)


def _notes(spec: RunSpec, holding: Holding) -> str:
    """Whose notes come beside models: a method reads only its own, and some cannot do without them."""
    plan = spec.plan(len(holding.data.train), len(holding.data.val), num_peers=spec.settings.scenario.peers)
    return f"of {spec.method.name}" if plan.notes else "none"


def _settings(spec: RunSpec) -> Iterator[str]:
    values: dict[str, Any] = spec.settings.model_dump(mode="json")
    own = (spec.method.section, task_of(spec.settings).section)
    for section in dict.fromkeys((*_SECTIONS, *(part.title for part in own if part))):
        for key, value in sorted(values.get(section, {}).items()):
            if f"{section}.{key}" not in _EACH_ITS_OWN:
                yield f"{section}.{key} = {_shown(value)}"


def _shown(value: object) -> str:
    """A value; of a part of the user's own, without the folder that it lies in on this machine."""
    if isinstance(value, str) and is_reference(value):
        value = Path(value).name
    return json.dumps(value, ensure_ascii=False)

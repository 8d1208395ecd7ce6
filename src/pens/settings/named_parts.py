# SPDX-License-Identifier: Apache-2.0
"""Handles settings that name a part: parts are found before their sections are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pens import parts
from pens.errors import SettingsError
from pens.settings.schema import SettingsTree
from pens.settings.section import Section

PARTS: Mapping[str, parts.Registry[Any]] = {
    "scenario.partition": parts.PARTITIONS,
    "gossip.topology": parts.TOPOLOGIES,
    "gossip.merge": parts.MERGE_RULES,
}
"""The settings that name a part. A part given by reference must be found before its section can be read."""

PLACES = ("data.source", "model.net")
"""Settings that may name a file."""


def with_parts(values: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Flat keys with absolute references to parts, which mean the same in every working directory. All named parts are
    found."""
    flat = dict(values)
    for name, registry in PARTS.items():
        for key in (name, name.rpartition(".")[2]):
            if isinstance(flat.get(key), str) and parts.is_reference(flat[key]):
                flat[key] = parts.absolute(flat[key], folder)
                registry.find(flat[key])
    for name in PLACES:
        for key in (name, name.rpartition(".")[2]):
            if isinstance(flat.get(key), str):
                flat[key] = parts.located(flat[key], folder)
    return flat


def prints_of_parts(settings: SettingsTree) -> dict[str, str]:
    """What tells whether the files of the parts that these settings name have changed, by what a part is called in
    words. Parts that are not there any more are left out."""
    found: dict[str, str] = {}
    for name, registry in PARTS.items():
        section, _, key = name.partition(".")
        try:
            part = registry.find(getattr(getattr(settings, section), key))
        except SettingsError:
            continue
        if mark := parts.file_print(part):
            found[f"{registry.what} {part.name}"] = mark
    return found


def titles_out_of_use(settings: SettingsTree) -> set[str]:
    """The sections of parts that these settings contain but do not name."""
    unused: set[str] = set()
    for name, registry in PARTS.items() if settings.__pydantic_extra__ else ():
        section, _, key = name.partition(".")
        used = registry.find(getattr(getattr(settings, section), key)).section
        others = (registry.find(other).section for other in registry.names())
        unused |= {other.title for other in others if other is not None and other is not used}
    return unused & set(settings.__pydantic_extra__ or {})


def sections_in_use(tree: Mapping[str, Any]) -> dict[str, Section]:
    """The sections of the named parts, with their defaults."""
    named = ((registry, tree[name.partition(".")[0]][name.partition(".")[2]]) for name, registry in PARTS.items())
    sections = (registry.find(part).section for registry, part in named if isinstance(part, str))
    return {section.title: section() for section in sections if section is not None}

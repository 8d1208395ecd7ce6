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
    "model.task": parts.TASKS,
}
"""The settings that name a part. A part given by reference must be found before its section can be read."""

PLACES = ("data.source", "data.partition_file", "model.net")
"""Settings that may name a file."""


def with_parts(values: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Flat keys with absolute references to parts, which mean the same in every working directory. All named parts are
    found. A part that is given as an object or a class is named by its place, or, where it has none, by its name."""
    flat = dict(values)
    for name, registry in PARTS.items():
        for key in (name, name.rpartition(".")[2]):
            if registry.fits(flat.get(key)):
                part = registry.add(flat[key])
                flat[key] = registry.reference(part.name) or part.name
            elif isinstance(flat.get(key), str) and parts.is_reference(flat[key]):
                flat[key] = parts.absolute(flat[key], folder)
                _found(registry, flat[key])
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
    return {**found, **_prints_of_data(settings)}


def _prints_of_data(settings: SettingsTree) -> dict[str, str]:
    """Likewise of the files that own data come from. Folders of images and functions are not looked into."""
    places = [Path(place) for place in (settings.data.source, settings.data.partition_file) if place]
    return {f"data {path.name}": parts.print_of(path) for path in places if path.is_absolute() and path.is_file()}


def _found(registry: parts.Registry[Any], name: str) -> Any:
    """A part; None where it is one that a record names and that is not there."""
    return None if name in registry.absent else registry.find(name)


def _section_of(part: Any) -> type[Section] | None:
    section: type[Section] | None = getattr(part, "section", None)
    return section


def excuse(tree: Mapping[str, Any]) -> None:
    """Of the parts that a record's settings name, note those that are not there, so that the settings can be read."""
    for name, registry in PARTS.items():
        section, _, key = name.partition(".")
        part = tree.get(section, {}).get(key)
        if isinstance(part, str):
            registry.absent.discard(part)
            if why_lost(registry, part):
                registry.absent.add(part)


def lost_parts(settings: SettingsTree) -> dict[str, str]:
    """Parts that settings name and that are not there, each with what is wrong: "topology 'star'" → why."""
    found = {}
    for name, registry in PARTS.items():
        section, _, key = name.partition(".")
        part = getattr(getattr(settings, section), key)
        if why := why_lost(registry, part):
            found[f"{registry.what} {part!r}"] = why
    return found


def why_lost(registry: parts.Registry[Any], part: str) -> str:
    """What is wrong with a part that cannot be found; empty where it can."""
    try:
        registry.find(part)
    except SettingsError as error:
        return str(error)
    return ""


def titles_out_of_use(settings: SettingsTree) -> set[str]:
    """The sections of parts that these settings contain but do not name."""
    unused: set[str] = set()
    for name, registry in PARTS.items() if settings.__pydantic_extra__ else ():
        section, _, key = name.partition(".")
        used = _section_of(_found(registry, getattr(getattr(settings, section), key)))
        others = (registry.find(other).section for other in registry.names())
        unused |= {other.title for other in others if other is not None and other is not used}
    return unused & set(settings.__pydantic_extra__ or {})


def sections_in_use(tree: Mapping[str, Any]) -> dict[str, Section]:
    """The sections of the parts that are named, with their defaults; not of those that are named by default."""
    sections = []
    for name, registry in PARTS.items():
        section, _, key = name.partition(".")
        part = tree[section][key]
        if isinstance(part, str) and part != _default(section, key):
            sections.append(_section_of(_found(registry, part)))
    return {section.title: section() for section in sections if section is not None}


def _default(section: str, key: str) -> object:
    return getattr(SettingsTree.model_fields[section].default, key)

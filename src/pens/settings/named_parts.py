# SPDX-License-Identifier: Apache-2.0
"""Handles settings that name a part: parts are found before their sections are read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pens import parts
from pens.errors import SettingsError
from pens.settings.schema import SettingsTree
from pens.settings.section import Section

PARTS: Mapping[str, parts.Registry[Any]] = {
    "scenario.partition": parts.PARTITIONS,
    "product.label_law": parts.LABEL_LAWS,
    "product.size_law": parts.SIZE_LAWS,
    "product.shift": parts.SHIFTS,
    "gossip.topology": parts.TOPOLOGIES,
    "gossip.merge": parts.MERGE_RULES,
    "model.task": parts.TASKS,
    "attack.attack": parts.ATTACKS,
}
"""The settings that name a part. A part given by reference must be found before its section can be read. Those in the
section of a part (product) come after the setting that names it, and count only where it is named."""

LISTS = ("product.shift",)
"""Those that name several."""

DATA_PARTS = tuple(name for name in PARTS if name.startswith(("scenario.", "product.")))
"""Those that decide who holds what."""

PLACES = ("data.source", "data.partition_file", "model.net")
"""Settings that may name a file."""


def with_parts(values: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Flat keys with absolute references to parts, which mean the same in every working directory. All named parts are
    found. A part that is given as an object or a class is named by its place, or, where it has none, by its name."""
    flat = dict(values)
    for name, registry in PARTS.items():
        for key in (name, name.rpartition(".")[2]):
            if key not in flat:
                continue
            named = _listed(flat[key]) if name in LISTS else [flat[key]]
            found = [_absolute(registry, part, folder) for part in named]
            if found != named:
                flat[key] = found if name in LISTS else found[0]
    for name in PLACES:
        for key in (name, name.rpartition(".")[2]):
            if isinstance(flat.get(key), str):
                flat[key] = parts.located(flat[key], folder)
    return flat


def _listed(value: Any) -> list[Any]:
    """What a setting lists: `rotation,noise` and `["rotation", "noise"]` name two."""
    if isinstance(value, str):
        return [word.strip() for word in value.strip("[]").replace('"', "").split(",") if word.strip()]
    return list(value) if isinstance(value, list | tuple) else [value]


def _absolute(registry: parts.Registry[Any], part: Any, folder: Path | None) -> Any:
    """What names a part, wherever it is read; what is none stays as it is."""
    if registry.fits(part):
        added = registry.add(part)
        return registry.reference(added.name) or added.name
    if not isinstance(part, str) or not parts.is_reference(part):
        return part
    place = parts.absolute(part, folder)
    _found(registry, place)
    return place


def _named(settings: SettingsTree | Mapping[str, Any], name: str) -> list[str]:
    """The parts that a setting of this name names; none where it is not set."""
    section, _, key = name.partition(".")
    of = settings.get(section) if isinstance(settings, Mapping) else getattr(settings, section, None)
    value = of.get(key) if isinstance(of, Mapping) else getattr(of, key, None)
    return [part for part in (_listed(value) if name in LISTS else [value]) if isinstance(part, str)]


def _in_use(settings: SettingsTree | Mapping[str, Any]) -> Iterator[tuple[str, parts.Registry[Any], str]]:
    """Each part that these settings name: by which setting, what finds it, and its name."""
    titles = set(SettingsTree.model_fields)
    for name, registry in PARTS.items():
        for part in _named(settings, name) if name.partition(".")[0] in titles else ():
            yield name, registry, part
            if (section := _section_of(_found_or_none(registry, part))) is not None:
                titles.add(section.title)


def _found_or_none(registry: parts.Registry[Any], name: str) -> Any:
    try:
        return _found(registry, name)
    except SettingsError:
        return None


def prints_of_parts(settings: SettingsTree) -> dict[str, str]:
    """What tells whether the files of the parts that these settings name have changed, by what a part is called in
    words. Parts that are not there any more are left out."""
    found: dict[str, str] = {}
    for _, registry, name in _in_use(settings):
        try:
            part = registry.find(name)
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
        for part in _named(tree, name):
            registry.absent.discard(part)
            if why_lost(registry, part):
                registry.absent.add(part)


def lost_parts(settings: SettingsTree) -> dict[str, str]:
    """Parts that settings name and that are not there, each with what is wrong: "topology 'star'" → why."""
    named = ((registry, part, why_lost(registry, part)) for _, registry, part in _in_use(settings))
    return {f"{registry.what} {part!r}": why for registry, part, why in named if why}


def why_lost(registry: parts.Registry[Any], part: str) -> str:
    """What is wrong with a part that cannot be found; empty where it can."""
    try:
        registry.find(part)
    except SettingsError as error:
        return str(error)
    return ""


def titles_out_of_use(settings: SettingsTree) -> set[str]:
    """The sections of parts that these settings contain but do not name."""
    if not settings.__pydantic_extra__:
        return set()
    used = {section.title for section in sections_of(parts_in_use(settings, PARTS))}
    known = (registry.find(part).section for registry in PARTS.values() for part in registry.names())
    others = {section.title for section in known if section is not None}
    return (others - used) & set(settings.__pydantic_extra__)


def parts_in_use(settings: SettingsTree, of: Collection[str] = DATA_PARTS) -> list[Any]:
    """The parts that these settings name: those that decide who holds what, or `of` some other settings."""
    return [_found(registry, part) for name, registry, part in _in_use(settings) if name in of]


def sections_of(found: Iterable[Any]) -> list[type[Section]]:
    """The sections that these parts have."""
    return [section for section in map(_section_of, found) if section is not None]


def sections_in_use(tree: Mapping[str, Any]) -> dict[str, Section]:
    """The sections of the parts that are named, with their defaults; not of those that are named by default."""
    named = ((registry, part) for name, registry, part in _in_use(tree) if part != _default(name))
    return {section.title: section() for section in sections_of(_found(registry, part) for registry, part in named)}


def _default(name: str) -> object:
    """What a setting of ours names where nothing is set; None for one of a part's section."""
    section, _, key = name.partition(".")
    return getattr(SettingsTree.model_fields[section].default, key) if section in SettingsTree.model_fields else None

# SPDX-License-Identifier: Apache-2.0
"""Finds the section of each key, those of parts included, and the shortest name of each setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pens import parts
from pens.errors import SettingsError, suggest
from pens.settings.named_parts import with_parts
from pens.settings.schema import SettingsTree
from pens.settings.section import Section

OURS: dict[str, type[Section]] = {name: type(field.default) for name, field in SettingsTree.model_fields.items()}
SECTIONS: dict[str, tuple[str, ...]] = {name: tuple(of.model_fields) for name, of in OURS.items()}
SECTION_OF: dict[str, str] = {key: section for section, keys in SECTIONS.items() for key in keys}

_RENAMED = {
    "dataset": "data.source",
    "scenario.dataset": "data.source",
    "score_by": "pens.score",
    "pens.score_by": "pens.score",
}
"""Settings that had another name in older versions."""


_NO_SETTINGS = ("methods", "method", "seeds", "device", "out")
"""What a run is told beside its settings."""


def names_of_today(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their names, where an older version wrote them."""
    return {_RENAMED[name].rpartition(".")[2] if name in _RENAMED else name: of for name, of in values.items()}


def section_types() -> dict[str, type[Section]]:
    """The class of each section, those of parts included."""
    return {**OURS, **sections_of_parts()}


def sections_of_parts() -> dict[str, type[Section]]:
    """The sections that are not fields of `SettingsTree`."""
    return {title: of for title, of in parts.sections().items() if title not in OURS}


def locate(name: str) -> tuple[str, str]:
    """`n_sampled` or `pens.n_sampled` → ("pens", "n_sampled"). A part's setting needs its section only where another
    part has one of that name."""
    name = _RENAMED.get(str(name), str(name))
    section, dot, key = name.rpartition(".")
    if SECTION_OF.get(key) in ((section,) if dot else SECTIONS):
        return SECTION_OF[key], key
    if key == "fresh":
        raise SettingsError(f"{name} is now step2_model: write first instead of true, last instead of false")
    others = sections_of_parts()
    if not dot and name in _NO_SETTINGS and not any(name in of.model_fields for of in others.values()):
        told = "methods" if name == "method" else name
        above = ", or above the sections of a file" if told in ("methods", "seeds") else ""
        raise SettingsError(f"{name} is no setting: say it by `pens run --{told}`, or by pens.run(…, {told}=…){above}")
    places = [title for title, of in others.items() if key in of.model_fields and section in ("", title)]
    if len(places) == 1:
        return places[0], key
    if places:
        raise SettingsError(f"{key} is a setting of {' and '.join(places)}: write {places[0]}.{key}")
    if key in SECTION_OF:
        right = SECTION_OF[key]
        raise SettingsError(f"{key} belongs to [{right}], not to [{section}]: write {right}.{key}, or {key} alone")
    all_of = {**SECTIONS, **{title: tuple(of.model_fields) for title, of in others.items()}}
    known = [key for keys in all_of.values() for key in keys]
    known += [f"{title}.{key}" for title, keys in all_of.items() for key in keys] if dot else []
    raise SettingsError(f"unknown setting {name!r}{suggest(name, known)} (`pens settings` lists all)")


def flat_name(section: str, key: str) -> str:
    """The name of a setting without its section. A part's setting keeps its section where another setting has the same
    key, or where the part is not installed."""
    if section in SECTIONS:
        return key
    others = sections_of_parts()
    alone = key not in SECTION_OF and [title for title, of in others.items() if key in of.model_fields] == [section]
    return key if alone else f"{section}.{key}"


def flat_values(settings: SettingsTree) -> dict[str, Any]:
    """All settings as plain data, by their names."""
    tree = settings.model_dump(mode="json")
    return {flat_name(section, key): value for section, values in tree.items() for key, value in values.items()}


def flatten(tree: Mapping[str, Any], folder: Path | None = None) -> Iterable[tuple[str, Any]]:
    """The keys of a file in this folder, as `section.key`, with their values."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, Mapping) else {name: value}
    flat = {_RENAMED.get(name, name): value for name, value in flat.items()}
    flat = with_parts(flat, folder)
    for name, value in tree.items():
        if isinstance(value, Mapping) and name not in SECTIONS and name not in (others := sections_of_parts()):
            raise SettingsError(f"unknown section [{name}]{suggest(name, (*SECTIONS, *others))}")
    return flat.items()

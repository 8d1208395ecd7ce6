# SPDX-License-Identifier: Apache-2.0
"""Explains every setting: its meaning, its allowed values and its default, as `schema.py` gives them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pens.errors import SettingsError, suggest
from pens.parts import METHODS, absolute, is_reference, load_object
from pens.settings.keys import section_types
from pens.settings.named_parts import LISTS, PARTS
from pens.settings.toml import toml_line
from pens.settings.tree import Settings

_COMMENT_WIDTH = 100


@dataclass(frozen=True)
class Entry:
    """One setting."""

    section: str
    key: str
    allowed: str
    """The type, choices and bounds of the setting, in words."""
    default: Any
    about: str
    choices: tuple[str, ...] = ()
    """All values of the setting, where these are few words."""


def entries() -> list[Entry]:
    """All settings, section by section."""
    return [
        _entry(section, key, form)
        for section, of in section_types().items()
        for key, form in of.model_json_schema()["properties"].items()
    ]


def _entry(section: str, key: str, form: Mapping[str, Any]) -> Entry:
    allowed, choices, about = _allowed(form), tuple(_choices(form)), _one_line(form.get("description", ""))
    if registry := PARTS.get(f"{section}.{key}"):
        choices = registry.names()
        several = "some of " if f"{section}.{key}" in LISTS else ""
        allowed = several + _alternatives([*choices, "your own as file.py:name or module:name"])
        about += "".join(f" {name}: {registry.find(name).about}." for name in choices)
    return Entry(section, key, allowed, form["default"], about, choices)


def find(name: str) -> list[Entry]:
    """The settings that a name stands for: a key, `section.key`, all of a section, or all that a part reads, by the
    part's name or as `file.py:name`."""
    if is_reference(name):
        return _of_part(name)
    known = entries()
    matching = [entry for entry in known if name in (entry.key, f"{entry.section}.{entry.key}", entry.section)]
    for part in (registry.find(name) for registry in PARTS.values() if name in registry.names()):
        matching += [entry for entry in known if entry not in matching and _reads(part, entry)]
    if not matching:
        names = [*dict.fromkeys(entry.section for entry in known), *(entry.key for entry in known)]
        raise SettingsError(f"unknown setting or section {name!r}{suggest(name, names)} (`pens settings` lists all)")
    return matching


def _of_part(reference: str) -> list[Entry]:
    """The settings that a part of others reads, which is given by reference."""
    found = load_object(absolute(reference), "part")
    kind = found if isinstance(found, type) else type(found)
    for registry in (METHODS, *PARTS.values()):
        if issubclass(kind, registry.base):
            part = registry.find(reference)
            if matching := [entry for entry in entries() if _reads(part, entry)]:
                return matching
            raise SettingsError(f"{registry.what} {part.name!r} has no settings of its own")
    raise SettingsError(f"{reference} is no part of pens: name a method, partition, topology or merge rule")


def _reads(part: Any, entry: Entry) -> bool:
    section = part.section.title if part.section else ""
    return entry.section == section or (entry.section == "scenario" and entry.key in getattr(part, "keys", ()))


def section_about(section: str) -> str:
    """The purpose of a section of the settings."""
    return _one_line(section_types()[section].model_json_schema().get("description", ""))


def as_toml(settings: Settings, source: str = "") -> str:
    """Settings as the text of a .toml file, with the explanation of each above it. `source`: where they come from."""
    values = settings.model_dump(mode="json")
    lines = [line for paragraph in source.split("\n\n") if paragraph for line in (*_comment(paragraph), "#")]
    lines += ["# Change what you like and run it: pens run FILE.toml. A setting that is left out has its default."]
    section = ""
    for entry in entries():
        if entry.section != section:
            section = entry.section
            lines += ["", f"[{section}]", *_comment(section_about(section))]
        value = values[section][entry.key] if section in values else entry.default
        lines += ["", *_comment(f"{entry.about} ({entry.allowed})")]
        lines.append(toml_line(entry.key, value))
    return "\n".join([*lines, ""])


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _COMMENT_WIDTH - 2)]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _allowed(form: Mapping[str, Any]) -> str:
    """The allowed values of a field of a JSON schema, in words."""
    if "anyOf" in form:
        return _alternatives([_allowed(part) for part in form["anyOf"]])
    if choices := list(_choices(form)):
        return _alternatives(choices)
    of = form.get("type")
    if of == "array":
        return f"a list of {_NOUNS.get(form['items'].get('type'), 'word')}s"
    if of in _OTHERS:
        return _OTHERS[of]
    bounds = [words.format(form[name]) for name, words in _BOUNDS.items() if name in form]
    noun = f"a {_NOUNS[of]}" if of in _NOUNS else "text"
    return f"{noun} {' and '.join(bounds)}".rstrip()


def _alternatives(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _choices(form: Mapping[str, Any]) -> Iterator[str]:
    if form.get("type") == "boolean":
        yield from ("true", "false")
    elif "const" in form:
        yield form["const"]
    else:
        yield from form.get("enum", ())


_NOUNS = {"integer": "whole number", "number": "number", "array": "list"}
_OTHERS = {"null": "none", "object": "a table", None: "any value"}
_BOUNDS = {
    "minimum": "of at least {:g}",
    "exclusiveMinimum": "above {:g}",
    "maximum": "at most {:g}",
    "exclusiveMaximum": "below {:g}",
}

# SPDX-License-Identifier: Apache-2.0
"""All settings of an experiment, and of one run: checked when they are made, and never changed afterwards.

An algorithm that needs another value asks for it here (`Settings.replace`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from pens.errors import SettingsError
from pens.settings.keys import SECTIONS, locate, section_types, sections_of_parts
from pens.settings.named_parts import sections_in_use, titles_out_of_use, with_parts
from pens.settings.schema import SettingsTree
from pens.settings.section import Section, UnknownSection

MethodName = str
"""The name by which `pens.parts.METHODS` finds a method."""


class Settings(SettingsTree):
    """All settings of an experiment. Together with its methods and seeds, they decide its results."""

    def replace(self, values: Mapping[str, Any]) -> Settings:
        """These settings with some keys changed: `{"peers": 8, "pens.m": 1}`, or `{"pens": {"m": 1}}`."""
        tree: dict[str, dict[str, Any]] = self.model_dump()
        named: dict[str, str] = {}
        for name, value in with_parts(_flat(values)).items():
            section, key = locate(name)
            if named.setdefault(f"{section}.{key}", name) != name:
                raise SettingsError(f"{named[f'{section}.{key}']} and {name} are the same setting: give it once")
            tree.setdefault(section, {})[key] = value
        return validated(tree)

    @property
    def explicit(self) -> Settings:
        """These settings with the `auto` values of step 1 resolved, so that they mean the same in a later version.

        Settings do not contain the sizes of data that users bring; for these, `RunResult.step1_epochs` has the epochs.
        """
        resolved = self.replace({"step1_epochs": self.step1_epochs, "expected": self.expected})
        return resolved.without(titles_out_of_use(resolved))

    def without(self, titles: Iterable[str]) -> Settings:
        """These settings without some parts' sections."""
        gone = set(titles)
        left = {title: of for title, of in (self.__pydantic_extra__ or {}).items() if title not in gone}
        return Settings.model_validate({**{name: getattr(self, name) for name in SECTIONS}, **left})

    def completed(self, sections: Iterable[type[Section]]) -> Settings:
        """With these parts' sections, at their defaults where nothing is set, so that a record says what they were."""
        known = self.__pydantic_extra__ or {}
        missing = {of.title: of() for of in sections if of.title not in SECTIONS and of.title not in known}
        if not missing:
            return self
        return Settings.model_validate({**{name: getattr(self, name) for name in SECTIONS}, **known, **missing})


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sections as flat keys. The parts that are named come first: they may have sections that are set."""
    with_parts(values)
    sections = {name for name, value in values.items() if isinstance(value, Mapping)}
    known = section_types() if sections else {}
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= (
            {f"{name}.{key}": of for key, of in value.items()} if name in sections and name in known else {name: value}
        )
    return flat


class RunSettings(SettingsTree):
    """The settings of one run, after its method changed those of the experiment. Only `pens.methods.spec` makes them,
    and they are no `Settings`, so that no method is applied to them again."""


def validated(tree: Mapping[str, Any]) -> Settings:
    """Check a tree of settings. The section of a named part is always present, so that it is recorded; that of another
    part only where it differs from its defaults."""
    try:
        in_use = sections_in_use(tree)
        others = {title: _part_section(title, tree[title]) for title in tree if title not in SECTIONS}
        said = {title: of for title, of in others.items() if title in in_use or of != type(of)()}
        ours = {title: values for title, values in tree.items() if title in SECTIONS}
        return Settings.model_validate({**ours, **in_use, **said})
    except ValidationError as error:
        problems = [problem(dict(e)) for e in error.errors()]
        raise SettingsError("\n".join(dict.fromkeys(problems))) from None


def _part_section(title: str, values: Any) -> Section:
    try:
        section: Section = sections_of_parts().get(title, UnknownSection).model_validate(values)
    except ValidationError as error:
        problems = [problem({**e, "loc": (title, *e["loc"])}) for e in error.errors()]
        raise SettingsError("\n".join(dict.fromkeys(problems))) from None
    return section


def problem(error: Mapping[str, Any]) -> str:
    """An error of pydantic as `key = value: what is allowed`."""
    location = [str(part) for part in error["loc"]]
    name = location[1] if len(location) > 1 else location[0]
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{name} = {error['input']!r}: {message[:1].lower()}{message[1:]}"

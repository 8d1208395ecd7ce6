# SPDX-License-Identifier: Apache-2.0
"""Checks what a part declares about its settings, where the part is found: later, nobody could tell whose mistake it
is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pens.errors import SettingsError, suggest
from pens.settings.schema import ScenarioSettings, SettingsTree
from pens.settings.section import Section
from pens.settings.space import Dimension


def check_declared(whose: str, part: Any) -> None:
    """Refuse a section or keys that cannot be used. `whose`: what errors call the part."""
    if (section := getattr(part, "section", None)) is not None:
        _check_section(whose, section)
    if (keys := getattr(part, "keys", ())) != ():
        _check_keys(whose, keys)
    _check_space(whose, getattr(part, "space", {}))


def _check_section(whose: str, section: Any) -> None:
    if not isinstance(section, type) or not issubclass(section, Section):
        raise SettingsError(f"{whose}: its section is {section!r}: give a class that is derived from pens.Section")
    if not section.title or not isinstance(section.title, str):
        raise SettingsError(f'{whose}: its section has no title, by which settings name it: write title = "mine" in it')
    ours = SettingsTree.model_fields.get(section.title)
    if ours is not None and not isinstance(ours.default, section):
        raise SettingsError(
            f"{whose}: its section has the title {section.title!r}, and so has one of pens: give it another title"
        )
    if missing := [name for name, field in section.model_fields.items() if field.is_required()]:
        raise SettingsError(
            f"{whose}: the setting {missing[0]} of its section [{section.title}] has no default: give it one"
        )
    try:
        section()
    except ValidationError as error:
        wrong = error.errors()[0]
        name = ".".join(map(str, wrong["loc"]))
        raise SettingsError(
            f"{whose}: the default of {name} in its section [{section.title}] is {wrong['input']!r}: {wrong['msg']}"
        ) from None


def _check_space(whose: str, space: Any) -> None:
    if not isinstance(space, Mapping) or not all(
        isinstance(name, str) and isinstance(of, Dimension) for name, of in space.items()
    ):
        raise SettingsError(
            f"{whose}: its space is {space!r:.80}: give ranges by the settings' names, such as "
            '{"n_peers": pens.WholeNumbers(2, 10)}'
        )


def _check_keys(whose: str, keys: Any) -> None:
    if not isinstance(keys, tuple | list) or not all(isinstance(key, str) for key in keys):
        raise SettingsError(f'{whose}: its keys are {keys!r}: give a tuple of names, such as ("test", "rotations")')
    for key in keys:
        if key not in ScenarioSettings.model_fields:
            raise SettingsError(
                f"{whose}: its keys name {key!r}, which is no setting of [scenario]"
                f"{suggest(key, ScenarioSettings.model_fields)}; settings of its own belong into its section"
            )

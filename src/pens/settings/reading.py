# SPDX-License-Identifier: Apache-2.0
"""Reads settings as users and records write them: nested or flat keys, TOML files, `--set key=value`, older
versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pens.errors import SettingsError
from pens.settings.keys import flatten, locate, section_types
from pens.settings.named_parts import excuse, with_parts
from pens.settings.section import lists
from pens.settings.toml import read_toml, read_value
from pens.settings.tree import Settings, validated


def parse_settings(tree: Mapping[str, Any]) -> Settings:
    """Settings from nested or flat keys, as a TOML file holds them."""
    return Settings().replace(dict(flatten(tree)))


def stored_settings(tree: Mapping[str, Any]) -> Settings:
    """Settings as a record of any version holds them. Before `step2_model` there was `fresh`, and the epochs of step 1
    did not count validation samples (docs/decisions/0024). Parts that are not
    installed are named all the same, and their sections are kept."""
    excuse(tree)
    types = section_types()
    if unknown := {title: of for title, of in tree.items() if title not in types and isinstance(of, Mapping)}:
        known = stored_settings({title: tree[title] for title in tree if title not in unknown})
        return validated({**known.model_dump(), **unknown})
    pens = dict(tree.get("pens", {}))
    if not pens or "step2_model" in pens:
        return parse_settings(tree)
    pens["step2_model"] = "first" if pens.pop("fresh", False) else "last"
    if pens["step1_epochs"] == "auto" and pens["step1_samplings"] > 1:
        pens["step1_epochs"] = 1250 // tree["scenario"]["train_per_peer"] + 1
    return parse_settings({**tree, "pens": pens})


def flat_keys(path: Path) -> dict[str, Any]:
    """The keys that a TOML file sets. Parts' files are looked for beside it."""
    tree = read_toml(path, ". `pens presets` lists the built-in settings.")
    return dict(flatten(tree, path.parent))


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """The assignments of `--set`, such as `["peers=8", "rotations=0,90", "init=common"]`, as a dict of values. Each
    value is read as TOML, or else as a word."""
    values: dict[str, Any] = {}
    assignments = list(assignments)
    with_parts({name.strip(): value.strip() for name, _, value in (text.partition("=") for text in assignments)})
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise SettingsError(f"--set {text}: expected key=value, for instance --set peers=8")
        section, key = locate(name.strip())
        values[name.strip()] = _read(value.strip(), lists(section_types()[section].model_fields[key].annotation))
    return values


def _read(text: str, listed: Any) -> Any:
    """`listed`: what the setting lists; None: it is no list. Words need no quotes (`Section` divides them)."""
    if listed is None or text == "none":
        return read_value(text)
    return text if listed is str and not text.startswith("[") else _list_value(text)


def _list_value(text: str) -> Any:
    """A value of `--set` as a list: `0,90`, `0` and `[0, 90]` are lists."""
    value = read_value(text if text.startswith("[") else f"[{text}]")
    return value if isinstance(value, list) else text

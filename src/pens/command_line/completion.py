# SPDX-License-Identifier: Apache-2.0
"""Completions that a shell offers at Tab. The shell calls this module at every Tab, so it never imports PyTorch."""

from __future__ import annotations

from pathlib import Path

EXHIBITS = ("figure1a", "figure1b", "figure2", "table1", "table2", "table3", "table4", "table5")
"""The paper's tables and figures, by their names in `pens.paper.exhibits`."""


def presets(incomplete: str) -> list[tuple[str, str]]:
    """Presets, and .toml files of the current folder."""
    from pens.experiment.presets import PRESETS

    known = [(preset.name, preset.about) for preset in PRESETS.values()] + [
        (file, "settings in this folder") for file in files(incomplete)
    ]
    return [(name, about) for name, about in known if name.startswith(incomplete)]


def files(incomplete: str) -> list[str]:
    """The .toml files of the current folder."""
    return [name for name in sorted(str(path) for path in Path().glob("*.toml")) if name.startswith(incomplete)]


def methods(incomplete: str) -> list[str]:
    """Methods, separated by commas. Methods that were already named are left out."""
    from pens.parts import METHODS

    before, comma, last = incomplete.rpartition(",")
    return [
        before + comma + name for name in METHODS.names() if name.startswith(last) and name not in before.split(",")
    ]


def assignments(incomplete: str) -> list[tuple[str, str]]:
    """`KEY=` for each setting; after the `=`, its values where they are few."""
    from pens.settings.catalogue import entries

    key, equals, value = incomplete.partition("=")
    if equals:
        return [(f"{key}={c}", "") for e in entries() if e.key == key for c in e.choices if c.startswith(value)]
    return [(f"{entry.key}=", entry.about) for entry in entries() if entry.key.startswith(key)]


def settings(incomplete: str) -> list[tuple[str, str]]:
    """Sections and keys of settings."""
    from pens.settings.catalogue import entries, section_about

    sections = dict.fromkeys(entry.section for entry in entries())
    known = [(name, section_about(name)) for name in sections] + [(entry.key, entry.about) for entry in entries()]
    return [(name, about) for name, about in known if name.startswith(incomplete)]


def exhibits(incomplete: str) -> list[str]:
    """The names of tables and figures for `pens reproduce`."""
    return [name for name in (*EXHIBITS, "all") if name.startswith(incomplete)]

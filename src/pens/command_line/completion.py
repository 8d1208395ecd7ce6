# SPDX-License-Identifier: Apache-2.0
"""What a shell offers when a user presses Tab. Called by the shell at every Tab: nothing here imports PyTorch."""

from __future__ import annotations

from pathlib import Path

EXHIBITS = ("figure1a", "figure1b", "figure2", "table1", "table2", "table3", "table4", "table5")
"""The paper's tables and figures, as `pens.paper.exhibits` has them."""


def presets(incomplete: str) -> list[tuple[str, str]]:
    """Presets, and .toml files here."""
    from pens.experiment.presets import PRESETS

    files = sorted(str(path) for path in Path().glob("*.toml"))
    known = [(preset.name, preset.about) for preset in PRESETS.values()] + [(file, "a file") for file in files]
    return [(name, about) for name, about in known if name.startswith(incomplete)]


def methods(incomplete: str) -> list[str]:
    """Methods with commas between them, each once."""
    from pens.parts import METHODS

    before, comma, last = incomplete.rpartition(",")
    return [
        before + comma + name for name in METHODS.names() if name.startswith(last) and name not in before.split(",")
    ]


def assignments(incomplete: str) -> list[tuple[str, str]]:
    """KEY= for each setting, then its values where these are few."""
    from pens.settings.catalogue import entries

    key, equals, value = incomplete.partition("=")
    if equals:
        return [(f"{key}={c}", "") for e in entries() if e.key == key for c in e.choices if c.startswith(value)]
    return [(f"{entry.key}=", entry.about) for entry in entries() if entry.key.startswith(key)]


def settings(incomplete: str) -> list[tuple[str, str]]:
    """Keys and sections."""
    from pens.settings.catalogue import entries, section_about

    sections = dict.fromkeys(entry.section for entry in entries())
    known = [(name, section_about(name)) for name in sections] + [(entry.key, entry.about) for entry in entries()]
    return [(name, about) for name, about in known if name.startswith(incomplete)]


def exhibits(incomplete: str) -> list[str]:
    """Names for `pens reproduce`."""
    return [name for name in (*EXHIBITS, "all") if name.startswith(incomplete)]

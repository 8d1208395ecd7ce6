# SPDX-License-Identifier: Apache-2.0
"""The versions and devices by which runs of several days and machines were computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

AND = " and "
"""The separator between several versions of a library."""


def computed_lines(devices: Sequence[str], versions: Mapping[str, str]) -> list[str]:
    """On which devices and by which versions numbers were computed, in a sentence; none where no device is known."""
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    return [f"On {', '.join(devices)}; {named}."] if devices else []


def joined_versions(each: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The versions of pens and of its libraries; several versions of each where they are of different days."""
    by_library: dict[str, dict[str, None]] = {}
    for versions in each:
        for name, version in versions.items():
            by_library.setdefault(name, {}).update(dict.fromkeys(version.split(AND)))
    return {name: AND.join(versions) for name, versions in by_library.items()}

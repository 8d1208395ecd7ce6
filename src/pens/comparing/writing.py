# SPDX-License-Identifier: Apache-2.0
"""A comparison as the text of a TOML file, which means the same in every folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pens.comparing.file import ComparisonFile, Values
from pens.methods.names import written
from pens.settings.toml import toml_line
from pens.settings.tree import MethodName

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def as_toml(file: ComparisonFile) -> str:
    """The file that `read_comparison` reads as this comparison. Parts of others are named by their places."""
    methods, seeds = [written(name) for name in file.methods], list(file.seeds)
    blocks = [[toml_line("methods", methods), toml_line("seeds", seeds), toml_line("tested", file.tested)]]
    blocks.append(_table(["settings"], file.settings, file.preset))
    blocks += _of_methods([], file.of_method)
    for scenario in file.scenarios:
        table = _table(["scenarios", scenario.name], scenario.settings, scenario.preset)
        blocks.append([*table, *_own(scenario.methods)])
        blocks += _of_methods(["scenarios", scenario.name], scenario.of_method)
    if file.tuned:
        blocks.append(["[tuned]", *(toml_line(key, value) for key, value in file.tuned.items())])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _own(methods: Sequence[MethodName] | None) -> list[str]:
    return [] if methods is None else [toml_line("methods", [written(name) for name in methods])]


def _of_methods(where: Sequence[str], of_method: Mapping[MethodName, Values]) -> Iterator[list[str]]:
    return (_table([*where, "method", name], values) for name, values in of_method.items() if values)


def _table(where: Sequence[str], values: Mapping[str, Any], preset: str | None = None) -> list[str]:
    lines = [f"[{'.'.join(map(_key, where))}]"]
    if preset:
        lines.append(toml_line("preset", preset))
    return lines + [toml_line(name, value) for name, value in values.items() if value is not None]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)

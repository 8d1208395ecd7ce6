# SPDX-License-Identifier: Apache-2.0
"""By what runs are found and compared: their settings, methods and seeds."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from pens.settings.tree import MethodName, Settings

RunKey = tuple[str, MethodName, int]
"""The identity of the settings, the method, and the seed."""


class Timed(NamedTuple):
    """A complete run, and what it has taken."""

    settings: Settings
    method: MethodName
    seconds: float
    device: str


def identity(settings: Settings) -> str:
    """A key that is equal for settings with equal results: all settings but those of the engine, of which only
    precision affects results."""
    said = settings.explicit
    said = said.without(of.title for of in (said.model_extra or {}).values() if of == type(of)())
    parts: dict[str, Any] = said.model_dump(mode="json", exclude={"engine"})
    return json.dumps([parts, settings.engine.precision], sort_keys=True)

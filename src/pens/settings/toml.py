# SPDX-License-Identifier: Apache-2.0
"""Settings as TOML text, in files and after `--set KEY=`: how values are written, and how values and files are read."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pens.errors import SettingsError


def toml_value(value: Any, comma: str = ", ") -> str:
    """A value as it is written in a .toml file, and after `--set KEY=`. TOML has no None: only --set knows `none`."""
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return f"[{comma.join(toml_value(each, comma) for each in value)}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_section(title: str, values: Mapping[str, Any]) -> str:
    """A section of a .toml file, with an empty line at its end."""
    return "\n".join([f"[{title}]", *(toml_line(key, value) for key, value in values.items()), "", ""])


def toml_line(key: str, value: Any) -> str:
    """One setting in a .toml file. A setting without a value, which TOML cannot express, becomes a comment."""
    return f"# {key} =" if value is None else f"{key} = {toml_value(value)}"


def assignment(key: str, value: Any) -> str:
    """KEY=VALUE, as short as --set takes it: a word needs no quotes unless it could be read as something else."""
    is_word = isinstance(value, str) and value == value.strip() and read_value(value) == value
    return f"{key}={value if is_word else toml_value(value, ',')}"


def read_value(text: str) -> Any:
    """The value that a text after `--set KEY=` stands for: TOML, `none`, or else a word."""
    try:
        listed = [] if "\n" in text else tomllib.loads(f"value = [{text}]")["value"]  # a comment would hide the bracket
    except tomllib.TOMLDecodeError:
        return None if text == "none" else text
    return listed[0] if len(listed) == 1 and not text.rstrip().endswith(",") else text


def read_toml(path: Path, hint: str = "") -> dict[str, Any]:
    """The content of a TOML file. `hint`: what to do where there is no such file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file{hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None

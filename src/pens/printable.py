# SPDX-License-Identifier: Apache-2.0
"""Texts of others, made safe to show: in logs, errors, terminals, tables and pages.

What another member or a file says may hold control characters that move a terminal's cursor, marks that turn the
direction of writing, or half a megabyte where a word is expected. Whatever shows such a text passes it through
`printable` first.
"""

from __future__ import annotations

from typing import Any


def printable(text: object, most: int = 80) -> str:
    """A text without control characters, marks of direction and line breaks, of which at most `most` characters stay.

    What cannot be shown is written as in Python: an escape character becomes \\x1b, a line break \\n. Letters of all
    languages stay.
    """
    words = str(text)
    shown = words[:most]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)
    return shown if len(words) <= most else f"{shown}… ({len(words)} characters)"


def printable_tree(value: Any, most: int = 80) -> Any:
    """Data as JSON has it, with every text in it made printable, those of keys, too."""
    if isinstance(value, str):
        return printable(value, most)
    if isinstance(value, dict):
        return {printable_tree(key, most): printable_tree(of, most) for key, of in value.items()}
    if isinstance(value, list):
        return [printable_tree(of, most) for of in value]
    return value

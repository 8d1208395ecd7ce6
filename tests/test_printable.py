# SPDX-License-Identifier: Apache-2.0
"""Whatever a text says, what is shown of it moves no cursor, turns no direction, breaks no line, and is short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.printable import printable, printable_tree


@given(st.text(max_size=300))
def test_what_is_shown_is_printable_and_short(text: str) -> None:
    shown = printable(text, 40)
    assert shown.isprintable()
    assert len(shown) <= 40 * 10 + 30  # an escape has at most ten characters
    if text.isprintable() and len(text) <= 40:
        assert shown == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2Jhello", "\\x1b[2Jhello"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("a\nb\r\tc\x9b\u2028", "a\\nb\\r\\tc\\x9b\\u2028"),
        ("Süd-Klinik 北", "Süd-Klinik 北"),
        (b"raw", "b'raw'"),
        ("x" * 510_000, "x" * 80 + "… (510000 characters)"),
    ],
)
def test_by_hand(text: object, shown: str) -> None:
    assert printable(text) == shown


def test_trees() -> None:
    assert printable_tree({"a\x1b": ["b\n", 1, None, {"c": "\u202e"}]}) == {
        "a\\x1b": ["b\\n", 1, None, {"c": "\\u202e"}]
    }

# SPDX-License-Identifier: Apache-2.0
"""What is written as TOML is read again: in files, and after --set."""

from __future__ import annotations

import math
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.settings.reading import parse_assignments
from pens.settings.toml import assignment, read_value, toml_section, toml_value
from pens.settings.tree import Settings

words = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), words)
values = st.one_of(plain, st.lists(plain, max_size=3))


@given(st.dictionaries(st.sampled_from(("a", "b", "c")), values))
def test_a_section_says_the_same_when_it_is_read(section: dict[str, Any]) -> None:
    assert tomllib.loads(toml_section("part", section) + toml_section("other", section)) == {
        "part": section,
        "other": section,
    }


@given(values)
def test_an_assignment_says_the_same_when_it_is_read(value: Any) -> None:
    key, _, text = assignment("key", value).partition("=")
    read = read_value(text)
    assert (key, read, type(read)) == ("key", value, type(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("cifar-10", "cifar-10"),
        (["#"], '["#"]'),
        ("1 # one", "1 # one"),
        ("8", '"8"'),  # a word, not a number
        ("none", '"none"'),
        (" edges.json", '" edges.json"'),
        (None, "none"),
        ([0, 90], "[0,90]"),
        (1e-5, "1e-05"),
        (math.inf, "inf"),
        (True, "true"),
    ],
)
def test_assignments_are_as_short_as_can_be(value: Any, text: str) -> None:
    assert assignment("key", value) == f"key={text}"


def test_settings_are_changed_by_what_is_written() -> None:
    changed = {"rotations": [0, 90], "weight_decay": 1e-05, "dataset": "cifar-10", "score_samples": None}
    read = parse_assignments(assignment(key, value) for key, value in changed.items())
    assert Settings().replace(read) == Settings().replace(changed)


def test_what_has_no_value_is_left_out_of_a_file_and_said_after_set() -> None:
    assert tomllib.loads(toml_section("part", {"a": None, "b": 1})) == {"part": {"b": 1}}
    assert read_value(toml_value(None)) is None

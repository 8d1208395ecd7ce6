# SPDX-License-Identifier: Apache-2.0
"""Lists in sections of parts are read as those of pens are; sections may be given whole."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

import pens
from pens.errors import SettingsError
from pens.parts import METHODS
from pens.settings.reading import parse_assignments
from pens.settings.section import lists
from pens.settings.tree import Settings


class SplitSettings(pens.Section):
    """The method split."""

    title = "split"
    private: list[str] = ["layers.9"]  # noqa: RUF012
    """The beginnings of what stays a peer's own."""
    shared: tuple[str, ...] | None = None
    """Others."""
    steps: list[int] = [1]  # noqa: RUF012
    """Numbers."""
    begin: pens.Whole = 0
    """A whole number."""


class Split(pens.Method):
    name = "split"
    about = "a method with lists"
    section = SplitSettings


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METHODS, "_found", dict(METHODS._found))
    monkeypatch.setattr(METHODS, "_given", {})
    monkeypatch.setattr(METHODS, "_references", dict(METHODS._references))
    METHODS.add(Split)


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("private=layers.9", ["layers.9"]),
        ("private=a,b", ["a", "b"]),
        ("private=0,2", ["0", "2"]),
        ('private=["a", "b,c"]', ["a", "b,c"]),
        ("shared=a", ("a",)),
        ("shared=none", None),
        ("steps=1,2", [1, 2]),
        ("steps=3", [3]),
        ("begin=0", 0),
    ],
)
def test_lists_are_read_as_those_of_pens_are(assignment: str, expected: Any) -> None:
    section = Settings().replace(parse_assignments([assignment])).section(SplitSettings)
    assert getattr(section, assignment.partition("=")[0]) == expected


def test_a_word_is_a_list_in_python_too() -> None:
    assert Settings().replace({"private": "head"}).section(SplitSettings).private == ["head"]
    with pytest.raises(SettingsError, match="begin = -1: input should be greater than or equal to 0"):
        Settings().replace({"begin": -1})


def test_what_a_type_lists() -> None:
    listed = [lists(of) for of in (list[str], tuple[int, ...], list[str] | None, Annotated[list[str], Field()], list)]
    assert listed == [str, int, str, str, Any]
    assert [lists(of) for of in (str, int | None, dict[str, int])] == [None, None, None]


def test_sections_are_given_whole() -> None:
    found = Settings().replace({"split": {"private": ["a"], "begin": 2}, "gossip": {"rounds": 3}, "peers": 8})
    own = found.section(SplitSettings)
    assert (own.private, own.begin, found.gossip.rounds, found.scenario.peers) == (["a"], 2, 3, 8)
    with pytest.raises(SettingsError, match="unknown setting 'splt'"):
        Settings().replace({"splt": {"begin": 1}})
    with pytest.raises(SettingsError, match=r"'split\.bgin', did you mean 'split"):
        Settings().replace({"split": {"bgin": 1}})

# SPDX-License-Identifier: Apache-2.0
"""Ranges of settings, by hand and as laws."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pens
from pens.errors import SettingsError
from pens.parts import METHODS
from pens.settings.space import Choices, LogUniform, Uniform, WholeNumbers, dimension

SHARES = st.floats(0, 1, exclude_max=True)


def test_values_by_hand() -> None:
    assert [dimension("x", {"log": [0.001, 0.1]}).at(u) for u in (0.0, 0.25, 0.5)] == [0.001, 0.003162, 0.01]
    assert [dimension("x", {"uniform": [-1, 3]}).at(u) for u in (0.0, 0.5)] == [-1, 1]
    assert [dimension("x", {"whole": [2, 4]}).at(u) for u in (0.0, 0.33, 0.34, 0.67, 0.99)] == [2, 2, 3, 4, 4]
    assert [dimension("x", ["mean", "median"]).at(u) for u in (0.0, 0.49, 0.5)] == ["mean", "mean", "median"]


@given(SHARES)
def test_values_stay_within_their_range_and_have_its_type(share: float) -> None:
    assert 1e-4 <= LogUniform(1e-4, 0.3).at(share) <= 0.3
    assert 1 <= Uniform(1, 2.5).at(share) <= 2.5
    whole = WholeNumbers(-2, 5).at(share)
    assert isinstance(whole, int)
    assert -2 <= whole <= 5
    assert Choices(("a", 3)).at(share) in ("a", 3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"log": [0, 1]}, "begins above 0"),
        ({"log": [1, 1]}, "the smaller one first"),
        ({"uniform": [1]}, "give two numbers"),
        ({"uniform": [0, float("inf")]}, "give two numbers"),
        ({"whole": [1, 2.5]}, "give two whole numbers"),
        ({"whole": [False, True]}, "give two whole numbers"),
        ({"normal": [0, 1]}, "give a list of values"),
        ({"log": [1, 2], "whole": [1, 2]}, "give a list of values"),
        (3, "give a list of values"),
        ([], "at least one value"),
        (["a", "a"], "each once"),
    ],
)
def test_what_is_no_range_is_refused(given: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        dimension("lr", given)


@pytest.mark.parametrize("space", [{"lr": 3}, {3: Choices((1,))}, [Choices((1,))]])
def test_a_method_whose_space_is_none_is_refused_where_it_is_found(space: Any) -> None:
    class Wrong(pens.Method):
        name = "wrongly-tuned"
        about = "its space holds no ranges"

    Wrong.space = space
    with pytest.raises(SettingsError, match="its space is"):
        METHODS.add(Wrong)

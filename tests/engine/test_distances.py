# SPDX-License-Identifier: Apache-2.0
"""How far models lie from each other, worked out by hand."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pens.engine.distances import Pair, distances
from pens.engine.stack import ModelStack
from pens.settings.schema import Distance

WHOLE = [slice(0, 3)]


def stack(*models: list[float]) -> ModelStack:
    """Models in the rows 0, 1, 2, …"""
    made = ModelStack(len(models[0]), torch.device("cpu"), len(models))
    order = made.add(torch.tensor(models, dtype=torch.float32))
    assert order == list(range(len(models)))
    return made


def test_distances_by_hand() -> None:
    """From (3, 4, 0): (0, 0, 0) lies 5 away and has no direction; (6, 8, 0) lies 5 away in the same direction;
    (−4, 3, 0) is at a right angle, √(49 + 1) away; (−3, −4, 0) points the other way. Seen from the origin (3, 0, 0)
    the first became (0, 4, 0) and the third (3, 8, 0), whose cosine is 8 / √73."""
    models = stack([3, 4, 0], [0, 0, 0], [6, 8, 0], [-4, 3, 0], [-3, -4, 0], [3, 0, 0])
    pairs = [Pair(0, other, 5) for other in (0, 1, 2, 3, 4, 5)]
    assert distances(models, pairs, WHOLE, "l2") == pytest.approx([0, 5, 5, math.sqrt(50), 10, 4])
    assert distances(models, pairs[:5], WHOLE, "cosine-weights") == pytest.approx([0, 1, 0, 1, 2])
    updates = distances(models, pairs, WHOLE, "cosine-update")
    assert updates == pytest.approx([0, 1, 1 - 8 / math.sqrt(73), 1 - 3 / math.sqrt(58), 1 + 4 / math.sqrt(52), 1])
    assert distances(models, [], WHOLE, "l2") == []


def test_only_the_numbers_of_the_ranges_count() -> None:
    models = stack([1, 9, 0, 2], [4, 9, 9, 6])
    assert distances(models, [Pair(0, 1)], [slice(0, 2), slice(3, 4)], "l2") == [5.0]


@pytest.mark.parametrize("by", get_args(Distance))
def test_numbers_that_are_not_finite_make_no_distance(by: Distance) -> None:
    for broken in (math.nan, math.inf):
        (found,) = distances(stack([1, 0, 0], [broken, 0, 0], [0, 1, 0]), [Pair(0, 1, 2)], WHOLE, by)
        assert not math.isfinite(found)


@given(st.integers(0, 99), st.integers(1, 9), st.sampled_from(get_args(Distance)))
def test_a_distance_is_the_same_to_the_bit_whatever_is_computed_beside_it(seed: int, count: int, by: Distance) -> None:
    """Law 3; and within double precision it is what PyTorch says of whole vectors, though these are added up in
    blocks."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn((count + 2, 70_000), generator=generator)
    models = ModelStack(70_000, torch.device("cpu"), len(rows))
    places = models.add(rows)
    pairs = [Pair(places[0], places[1 + i], places[-1]) for i in range(count)]
    ranges = [slice(0, 70_000)]
    together = distances(models, pairs, ranges, by)
    assert together == [distances(models, [pair], ranges, by)[0] for pair in pairs]
    moved = rows.double() - (rows[-1].double() if by == "cosine-update" else 0)
    own, others = moved[:1], moved[1:-1]
    usual = (own - others).norm(dim=1) if by == "l2" else 1 - torch.cosine_similarity(own, others)
    torch.testing.assert_close(torch.tensor(together, dtype=torch.float64), usual, rtol=1e-10, atol=1e-12)


def test_chunks_of_many_pairs_give_the_same_as_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where several pairs are computed at once: here three of seven, in blocks of two numbers."""
    rows = torch.randn((8, 5), generator=torch.Generator().manual_seed(1))
    models = stack(*rows.tolist())
    pairs = [Pair(0, other, 7) for other in range(7)]
    alone = {by: distances(models, pairs, [slice(0, 5)], by) for by in get_args(Distance)}
    monkeypatch.setattr("pens.engine.distances._BLOCK", {"cuda": 2})
    monkeypatch.setattr("pens.engine.distances._NUMBERS_AT_ONCE", {"cuda": 6})
    for by, found in alone.items():
        assert distances(models, pairs, [slice(0, 5)], by) == pytest.approx(found)

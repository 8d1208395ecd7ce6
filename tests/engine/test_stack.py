# SPDX-License-Identifier: Apache-2.0
"""Rows, references, and law 7: merging with weights that sum to one keeps equal models equal."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pens.engine.stack import ModelStack

CPU = torch.device("cpu")
floats = st.floats(-1e6, 1e6, width=32)


@given(st.lists(floats, min_size=1, max_size=6), st.lists(st.integers(1, 25), min_size=1, max_size=5))
def test_equal_models_stay_exactly_equal(values: list[float], sizes: list[int]) -> None:
    stack = ModelStack(len(values), CPU)
    model = torch.tensor(values)
    rows = stack.add(model.expand(max(sizes), -1))
    mixed = stack.mix([rows[:size] for size in sizes])
    assert torch.equal(mixed, model.expand(len(sizes), -1))


MODELS = torch.tensor([[1.0, 10.0], [4.0, 40.0], [7.0, -20.0], [2.0, 0.0]])
GROUPS = ([0, 1, 2], [3], [1, 3], [2, 2, 0, 0], [3, 2, 1, 0])
AVERAGES = [[4.0, 10.0], [2.0, 0.0], [3.0, 20.0], [4.0, -5.0], [3.5, 7.5]]
"""(1 + 4 + 7) / 3 and (10 + 40 − 20) / 3; a model alone; (4 + 2) / 2; (7 + 7 + 1 + 1) / 4; (2 + 7 + 4 + 1) / 4."""


@pytest.mark.parametrize("at_once", [1, 2, 1024])
def test_averages_by_hand(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 4.1: a plain average, of groups of different sizes. On a GPU so many groups are averaged together, by
    `_mix`; the same arithmetic on a CPU here, and on a GPU in test_cuda.py."""
    monkeypatch.setattr("pens.engine.stack._GROUPS_AT_ONCE", at_once)
    stack = ModelStack(2, CPU)
    assert stack.add(MODELS) == [0, 1, 2, 3]
    assert stack.mix(GROUPS).tolist() == AVERAGES
    assert stack._mix(GROUPS).tolist() == AVERAGES


WEIGHTS = ([0.5, 0.25, 0.25], [1.0], [0.75, 0.25], [0.25] * 4, [0.5, 0.0, 0.5, 0.0])
BLENDS = [[3.25, 10.0], [2.0, 0.0], [3.5, 30.0], [4.0, -5.0], [3.0, 20.0]]
"""1/2 + 4/4 + 7/4 and 10/2 + 40/4 − 20/4; a model alone; 3/4 · 4 + 2/4 and 3/4 · 40; as above; 2/2 + 4/2 and 40/2."""


@pytest.mark.parametrize("at_once", [1, 2, 1024])
def test_weighted_averages_by_hand(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise, of all numbers and of the second alone."""
    monkeypatch.setattr("pens.engine.stack._GROUPS_AT_ONCE", at_once)
    stack = ModelStack(2, CPU)
    stack.add(MODELS)
    assert stack.blend(GROUPS, WEIGHTS).tolist() == BLENDS
    assert stack._blend(GROUPS, WEIGHTS).tolist() == BLENDS
    assert stack.blend(GROUPS, WEIGHTS, slice(1, 2)).tolist() == [[second] for _, second in BLENDS]
    assert stack._blend(GROUPS, WEIGHTS, slice(1, 2)).tolist() == [[second] for _, second in BLENDS]
    assert stack._mix(GROUPS, slice(1, 2)).tolist() == [[second] for _, second in AVERAGES]
    assert stack.mix(GROUPS, slice(1, 2)).tolist() == [[second] for _, second in AVERAGES]
    assert stack.read([3, 1], slice(0, 1)).tolist() == [[2.0], [4.0]]


def test_a_model_that_is_averaged_with_none_stays_as_it_is() -> None:
    """Even where a number is infinite: nothing is taken from it."""
    stack = ModelStack(2, CPU)
    model = torch.tensor([[torch.inf, 3.0]])
    rows = stack.add(model)
    assert torch.equal(stack.mix([rows]), model)
    assert torch.equal(stack._mix([rows]), model)


def test_places_are_added_when_there_are_no_free_ones() -> None:
    """As many as are reserved to begin with; then a quarter more, or as many as are needed where that is more. All
    models are copied then, so it does not happen while there is room."""
    stack = ModelStack(2, CPU, reserve=18)
    assert (stack.size, len(stack._rows)) == (2, 18)
    rows = stack.add(torch.zeros(18, 2))
    assert len(stack._rows) == 18
    assert stack.retain(rows[3]) == rows[3]
    stack.add(torch.ones(1, 2))
    assert len(stack._rows) == 18 + 18 // 4
    stack.add(torch.ones(10, 2))  # there are 3 free places
    assert len(stack._rows) == 22 + 7
    assert stack.num_alive == 18 + 1 + 10
    assert stack.read(rows).tolist() == [[0, 0]] * 18
    stack.release(rows[3])
    assert stack.num_alive == 29  # it was retained once more
    stack.release(rows[3])
    assert stack.num_alive == 28


@given(st.integers(0, 2**31), st.lists(st.integers(1, 8), min_size=1, max_size=5))
def test_groups_are_averaged_together_as_one_by_one(seed: int, sizes: list[int]) -> None:
    """To the last bit: sums run in the same order (law 3)."""
    stack = ModelStack(5, CPU)
    rows = stack.add(torch.from_numpy(np.random.default_rng(seed).normal(size=(8, 5)).astype(np.float32)))
    groups = [rows[-size:] for size in sizes]
    weights = [[2 / (size + 1)] + [1 / (size + 1)] * (size - 1) for size in sizes]
    assert torch.equal(stack._blend(groups, weights), stack.blend(groups, weights))
    assert torch.equal(stack._mix(groups), stack.mix(groups))


@given(st.integers(0, 2**31), st.lists(st.integers(1, 8), min_size=1, max_size=5))
def test_mixing_is_the_mean_and_does_not_depend_on_other_groups(seed: int, sizes: list[int]) -> None:
    models = torch.from_numpy(np.random.default_rng(seed).normal(size=(8, 5)).astype(np.float32))
    stack = ModelStack(5, CPU)
    rows = stack.add(models)
    groups = [rows[:size] for size in sizes]
    mixed = stack.mix(groups)
    for i, size in enumerate(sizes):
        torch.testing.assert_close(mixed[i], models[:size].mean(0), rtol=1e-5, atol=1e-6)
        assert torch.equal(stack.mix([groups[i]])[0], mixed[i])


@given(st.lists(st.sampled_from(["add", "retain", "release"]), max_size=60))
def test_a_row_lives_as_long_as_somebody_refers_to_it(operations: list[str]) -> None:
    stack = ModelStack(2, CPU)
    references: dict[int, int] = {}
    contents: dict[int, float] = {}
    for number, operation in enumerate(operations):
        alive = sorted(references)
        if operation == "add" or not alive:
            (row,) = stack.add(torch.full((1, 2), float(number)))
            assert row not in references
            references[row], contents[row] = 1, float(number)
            continue
        row = alive[number % len(alive)]
        if operation == "retain":
            stack.retain(row)
            references[row] += 1
        else:
            stack.release(row)
            references[row] -= 1
            if not references[row]:
                del references[row]
    assert stack.num_alive == len(references)
    for row in references:
        assert stack.read([row])[0].tolist() == [contents[row]] * 2

# SPDX-License-Identifier: Apache-2.0
"""Sketches tell copies from other models."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pens.engine.sketches import WIDTH, Sketcher, off_the_line

CPU = torch.device("cpu")


def test_only_numbers_in_the_ranges_count() -> None:
    sketcher = Sketcher(6, [slice(0, 2), slice(4, 5)], 1, CPU)
    rows = torch.tensor([[3.0, 0.0, 7.0, 7.0, 4.0, 7.0], [3.0, 0.0, 0.0, 0.0, 4.0, 0.0]])
    one, other = sketcher.sketches(rows)
    assert one.shape == (WIDTH,)
    assert (one == other).all()
    assert sketcher.lengths(rows).tolist() == [5.0, 5.0]
    assert sorted(abs(one[one != 0]).tolist()) == [3.0, 4.0]


def test_numbers_that_are_not_finite_have_no_length() -> None:
    sketcher = Sketcher(2, [slice(0, 2)], 1, CPU)
    assert sketcher.lengths(torch.tensor([[torch.nan, 1.0], [torch.inf, 1.0], [1e30, 0.0]])).tolist() == [
        np.inf,
        np.inf,
        pytest.approx(1e30),
    ]


def test_distances_are_about_right_and_those_of_multiples_are_nothing() -> None:
    """Of a hundred pairs, each 3 apart, all sketches say 2.2 to 3.8."""
    generator = torch.Generator().manual_seed(0)
    models = torch.randn((100, 5000), generator=generator)
    apart = torch.randn((100, 5000), generator=generator)
    apart *= 3 / apart.norm(dim=1, keepdim=True)
    sketcher = Sketcher(5000, [slice(0, 5000)], 7, CPU)
    own, near, scaled = (sketcher.sketches(rows) for rows in (models, models + apart, models * -2.5))
    assert all(2.2 < off_the_line(a, b) < 3.8 for a, b in zip(near, own, strict=True))
    assert all(off_the_line(a, b) < 1e-3 for a, b in zip(scaled, own, strict=True))


def test_off_the_line_by_hand() -> None:
    """(3, 4) lies 4 off all multiples of (1, 0), and 5 off those of nothing."""
    point = np.array([3.0, 4.0])
    assert off_the_line(point, np.array([2.0, 0.0])) == pytest.approx(4)
    assert off_the_line(point, np.zeros(2)) == pytest.approx(5)

# SPDX-License-Identifier: Apache-2.0
"""Images turned by any angle: by hand, and as PyTorch turns them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from pens.data.samples import IGNORED, Samples
from pens.partitions.rotation import rotate
from pens.partitions.turning import turned, weights_of
from pens.settings.schema import Interpolation


def test_four_pixels_turned_by_45_degrees() -> None:
    """Each corner becomes the mean of the two pixels of the side that turns to it, counter-clockwise, times 0.7929: the
    place it comes from lies 0.2071 pixels outside."""
    image = np.array([[[10.0, 20.0], [30.0, 50.0]]])
    inside = 1 - (math.sqrt(2) / 2 - 0.5)
    expected = np.array([[[15.0, 35.0], [20.0, 40.0]]]) * inside
    assert turned(image, 45) == pytest.approx(expected)
    filled = turned(image, 45, outside=100.0)
    assert filled == pytest.approx(expected + 100 * (1 - inside))


def test_nine_pixels_turned_by_45_degrees_to_the_nearest() -> None:
    """The frame moves on by one pixel, counter-clockwise; the middle stays. By 10 degrees nothing moves."""
    image = np.arange(9).reshape(1, 3, 3)
    assert turned(image, 45, "nearest").tolist() == [[[1, 2, 5], [0, 4, 8], [3, 6, 7]]]
    assert turned(image, 10, "nearest").tolist() == image.tolist()
    assert turned(image, 10, "nearest").dtype == image.dtype


def test_multiples_of_90_only_move_pixels() -> None:
    image = np.random.default_rng(0).normal(size=(2, 3, 5, 5))
    for angle in (-270, -90, 0, 90, 180, 270, 360, 450):
        assert np.array_equal(turned(image, angle), np.rot90(image, angle // 90, (-2, -1)))


@given(st.integers(1, 359).filter(lambda angle: angle % 90), st.integers(2, 9), st.integers(2, 9))
def test_images_turn_as_pytorch_turns_them(angle: int, height: int, width: int) -> None:
    image = np.random.default_rng(0).normal(size=(2, 3, height, width))
    found = turned(image, angle)
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    ours = [[cosine, -sine * height / width, 0], [sine * width / height, cosine, 0]]  # x, y from −1 to 1
    grid = F.affine_grid(torch.tensor([ours] * 2, dtype=torch.float64), [2, 3, height, width], align_corners=False)
    theirs = F.grid_sample(torch.from_numpy(image), grid, padding_mode="zeros", align_corners=False)
    assert found == pytest.approx(theirs.numpy(), abs=1e-9)


@given(st.integers(-720, 720), st.sampled_from(["bilinear", "nearest"]), st.integers(1, 8))
def test_weights_are_those_of_pixels_and_never_add_up_to_more_than_one(
    angle: int, interpolation: Interpolation, side: int
) -> None:
    sources, weights = weights_of(side, side, angle, interpolation)
    assert ((sources >= 0) & (sources < side**2)).all()
    assert (weights >= 0).all()
    assert (weights.sum(0) <= 1 + 1e-12).all()
    if side % 2:
        middle = side**2 // 2
        assert (weights[:, middle] @ (sources[:, middle] == middle)) == pytest.approx(1)


def test_many_images_are_turned_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    image = np.random.default_rng(0).normal(size=(7, 2, 4, 4)).astype(np.float32)
    whole = turned(image, 30)
    monkeypatch.setattr("pens.partitions.turning._AT_ONCE", 3 * 16)
    assert np.array_equal(turned(image, 30), whole)
    assert whole.dtype == np.float32


def test_whole_numbers_are_rounded_and_labels_of_pixels_ignored_in_corners() -> None:
    image = np.array([[[[10, 20], [30, 50]]]])
    assert turned(image, 45).tolist() == [[[[12, 28], [16, 32]]]]  # 15, 35, 20 and 40 times 0.7929
    pixels = np.zeros((1, 5, 5), np.int64)
    found = rotate(Samples(np.ones((1, 1, 5, 5)), pixels), 45)
    assert found.y[0, 0].tolist() == [IGNORED, 0, 0, 0, IGNORED]  # the corners lie 0.83 pixels outside
    assert set(np.unique(found.y)) == {IGNORED, 0}

# SPDX-License-Identifier: Apache-2.0
"""Each shift by hand: permuted labels, noise, blur and colours."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.data.samples import Array, Dataset, Samples
from pens.errors import DataError, SettingsError
from pens.partitions.axes import View, as_before
from pens.partitions.shifts.blur import blurred, weights_of
from pens.partitions.shifts.colour import hue_turn
from pens.partitions.shifts.permutation import how_many, permutations
from pens.parts import SHIFTS
from pens.settings.tree import Settings


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def shifted(name: str, x: Array, y: Sequence[int], clusters: int, seed: int = 0, **settings: object) -> list[Samples]:
    """What becomes of these samples in each cluster."""
    chosen = Settings().replace({"partition": "product", "shift": [name], **settings})
    samples = Samples(x, np.array(y))
    data = Dataset("some", samples, samples)
    shift = SHIFTS.find(name)
    shift.check(chosen, data)
    assert len(shift.clusters(chosen)) == clusters
    return [shift.apply(samples, View(chosen, data, seed, cluster, generator(seed))) for cluster in range(clusters)]


# --- permutation ------------------------------------------------------------------------------------------------------


def test_labels_are_permuted_and_inputs_are_not() -> None:
    x = np.arange(6.0)[:, None]
    plain, permuted = shifted("permutation", x, [0, 1, 2, 0, 1, 2], 2)
    assert plain.y.tolist() == [0, 1, 2, 0, 1, 2]
    (table,) = permutations(
        3, 2, 0, View(Settings(), Dataset("d", plain, plain), 0, 0, generator()).shared("permutation")
    )[1:].tolist()
    assert table != [0, 1, 2]
    assert permuted.y.tolist() == [table[label] for label in (0, 1, 2, 0, 1, 2)]
    assert np.array_equal(permuted.x, x)


def test_how_many_permutations_there_are() -> None:
    """Of four labels 24; with one pair swapped 6, with two 3, and the one that changes nothing."""
    assert (how_many(4, 0), how_many(4, 1), how_many(4, 2), how_many(4, 3)) == (24, 7, 4, 1)
    assert how_many(10, 1) == 46


@given(st.integers(2, 6), st.integers(0, 3), st.integers(1, 100), st.integers(0, 9))
def test_permutations_differ_and_swap_as_many_pairs_as_asked(labels: int, pairs: int, count: int, seed: int) -> None:
    count = min(count, how_many(labels, pairs))
    found = permutations(labels, count, pairs, generator(seed))
    assert found[0].tolist() == list(range(labels))
    assert len({tuple(row) for row in found.tolist()}) == count
    for row in found[1:]:
        assert sorted(row) == list(range(labels))
        if pairs:
            assert (row != np.arange(labels)).sum() == 2 * pairs
            assert (row[row] == np.arange(labels)).all()


def test_more_permutations_than_there_are_are_refused() -> None:
    with pytest.raises(DataError, match="permutations = 7, but 3 labels have 6 permutations, the one that changes"):
        shifted("permutation", np.zeros((3, 1)), [0, 1, 2], 7, permutations=7)
    with pytest.raises(DataError, match=r"2 labels have 1 permutations with 2 pairs swapped.* or swapped_pairs"):
        shifted("permutation", np.zeros((2, 1)), [0, 1], 2, swapped_pairs=2)


# --- noise ------------------------------------------------------------------------------------------------------------


def test_noise_has_the_deviation_of_its_cluster() -> None:
    x = np.full((400, 1, 5, 5), 0.25, np.float32)
    quiet, loud = shifted("noise", x, [0] * 400, 2, noise_levels=[0, 0.5])
    assert np.array_equal(quiet.x, x)
    assert loud.x.dtype == np.float32
    assert loud.x.mean() == pytest.approx(0.25, abs=0.02)
    assert loud.x.std() == pytest.approx(0.5, abs=0.02)
    assert len(np.unique(loud.x)) > 9000  # each input has noise of its own
    again, other = (shifted("noise", x, [0] * 400, 2, seed)[1].x for seed in (0, 1))
    assert np.array_equal(loud.x, again)
    assert not np.array_equal(loud.x, other)
    with pytest.raises(DataError, match="some has inputs of type int64, to which no noise can be added"):
        shifted("noise", np.zeros((2, 3), int), [0, 1], 2)
    with pytest.raises(SettingsError, match=r"noise_levels = \[0.5, 0.5\] names one twice"):
        shifted("noise", x, [0] * 400, 2, noise_levels=[0.5, 0.5])


# --- blur -------------------------------------------------------------------------------------------------------------


def test_a_line_of_three_blurred_by_hand() -> None:
    """With a deviation of a third only the next pixels count, with e^−4.5 of the middle's weight. Beyond the edge the
    line goes on as at the edge."""
    w = exp(-4.5)
    expected = np.array([[1 + w, w, 0], [w, 1, w], [0, w, 1 + w]]) / (1 + 2 * w)
    assert weights_of(3, 1 / 3) == pytest.approx(expected)
    image = np.array([[[[0.0, 0, 0], [0, 1, 0], [0, 0, 0]]]])
    plain, soft = shifted("blur", image, [0], 2, blur_pixels=[0, 1 / 3])
    assert np.array_equal(plain.x, image)
    assert soft.x[0, 0] == pytest.approx(np.outer(expected[:, 1], expected[:, 1]))


@given(st.floats(0.1, 50), st.integers(1, 9), st.integers(1, 9))
def test_a_blur_keeps_even_images_and_evens_out_others(pixels: float, height: int, width: int) -> None:
    even = np.full((1, 2, height, width), 0.7)
    assert blurred(even, pixels) == pytest.approx(even)
    image = generator().normal(size=(1, 2, height, width))
    soft = blurred(image, pixels)
    assert image.min() - 1e-9 <= soft.min() <= soft.max() <= image.max() + 1e-9
    assert np.allclose(blurred(image.swapaxes(2, 3), pixels), soft.swapaxes(2, 3))


def test_what_cannot_be_blurred_is_refused() -> None:
    with pytest.raises(DataError, match=r"samples of shape \(3,\), which cannot be blurred"):
        shifted("blur", np.zeros((2, 3)), [0, 1], 2)


# --- colour -----------------------------------------------------------------------------------------------------------

RED, GREEN, BLUE, GREY = [1.0, -1, -1], [-1.0, 1, -1], [-1.0, -1, 1], [0.2, 0.2, 0.2]


def test_colours_by_hand() -> None:
    """Inputs lie between −1 and 1. Pure green is 0.299 · (−1) + 0.587 − 0.114 = 0.174 bright."""
    x = np.array([RED, GREEN, BLUE, GREY])[:, :, None, None]
    plain, negative, grey, turned = (
        of.x[:, :, 0, 0] for of in shifted("colour", x, [0] * 4, 4, colours=["plain", "inverted", "grey", "hue120"])
    )
    assert plain.tolist() == [RED, GREEN, BLUE, GREY]
    assert negative.tolist() == [[-1, 1, 1], [1, -1, 1], [1, 1, -1], [-0.2, -0.2, -0.2]]
    assert grey[1] == pytest.approx([0.174] * 3)
    assert grey[3] == pytest.approx(GREY)
    assert turned == pytest.approx(np.array([GREEN, BLUE, RED, GREY]))


@given(st.integers(-999, 999))
def test_turning_hues_keeps_grey_and_turns_back(degrees: int) -> None:
    mixing = hue_turn(degrees)
    assert mixing @ np.ones(3) == pytest.approx(np.ones(3))
    assert mixing @ hue_turn(-degrees) == pytest.approx(np.eye(3))


def test_colours_stay_within_bounds_and_keep_their_type() -> None:
    x = np.array([[255, 0, 0], [0, 255, 255]], np.uint8)[:, :, None, None]
    (bright,) = shifted("colour", np.array([RED, GREEN])[:, :, None, None], [0, 0], 1, colours=["hue60"])
    assert bright.x[0, :, 0, 0] == pytest.approx([1 / 3, 1 / 3, -1])  # blue would be −5/3
    negative, turned = (of.x for of in shifted("colour", x, [0, 1], 2, colours=["inverted", "hue60"]))
    assert negative[:, :, 0, 0].tolist() == [[0, 255, 255], [255, 0, 0]]
    assert turned.dtype == np.uint8
    assert turned[0, :, 0, 0].tolist() == [170, 170, 0]  # 2/3, 2/3 and −1/3 of 255
    assert as_before(np.array([300.0, -3.0, 2.6]), x).tolist() == [255, 0, 3]


def test_unknown_colours_and_images_without_them_are_refused() -> None:
    with pytest.raises(SettingsError, match="'mauve' is not known: use plain, grey, inverted, or hue"):
        Settings().replace({"colour.colours": ["mauve"]})
    with pytest.raises(DataError, match=r"'grey', which needs images of three channels, but samples have shape \(1, 2"):
        shifted("colour", np.zeros((2, 1, 2, 2)), [0, 1], 2, colours=["plain", "grey"])
    shifted("colour", np.zeros((2, 1, 2, 2)), [0, 1], 2)

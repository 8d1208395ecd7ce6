# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from pens import rng
from pens.engine.bits import random_bits

names = st.lists(st.one_of(st.integers(0, 10**6), st.text(max_size=8)), max_size=4)


@given(st.integers(0, 2**31), names)
def test_a_stream_depends_on_its_name_alone(seed: int, name: list[int | str]) -> None:
    assert rng.stream(seed, *name).random() == rng.stream(seed, *name).random()


NAMES: list[tuple[int | str, ...]] = [(), (1,), ("1",), ("a", 1), (1, "a"), ("a1",), (11,), (1, 1)]


def test_different_names_give_different_keys() -> None:
    keys = {rng.key(s, *n) for s in range(3) for n in NAMES}
    assert len(keys) == 24
    assert all(0 <= key < 2**63 for key in keys)


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5), st.integers(1, 50), st.integers(0, 50))
def test_a_row_of_bits_depends_on_its_key_alone_and_longer_rows_begin_alike(
    keys: list[int], count: int, more: int
) -> None:
    together = random_bits(torch.tensor(keys), count + more)
    for key, row in zip(keys, together, strict=True):
        assert torch.equal(random_bits(torch.tensor([key]), count)[0], row[:count])


def test_bits_are_uniform_and_unrelated_between_keys() -> None:
    keys = torch.tensor([rng.key(0, "update", p, 1) for p in range(64)])
    bits = random_bits(keys, 4096).double() / 2**32
    assert abs(bits.mean().item() - 0.5) < 0.003
    assert abs(bits.var().item() - 1 / 12) < 0.002
    correlation = np.corrcoef(bits.numpy()) - np.eye(64)
    assert np.abs(correlation).max() < 0.08
    following = np.corrcoef(bits[:, :-1].flatten().numpy(), bits[:, 1:].flatten().numpy())[0, 1]
    assert abs(following) < 0.01


def test_single_numbers_are_uniform_and_independent_of_their_neighbours() -> None:
    for key in (0, 1, rng.key(0, "peer", 3)):
        numbers = np.array([rng.number(key, place) for place in range(20_000)])
        assert 0 <= numbers.min() < 0.001
        assert 0.999 < numbers.max() < 1
        assert np.abs(np.histogram(numbers, 20)[0] / 1000 - 1).max() < 0.15
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03
    assert rng.number(5, 7) == rng.number(5, 7) != rng.number(5, 8)

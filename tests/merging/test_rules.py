# SPDX-License-Identifier: Apache-2.0
"""Each merge rule by hand, against a plain one model by model (law 1), and what all have in common (laws 3 and 7)."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pens.engine.layout import Layout
from pens.engine.stack import ModelStack
from pens.errors import SettingsError
from pens.merging.merger import RowMerge, merge_rows
from pens.merging.ordered import in_order
from pens.merging.rule import Merge, Merging, chosen
from pens.merging.trimmed import left_out
from pens.parts import MERGE_RULES
from pens.settings.tree import Settings
from tests.merging.plain import PLAIN

CPU = torch.device("cpu")
RULES = ("mean", "weighted", "median", "trimmed", "clipped")
MODELS = [[0.0, 10.0], [3.0, 0.0], [6.0, 2.0], [1.0, 4.0], [100.0, -100.0]]
SAMPLES = (10, 30, 20, 20, 20)


def merging(name: str, **values: object) -> Merging:
    return chosen(Settings().replace({"merge": name, **values}))


def told(count: int, own_in_merge: bool = True, samples: tuple[int, ...] | None = None) -> Merge:
    """Peer 0 merges so many models, its own first or not at all."""
    senders = tuple(range(count)) if own_in_merge else tuple(range(1, count + 1))
    return Merge(0, senders, own_in_merge, samples)


def merge_one(how: Merging, models: Tensor, about: Merge, own: int = 0) -> Tensor:
    """One merge of all models.  [model, number] → [number]"""
    stack = ModelStack(models.shape[1], CPU)
    rows = stack.add(models)
    layout = Layout.stored({"w": torch.Size([models.shape[1]])}, {})
    merge = RowMerge(rows[0 if about.own_in_merge else 1 :], rows[own], about)
    return merge_rows(stack, layout, how, [merge])[0]


def test_all_rules_are_here_and_say_what_they_do() -> None:
    assert set(RULES) == set(PLAIN) <= set(MERGE_RULES.names())
    assert all(MERGE_RULES.find(name).name == name and MERGE_RULES.find(name).about for name in RULES)


def test_rules_are_light_to_import() -> None:
    """Every setting's explanation asks for them."""
    code = "import sys; from pens import parts; parts.sections(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "pens.merging.clipped" in loaded
    assert "torch" not in loaded


@pytest.mark.parametrize(
    ("rule", "values", "expected"),
    [
        ("mean", {}, [22.0, -16.8]),  # (0 + 3 + 6 + 1 + 100) / 5, (10 + 0 + 2 + 4 − 100) / 5
        ("weighted", {}, [22.3, -17.8]),  # (90 + 120 + 20 + 2000) / 100, (100 + 40 + 80 − 2000) / 100
        ("median", {}, [3.0, 2.0]),  # of 0 1 3 6 100, and of −100 0 2 4 10
        ("trimmed", {}, [10 / 3, 2.0]),  # (1 + 3 + 6) / 3, (0 + 2 + 4) / 3
        ("trimmed", {"trim_share": 0.4}, [3.0, 2.0]),  # two on each side
        ("trimmed", {"trim_share": 0.19}, [22.0, -16.8]),  # 0.95 of a model: none
    ],
)  # fmt: skip
def test_each_rule_by_hand(rule: str, values: dict[str, object], expected: list[float]) -> None:
    merged = merge_one(merging(rule, **values), torch.tensor(MODELS), told(5, samples=SAMPLES))
    assert merged.tolist() == pytest.approx(expected)


def test_of_an_even_number_the_median_is_the_mean_of_the_middle_two() -> None:
    """Of 0 1 3 6 it is 2, of 0 2 4 10 it is 3; without the own model, of 1 3 6 it is 3, of 0 2 4 it is 2."""
    models = torch.tensor(MODELS[:4])
    assert merge_one(merging("median"), models, told(4)).tolist() == [2.0, 3.0]
    assert merge_one(merging("median"), models, told(3, own_in_merge=False)).tolist() == [3.0, 2.0]


CENTRE = torch.tensor([[1.0, 1.0], [4.0, 5.0], [1.0, 3.0], [7.0, 9.0]])
"""Differences from the first one: (3, 4), (0, 2) and (6, 8), of norms 5, 2 and 10."""


@pytest.mark.parametrize(
    ("radius", "own_in_merge", "expected"),
    [
        # the median norm is 5: (3, 4), (0, 2) and half of (6, 8), in sum (6, 10), by four models or three
        ("auto", True, [2.5, 3.5]),
        ("auto", False, [3.0, 1 + 10 / 3]),
        # radius 2: (1.2, 1.6), (0, 2) and (1.2, 1.6), in sum (2.4, 5.2)
        (2.0, True, [1.6, 2.3]),
        (100.0, True, [3.25, 4.5]),  # nothing is clipped: the mean
    ],
)
def test_clipping_by_hand(radius: object, own_in_merge: bool, expected: list[float]) -> None:
    about = told(4 if own_in_merge else 3, own_in_merge)
    assert merge_one(merging("clipped", clip_radius=radius), CENTRE, about).tolist() == pytest.approx(expected)


def test_clipping_heeds_weights() -> None:
    """A quarter of (3, 4), an eighth of (0, 2), an eighth of half of (6, 8): (1.125, 1.75) and the own model."""
    about = Merge(0, (0, 1, 2, 3), True, weights=(0.5, 0.25, 0.125, 0.125))
    assert merge_one(merging("clipped"), CENTRE, about).tolist() == pytest.approx([2.125, 2.75])


def test_of_two_norms_the_radius_is_the_lower() -> None:
    """Of norms 5 and 10 it is 5: (3, 4) and half of (6, 8), by three models."""
    assert merge_one(merging("clipped"), CENTRE[[0, 1, 3]], told(3)).tolist() == pytest.approx([3.0, 1 + 8 / 3])


@pytest.mark.parametrize("rule", ["mean", "weighted"])
def test_a_methods_weights_by_hand(rule: str) -> None:
    """Half of the own model, a quarter each of two others, whatever the rule would say:
    0 / 2 + 3 / 4 + 6 / 4 and 10 / 2 + 0 / 4 + 2 / 4."""
    about = Merge(0, (0, 1, 2), True, (1, 1, 1), (0.5, 0.25, 0.25))
    assert merge_one(merging(rule), torch.tensor(MODELS[:3]), about).tolist() == pytest.approx([2.25, 5.5])


def test_without_numbers_of_samples_nothing_is_weighted() -> None:
    with pytest.raises(SettingsError, match="needs the senders' numbers of training samples"):
        merge_one(merging("weighted"), torch.tensor(MODELS), told(5))


def test_how_many_are_left_out() -> None:
    assert [left_out(n, 0.2) for n in (1, 4, 5, 9, 10, 21)] == [0, 0, 1, 1, 2, 4]
    assert left_out(100, 0.29) == 29  # 28.999999999999996
    assert left_out(10, 0.0) == 0


@given(st.integers(1, 80), st.integers(0, 2**31))
def test_models_are_sorted_number_by_number(count: int, seed: int) -> None:
    """By a network, and beyond 64 models by the library."""
    models = torch.from_numpy(np.random.default_rng(seed).integers(-5, 5, (2, count, 3)).astype(np.float32))
    before = models.clone()
    assert torch.equal(torch.stack(in_order(models), 1), before.sort(1).values)
    assert torch.equal(models, before)


# --- laws, for every rule ---------------------------------------------------------------------------------------------

sizes = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def stack_of(seed: int, size: int, count: int = 10) -> tuple[ModelStack, list[int], Tensor]:
    generator = np.random.default_rng(seed)
    models = torch.from_numpy(generator.normal(0, generator.choice([1, 50]), (count, size)).astype(np.float32))
    stack = ModelStack(size, CPU)
    return stack, stack.add(models), models


def asked(rows: list[int], sizes: list[int], own_in_merge: bool, seed: int) -> list[RowMerge]:
    """Merges of so many received models each."""
    generator = np.random.default_rng(seed)
    found = []
    for size in sizes:
        mine, *others = (int(i) for i in generator.permutation(len(rows))[: size + 1])
        members = [mine, *others] if own_in_merge else others
        samples = tuple(10 + member for member in members)
        about = Merge(mine, tuple(members), own_in_merge, samples)
        found.append(RowMerge([rows[i] for i in members], rows[mine], about))
    return found


@pytest.mark.parametrize("rule", RULES)
@given(st.integers(0, 2**31), sizes, st.integers(1, 40), st.booleans(), st.sampled_from([1, 7, 64, 1000]))
def test_the_stack_merges_as_a_plain_loop_does(
    rule: str, seed: int, sizes: list[int], size: int, own_in_merge: bool, at_once: int
) -> None:
    """Law 1; and law 3, to the last bit: neither chunks nor company change anything."""
    stack, rows, models = stack_of(seed, size)
    merges = asked(rows, sizes, own_in_merge, seed)
    layout = Layout.stored({"w": torch.Size([size])}, {})
    merged = merge_rows(stack, layout, merging(rule), merges, at_once)
    numbers = models.double().numpy()
    for i, merge in enumerate(merges):
        about = merge.about
        members = [numbers[member] for member in about.senders]
        plain = PLAIN[rule](numbers[about.receiver], members, own_in_merge, about.samples or ())
        np.testing.assert_allclose(merged[i].numpy(), plain, rtol=1e-4, atol=1e-3)
        assert torch.equal(merge_rows(stack, layout, merging(rule), [merge])[0], merged[i])


@pytest.mark.parametrize("rule", RULES)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=6), sizes, st.booleans())
def test_equal_models_stay_exactly_equal(rule: str, values: list[float], sizes: list[int], own_in_merge: bool) -> None:
    """Law 7."""
    model, stack = torch.tensor(values), ModelStack(len(values), CPU)
    rows = stack.add(model.expand(10, -1))
    layout = Layout.stored({"w": model.shape}, {})
    merged = merge_rows(stack, layout, merging(rule), asked(rows, sizes, own_in_merge, 0))
    assert torch.equal(merged, model.expand(len(sizes), -1))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(-1000, 1000), st.integers(0, 2**31))
def test_weights_that_sum_to_one_keep_equal_models_equal(parts: list[int], value: int, seed: int) -> None:
    """Law 7, for a method's weights, and what they do with other models."""
    weights = tuple(part / sum(parts) for part in parts)
    about = Merge(0, tuple(range(len(parts))), True, weights=weights)
    equal = torch.full((len(parts), 3), value / 7)
    models = torch.from_numpy(np.random.default_rng(seed).normal(size=(len(parts), 3)).astype(np.float32))
    for rule in ("mean", "clipped"):
        assert torch.equal(merge_one(merging(rule), equal, about), equal[0])
    expected = torch.tensor(weights) @ models
    torch.testing.assert_close(merge_one(merging("mean"), models, about), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
@given(st.integers(0, 2**31), st.integers(1, 9))
def test_the_order_of_the_received_models_changes_nothing(rule: str, seed: int, count: int) -> None:
    """Rules that sort, to the last bit; others up to rounding."""
    stack, rows, _ = stack_of(seed, 7)
    (merge,) = asked(rows, [count], True, seed)
    order = [0, *(1 + int(i) for i in np.random.default_rng(seed + 1).permutation(count))]
    about, samples = merge.about, merge.about.samples
    assert samples is not None
    turned = Merge(about.receiver, tuple(about.senders[i] for i in order), True, tuple(samples[i] for i in order))
    layout = Layout.stored({"w": torch.Size([7])}, {})
    both = [merge, RowMerge([merge.rows[i] for i in order], merge.own, turned)]
    a, b = merge_rows(stack, layout, merging(rule), both)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)
    assert rule not in ("median", "trimmed") or torch.equal(a, b)


@pytest.mark.parametrize("rule", ["median", "trimmed", "clipped"])
def test_a_single_liar_moves_robust_rules_no_further_than_the_others_do(rule: str) -> None:
    """Nine honest models near zero and one that says a million: the mean is 100,000, and others stay near zero."""
    honest = torch.linspace(-1, 1, 9)[:, None].expand(-1, 4)
    models = torch.cat([honest, torch.full((1, 4), 1e6)])
    assert merge_one(merging("mean"), models, told(10)).min() > 9e4
    assert merge_one(merging(rule), models, told(10)).abs().max() <= 1
    assert math.isfinite(float(merge_one(merging(rule), models, told(10)).sum()))

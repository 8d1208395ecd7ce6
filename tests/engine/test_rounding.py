# SPDX-License-Identifier: Apache-2.0
"""What forms do to numbers: bounds of the error, and that no model depends on those beside it."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pens.engine.layout import Layout
from pens.engine.rounding import model_bytes, round_rows, round_tensors, to_int8
from pens.settings.schema import WireForm
from tests.network.models import any_model

FORMS: tuple[WireForm, ...] = get_args(WireForm)
HALF_STEP = 2.0**-11
SMALLEST_HALF = 2.0**-25
SMALLEST = 2.0**-149


@given(any_model())
def test_fp16_is_off_by_half_a_step_at_most(model: dict[str, Tensor]) -> None:
    for tensor in model.values():
        rounded = round_tensors(tensor[None], "fp16")[0].double()
        bound = (HALF_STEP * tensor.double().abs()).clamp(min=SMALLEST_HALF)
        assert bool(((rounded - tensor.double()).abs() <= bound).all())


@given(any_model())
def test_int8_is_off_by_half_a_scale_at_most(model: dict[str, Tensor]) -> None:
    for tensor in model.values():
        rounded = round_tensors(tensor[None], "int8")[0]
        if tensor.dim() < 2:
            assert torch.equal(rounded, tensor)
            continue
        scales = tensor.double().flatten(1).abs().amax(1) / 127
        off = (rounded.double() - tensor.double()).abs().flatten(1).amax(1)
        assert bool((off <= scales * (0.5 + 1e-4) + 127 * SMALLEST).all())


@given(any_model(), st.sampled_from(FORMS))
def test_what_is_finite_stays_finite(model: dict[str, Tensor], form: WireForm) -> None:
    assert all(bool(torch.isfinite(round_tensors(t[None], form)).all()) for t in model.values())


@given(any_model(), st.sampled_from(FORMS))
def test_rounding_twice_is_rounding_once_for_halves(model: dict[str, Tensor], form: WireForm) -> None:
    for tensor in model.values():
        once = round_tensors(tensor[None], form)
        if form != "int8":
            assert torch.equal(round_tensors(once, form), once)


def test_a_tensor_that_fp16_cannot_hold_stays_as_it_is_and_others_do_not() -> None:
    models = torch.tensor([[70_000.0, 0.1], [60_000.0, 0.1]])
    rounded = round_tensors(models, "fp16")
    assert torch.equal(rounded[0], models[0])
    assert not torch.equal(rounded[1], models[1])


def test_channels_of_zeros_stay_zeros() -> None:
    tensor = torch.tensor([[[0.0, 0.0], [1.0, -2.0]]])
    multiples, scales = to_int8(tensor)
    assert multiples.tolist() == [[[0, 0], [64, -127]]]
    assert scales[0, 0] == 1


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_rounded_each_for_itself(form: WireForm) -> None:
    layout = Layout.stored({"w": torch.Size([3, 2, 2]), "b": torch.Size([3])}, {"mean": torch.Size([2])})
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(4, layout.size, generator=generator) * torch.tensor([[1.0], [1e5], [1e-6], [3.0]])
    before = rows.clone()
    rounded = round_rows(rows, layout, form)
    assert torch.equal(rows, before)
    assert torch.equal(rounded, torch.cat([round_rows(row[None], layout, form) for row in rows]))
    assert torch.equal(rounded, rows) == (form == "fp32")
    for name, tensors in layout.tensors(rows).items():
        assert torch.equal(layout.tensors(rounded)[name], round_tensors(tensors, form))


def test_what_a_model_weighs() -> None:
    layout = Layout.stored({"w": torch.Size([3, 2, 2]), "b": torch.Size([3])}, {"mean": torch.Size([2])})
    assert [model_bytes(layout, form) for form in FORMS] == [4 * 17, 2 * 17, 12 + 4 * 3 + 4 * 5]

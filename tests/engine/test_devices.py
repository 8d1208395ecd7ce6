# SPDX-License-Identifier: Apache-2.0
"""Trials see no rounding of TF32, and leave PyTorch's settings as they were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from pens.engine.devices import exact_products, rounding_allowed
from pens.engine.functional import StackedNetwork


@pytest.fixture
def _rounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Products round to TF32, as on a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("_rounded")
def test_within_a_trial_products_are_exact_and_afterwards_as_before() -> None:
    seen: list[tuple[bool, bool]] = []

    class Looking(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            older = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32  # which must be in step
            seen.append(older)
            assert rounding_allowed() == older
            return super().forward(x)

    assert rounding_allowed() == (True, True)
    StackedNetwork(lambda: Looking(4, 3), torch.zeros(3, 4), 3)
    assert seen
    assert set(seen) == {(False, False)}
    assert rounding_allowed() == (True, True)
    with pytest.raises(RuntimeError), exact_products():
        raise RuntimeError
    assert rounding_allowed() == (True, True)

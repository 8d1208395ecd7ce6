# SPDX-License-Identifier: Apache-2.0
"""Results and run directories of networks with frozen parts hold whole models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import pens
from tests.conftest import TINY, tiny_dataset
from tests.engine.networks import TINY_NETWORKS


@pytest.mark.parametrize("name", ["backbone and head", "frozen behind an adapter"])
def test_a_results_models_are_whole_and_files_hold_what_is_frozen_once(name: str, tmp_path: Path) -> None:
    factory = TINY_NETWORKS[name]
    result = pens.run(
        TINY, methods="random", data=tiny_dataset(), model=factory, device="cpu", out=tmp_path / "run"
    ).runs[0]
    (path,) = tmp_path.rglob("models.safetensors")
    held = load_file(path)
    for peer in range(6):
        module = factory()
        module.load_state_dict(result.state_dict(peer))
        frozen = [n for n, p in module.named_parameters() if not p.requires_grad]
        assert all(torch.equal(result.state_dict(peer)[n], held[n][0]) for n in frozen)
    assert {len(held[n]) for n in frozen} == {1}
    sent = {"backbone and head": 39, "frozen behind an adapter": 30 + 12}[name]  # batch normalisation stays at home
    assert result.communication.model_bytes == 4 * sent
    again = pens.load(tmp_path / "run").runs[0]
    for key, value in result.state_dict(3).items():
        assert torch.equal(again.state_dict(3)[key], value)

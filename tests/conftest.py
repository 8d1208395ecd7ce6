# SPDX-License-Identifier: Apache-2.0
"""What all tests share: one thread, a small federation, and an engine to run it."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import nn

from pens.data.samples import Dataset, Samples
from pens.data.scenarios import Federation
from pens.partitions.rotation import rotated_federation
from pens.settings.tree import Settings

settings.register_profile("pens", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pens")
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # for commands that tests start
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton: its kernels run on the CPU


class TinyNet(nn.Module):
    """A network that trains in no time."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.out = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.conv(x).relu()
        logits: torch.Tensor = self.out(hidden.flatten(1))
        return logits


def tiny_dataset(samples: int = 200, seed: int = 0) -> Dataset:
    """Three classes of 4 × 4 images, one bright row each: rotation matters, and learning takes seconds."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, samples)
    x = generator.normal(0, 0.3, (samples, 1, 4, 4)).astype(np.float32)
    x[np.arange(samples), 0, y] += 1
    cut = samples * 4 // 5
    return Dataset("tiny", Samples(x[:cut], y[:cut]), Samples(x[cut:], y[cut:]))


TINY: dict[str, object] = {
    "peers": 6,
    "train_per_peer": 9,
    "val_per_peer": 5,
    "batch_size": 4,
    "epochs": 2,
    "lr": 0.01,
    "rounds": 5,
    "patience": 3,
    "n_peers": 2,
    "n_sampled": 3,
    "m": 1,
    "step1_rounds": 3,
    "step1_samplings": 2,
    "step1_epochs": 1,
    "central_rounds": 3,
}


@pytest.fixture
def tiny_settings() -> Settings:
    return Settings().replace(TINY)


@pytest.fixture
def tiny_federation(tiny_settings: Settings) -> Federation:
    return rotated_federation(tiny_dataset(), tiny_settings.scenario, seed=0)

# SPDX-License-Identifier: Apache-2.0
"""What a preset is, and the settings that several presets begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pens.settings.tree import Settings

PresetValues = dict[str, Any]
"""Settings by name."""


@dataclass(frozen=True)
class Preset:
    """Settings with a name and a purpose."""

    name: str
    about: str
    values: PresetValues
    source: str = ""
    """Where the values come from, and in what they differ from what was published; some lines."""

    @property
    def settings(self) -> Settings:
        return Settings().replace(self.values)


CIFAR10: PresetValues = {
    "dataset": "cifar-10",
    "peers": 100,
    "train_per_peer": 400,
    "val_per_peer": 100,
    "weight_decay": 1e-3,  # docs/decisions/0022
    "patience": 100,  # docs/decisions/0017
    "central_val_share": 0.1,  # docs/decisions/0006
}
FASHION: PresetValues = {
    "dataset": "fashion-mnist",
    "peers": 100,
    "train_per_peer": 500,
    "val_per_peer": 100,
    "weight_decay": 1e-3,
    "patience": 100,
    "central_val_share": 0.1,
}
LAPTOP: PresetValues = {
    "peers": 20,
    "train_per_peer": 100,
    "val_per_peer": 50,
    "test_samples": 1000,
    "rounds": 40,
    "patience": 15,
    "n_peers": 5,
    "n_sampled": 6,
    "step1_rounds": 8,
    "step1_samplings": 5,
    "step1_epochs": 3,
    "central_rounds": 12,
    "central_patience": 4,
}

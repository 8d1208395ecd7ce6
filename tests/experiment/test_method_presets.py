# SPDX-License-Identifier: Apache-2.0
"""Presets with the hyperparameters that methods were published with."""

from __future__ import annotations

import pytest

from pens.experiment.presets import preset
from pens.methods.fedavg import FedAvgSettings
from pens.methods.names import check_methods, participants

PUBLISHED: dict[str, tuple[tuple[str, ...], dict[str, object]]] = {
    "fedfomo": (
        ("fedfomo",),
        {"peers": 15, "rounds": 20, "n_peers": 4, "epochs": 5, "batch_size": 50, "optimizer": "sgd", "lr": 0.1},
    ),
    "ifca": (
        ("ifca",),
        {"train_per_peer": 500, "rounds": 600, "epochs": 5, "batch_size": 50, "optimizer": "sgd", "lr": 0.25},
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_of_methods_have_the_published_numbers_and_can_be_run(name: str) -> None:
    methods, published = PUBLISHED[name]
    settings = preset(name).settings
    assert settings.replace(published) == settings
    check_methods(settings, methods, participants(settings))
    scenario = settings.scenario
    assert scenario.peers * (scenario.train_per_peer + scenario.val_per_peer) <= 50_000  # images of CIFAR-10
    if name == "ifca":
        assert settings.section(FedAvgSettings).participation == 0.1

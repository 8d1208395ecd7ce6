# SPDX-License-Identifier: Apache-2.0
"""What many peers cost the host, counted in function calls and objects: per peer and update it must stay the same."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

from pens.data.samples import Samples
from pens.engine.batches import SampleStack
from pens.engine.functional import StackedNetwork
from pens.engine.optimizers import Recipe
from pens.engine.stack import ModelStack
from pens.engine.training import StackEngine
from pens.settings.tree import MethodName, Settings
from pens.simulation.simulator import Simulator
from tests.conftest import TINY, TinyNet
from tests.fakes import fake_simulation
from tests.simulations import CPU, run


def many(peers: int, **values: object) -> Settings:
    settings = {"peers": peers, "patience": 1000, "n_peers": 3, "n_sampled": 4, "step1_rounds": 2, "step1_samplings": 2}
    return Settings().replace({**TINY, **settings, **values})


def calls_of(simulator: Simulator) -> int:
    """Function calls until the run is over, in Python and in C."""
    count = 0

    def look(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(look)
    try:
        run(simulator)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("schedule", ["rounds", "async"])
@pytest.mark.parametrize("method", ["random", "oracle", "pens", "local"])
def test_the_work_per_event_does_not_grow_with_the_number_of_peers(method: MethodName, schedule: str) -> None:
    """An event: an update, or a model on its way. In async all send until the last is done, and the last of many is
    later, so that there are more of these per update."""
    per_event = []
    for peers in (40, 320):
        simulator, _ = fake_simulation(many(peers, schedule=schedule), method)
        calls = calls_of(simulator)
        per_event.append(calls / (simulator.learners.num_updates + sum(simulator.traffic.sent)))
    assert per_event[1] < 1.15 * per_event[0]


def test_state_grows_with_peers_and_not_with_their_square() -> None:
    sizes = []
    for peers in (40, 320):
        data, tensors = run(fake_simulation(many(peers, schedule="async"), "pens")[0], batches=30).state()
        sizes.append((len(str(data)) + sum(t.numel() for t in tensors.values())) / peers)
    assert sizes[1] < 1.25 * sizes[0]


def test_a_longer_run_keeps_no_more_objects() -> None:
    """Learning curves are columns."""
    counts = []
    for rounds in (5, 50):
        simulator = run(fake_simulation(many(20, rounds=rounds), "local")[0])
        assert len(simulator.learners.history) == 20 * (rounds + 1)
        gc.collect()
        counts.append(len(gc.get_objects()))
        del simulator
    assert abs(counts[1] - counts[0]) < 100


def test_rounds_need_three_models_per_peer_and_no_copy_of_them() -> None:
    simulator, _ = fake_simulation(many(50, rounds=10), "random")
    rows = simulator.learners.models._rows
    run(simulator)
    assert simulator.learners.models._rows is rows
    assert len(rows) == 150


def test_training_and_scoring_hold_one_chunk_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    holders = [Samples(generator.normal(size=(6, 1, 4, 4)).astype(np.float32), np.arange(6) % 3) for _ in range(30)]
    data = SampleStack(holders, CPU)
    network = StackedNetwork(TinyNet, data.x[0, :3], 3)
    recipe = Recipe("adam", 1e-3, 0.0, 0.0, 4)
    models_at_once: dict[bool, set[int]] = {True: set(), False: set()}
    logits = network.logits

    def look(
        tensors: dict[str, torch.Tensor], x: torch.Tensor, keys: torch.Tensor, train: bool, **told: Any
    ) -> torch.Tensor:
        models_at_once[train].add(len(x))
        return logits(tensors, x, keys, train, **told)

    monkeypatch.setattr(network, "logits", look)
    engine = StackEngine(network, 4 * (4 * network.bytes_per_sample + 20 * network.size))
    models = ModelStack(network.size, CPU)
    slots = list(range(30))
    trained = engine.train(torch.stack([network.new_row(s) for s in slots]), data, slots, slots, 1, recipe)
    engine.evaluate(models, models.add(trained.rows), data, slots)
    assert models_at_once == {True: {4, 2}, False: {5}}

# SPDX-License-Identifier: Apache-2.0
"""An engine that computes next to nothing: for what is to be said about the host's side, at any number of peers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import torch

from pens.data.samples import Samples
from pens.data.scenarios import Federation, PeerData
from pens.engine.layout import Layout
from pens.engine.training import Evaluation, Trained
from pens.experiment.wiring import build_simulator, first_models, new_executor, num_models
from pens.settings.tree import MethodName, Settings
from pens.simulation.simulator import Simulator
from tests.engines import EngineOfCalls, Evaluating, Training
from tests.methods.specs import spec_of

CPU = torch.device("cpu")


class FakeEngine(EngineOfCalls):
    """Models are two numbers: the cluster of the peer that trained it, and noise. A model of the same cluster scores
    better, and validation never gets better or worse than noise."""

    def __init__(self, clusters: Sequence[int]) -> None:
        self._clusters = torch.tensor(clusters, dtype=torch.float32)
        self.network = SimpleNamespace(
            size=2,
            stored=Layout.stored({"body.cluster": torch.Size([1]), "head.noise": torch.Size([1])}, {}),
            new_row=lambda seed: torch.tensor([0.5, seed % 1000 / 1000]),
        )
        self.batches: list[tuple[int, int]] = []
        """(peers, epochs) of each call of `train`."""
        self.evaluations: list[int] = []
        """Pairs of each call of `evaluate`."""

    def trained(self, call: Training) -> Trained:
        slots, keys, epochs, moments = call.slots, call.keys, call.epochs, call.moments
        self.batches.append((len(slots), epochs))
        noise = torch.tensor([key % 1_000_003 for key in keys]) / 1_000_003
        return Trained(torch.stack([self._clusters[list(slots)], noise], 1), np.ones(len(slots)), moments)

    def evaluated(self, call: Evaluating) -> Evaluation:
        slots = call.slots
        self.evaluations.append(len(call.rows))
        cluster, noise = call.models.read(call.rows).double().t()
        noise = (noise * 7919 + torch.tensor(slots) * 0.613) % 1
        loss = ((cluster - self._clusters[list(slots)]).abs() + noise / 2).numpy()
        return Evaluation(loss, (0.3 + noise / 3).numpy(), losses=loss[:, None])


def fake_federation(peers: int) -> Federation:
    """Two clusters of peers, all of which hold the same two samples."""
    samples = Samples(np.zeros((1, 1), np.float32), np.zeros(1, np.int64))
    holder = PeerData(samples, samples)
    clusters = tuple(2 * p // peers for p in range(peers))
    return Federation((holder,) * peers, clusters, (samples, samples), ("a", "b"))


def fake_simulation(settings: Settings, method: MethodName, seed: int = 0) -> tuple[Simulator, FakeEngine]:
    """A simulation of so many peers as the settings say, without training."""
    (simulator,), engine = fake_simulations(settings, method, [seed])
    return simulator, engine


def fake_simulations(
    settings: Settings, method: MethodName, seeds: Sequence[int], of: type[FakeEngine] = FakeEngine
) -> tuple[list[Simulator], FakeEngine]:
    """Several that share an engine, and its executor."""
    federation = fake_federation(settings.scenario.peers)
    engine = of(federation.tested_on)
    executor = new_executor(engine, federation.peers, CPU, len(seeds))
    simulators = []
    for seed in seeds:
        spec = spec_of(method, settings, seed)
        models = first_models(engine, spec.settings, seed, num_models(spec, len(federation.peers)))
        simulators.append(build_simulator(spec, federation, executor, models))
    return simulators, engine

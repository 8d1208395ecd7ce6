# SPDX-License-Identifier: Apache-2.0
"""Small simulations, built in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from pens.data.scenarios import Federation
from pens.engine.batches import SampleStack
from pens.engine.functional import StackedNetwork
from pens.engine.training import Engine, LoopEngine, StackEngine
from pens.experiment.wiring import build_simulator, first_models, new_executor, num_models
from pens.nets import NetFactory
from pens.partitions.rotation import rotated_federation
from pens.protocol.messages import Action, Event, PeerId
from pens.settings.tree import MethodName, Settings
from pens.simulation.simulator import Simulator, advance_together
from tests.conftest import TinyNet, tiny_dataset
from tests.methods.specs import spec_of

CPU = torch.device("cpu")


@dataclass
class Log:
    """Everything that peers saw and wanted."""

    entries: list[tuple[float, PeerId, Event, list[Action]]] = field(default_factory=list)

    def __call__(self, time: float, peer: PeerId, event: Event, actions: list[Action]) -> None:
        self.entries.append((time, peer, event, actions))

    def until(self, end: float) -> list[tuple[float, PeerId, Event, list[Action]]]:
        """Events run ahead of a run's end; this is what belongs to it."""
        return [entry for entry in self.entries if entry[0] <= end]


def engine_for(
    federation: Federation, memory_bytes: int = 1 << 28, stacked: bool = True, factory: NetFactory = TinyNet
) -> Engine:
    example = SampleStack([federation.peers[0].train], CPU).x[0, :3]
    network = StackedNetwork(factory, example, 3, stacked)
    return StackEngine(network, memory_bytes) if stacked else LoopEngine(network)


def simulation(
    settings: Settings,
    method: MethodName,
    *,
    seed: int = 0,
    federation: Federation | None = None,
    memory_bytes: int = 1 << 28,
    stacked: bool = True,
    log: Log | None = None,
    engine: Engine | None = None,
    factory: NetFactory = TinyNet,
) -> Simulator:
    """A simulation of the tiny data set, ready to run. `engine`: for another network than the tiny one."""
    federation = federation or rotated_federation(tiny_dataset(), settings.scenario, seed)
    engine = engine or engine_for(federation, memory_bytes, stacked, factory)
    spec = spec_of(method, settings, seed)
    held = spec.method.holders(federation, spec.settings)
    models = first_models(engine, spec.settings, seed, num_models(spec, len(federation.peers)))
    return build_simulator(spec, federation, new_executor(engine, held, CPU), models, trace=log)


def simulations(settings: Settings, method: MethodName, federations: Sequence[Federation]) -> list[Simulator]:
    """One per seed, to be computed together."""
    engine = engine_for(federations[0])
    specs = [spec_of(method, settings, seed) for seed in range(len(federations))]
    held = [s.method.holders(f, s.settings) for s, f in zip(specs, federations, strict=True)]
    executor = new_executor(engine, [peer for peers in held for peer in peers], CPU)
    found = []
    for seed, federation in enumerate(federations):
        models = first_models(engine, specs[seed].settings, seed, num_models(specs[seed], len(federation.peers)))
        first_slot = seed * len(held[0])
        found.append(build_simulator(specs[seed], federation, executor, models, first_slot))
    return found


def run(simulator: Simulator, batches: int | None = None) -> Simulator:
    """To the end, or for some batches."""
    done = 0
    while not simulator.is_over() and done != batches:
        advance_together([simulator])
        done += 1
    return simulator


def final_models(simulator: Simulator) -> torch.Tensor:
    return simulator.learners.models.read(simulator.learners.tested_rows())


def decisions(simulator: Simulator) -> dict[str, object]:
    """All that a run decided and counted, but for floating-point numbers."""
    learners = simulator.learners
    by_peer = learners.by_peer
    tallies = [learner.tally for learner in by_peer.values()]
    return {
        "selections": simulator.selections,
        "fallbacks": simulator.fallbacks,
        "traffic": (simulator.traffic.sent, simulator.traffic.received, simulator.traffic.refused),
        "merges": {peer: learner.merges for peer, learner in by_peer.items()},
        "tallies": [(t.selected, t.sampled, t.samplings) for t in tallies],
        "neighbours": simulator.neighbours(),
        "judged": simulator.asked(),
        "stops": {peer: learner.stop_time for peer, learner in by_peer.items()},
        "now": simulator.now,
        "updates": [(r.time, r.peer, r.version, r.merged) for r in learners.history.sorted()],
    }

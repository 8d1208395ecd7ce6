# SPDX-License-Identifier: Apache-2.0
"""Real peers with networks that need care train and decide as the simulator does (law 5)."""

from __future__ import annotations

import pytest
import torch

from pens.network.node.parts import NodeRules
from pens.network.transport.memory import MemoryNetwork
from pens.partitions.rotation import rotated_federation
from pens.protocol.messages import PeerId
from pens.settings.tree import Settings
from tests.conftest import TINY, tiny_dataset
from tests.engine.networks import TINY_NETWORKS
from tests.network.node.test_node import own, run_until
from tests.network.nodes import Cluster
from tests.network.virtual import run_virtually
from tests.simulations import Log, engine_for, run, simulation


@pytest.mark.parametrize("name", list(TINY_NETWORKS))
def test_nodes_end_with_the_models_of_the_simulator(name: str) -> None:
    settings = Settings().replace({**TINY, "schedule": "async", "rounds": 3})
    federation = rotated_federation(tiny_dataset(), settings.scenario, 0)
    simulated, real, factory = Log(), Log(), TINY_NETWORKS[name]
    simulator = run(simulation(settings, "pens", federation=federation, log=simulated, factory=factory))
    engine, everybody = engine_for(federation, factory=factory), len(federation.peers)
    network = MemoryNetwork(settings.timing.latency, posts=True)
    cluster = Cluster(settings, "pens", federation, 0, network, engines=dict.fromkeys(range(everybody), engine))
    nodes = [cluster.node(p, known=everybody, trace=real, rules=NodeRules(wait_for=5)) for p in range(everybody)]
    run_virtually(run_until(nodes, simulator.now + 1e-6))
    for p, node in enumerate(nodes):
        assert own(simulated, p, simulator.now) == own(real, p, simulator.now)
        learners, peer = simulator.learners, PeerId(p)
        mine, theirs = (them.models.read([them.by_peer[peer].best or 0]) for them in (node.learners, learners))
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)

"""Law 5: the simulator and in-memory nodes make the same decisions from the same events. And what a node must bear."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from pens.config import Method, Settings
from pens.data.scenarios import rotated_federation
from pens.messages import PeerId
from pens.network.memory import MemoryNetwork
from pens.network.node import Node, NodeRules
from tests.conftest import TINY, tiny_dataset
from tests.network.nodes import Cluster
from tests.network.virtual import run_virtually
from tests.simulations import Log, run, simulation

scenarios = st.fixed_dictionaries(
    {
        "n_peers": st.integers(1, 4),
        "n_sampled": st.integers(2, 4),
        "step1_rounds": st.integers(1, 3),
        "step1_samplings": st.integers(1, 3),
        "score_samples": st.sampled_from([None, 4]),
        "rounds": st.integers(1, 6),
        "patience": st.integers(1, 6),
        "jitter": st.floats(0.01, 0.5),
        "latency": st.floats(0.01, 0.4),
        "training_time": st.floats(0.1, 7.0),
        "init": st.sampled_from(["independent", "common"]),
        "own_in_merge": st.booleans(),
        "accept": st.sampled_from(["neighbours", "anyone"]),
        "admit": st.booleans(),
        "admission_trials": st.integers(1, 2),
    }
)


def tiny(**values: object) -> Settings:
    return Settings().replace({**TINY, "schedule": "async", **values})


async def run_until(nodes: list[Node], end: float) -> None:
    """All nodes, until that time."""
    stop = asyncio.Event()
    asyncio.get_running_loop().call_at(end, stop.set)
    await asyncio.gather(*(node.run(stop) for node in nodes))


@settings(max_examples=20)
@given(scenarios, st.sampled_from(["pens", "random"]), st.integers(0, 99))
def test_nodes_decide_as_the_simulator_does(values: dict[str, object], method: Method, seed: int) -> None:
    settings_ = tiny(**values)
    federation = rotated_federation(tiny_dataset(), settings_.scenario, seed)
    simulated, real = Log(), Log()
    simulator = run(simulation(settings_, method, seed=seed, federation=federation, log=simulated))
    cluster = Cluster(settings_, method, federation, seed, MemoryNetwork(settings_.timing.latency))
    everybody = len(federation.peers)
    nodes = [cluster.node(p, known=everybody, trace=real, rules=NodeRules(wait_for=5)) for p in range(everybody)]
    run_virtually(run_until(nodes, simulator.now + 1e-6))
    for p in range(everybody):
        assert own(simulated, p, simulator.now) == own(real, p, simulator.now)
    learners = simulator.learners
    if method == "pens":
        found = {n.peer.me: tuple(n.peer.neighbours) for n in nodes if n.peer.phase in ("gossiping", "finished")}
        assert {p: found[p] for p in simulator.selections} == simulator.neighbours()
    merges: dict[PeerId, Counter[PeerId]] = {n.peer.me: n._learners.merges[n.peer.me] for n in nodes}
    assert merges == learners.merges


def own(log: Log, peer: int, end: float) -> list[object]:
    return [(time, event, actions) for time, who, event, actions in log.entries if who == peer and time <= end]

# SPDX-License-Identifier: Apache-2.0
"""Law 5: the simulator and in-memory nodes make the same decisions from the same events. And what a node must bear."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pens.data.scenarios import Federation
from pens.errors import SettingsError
from pens.network.members.rules import MembershipRules
from pens.network.node.node import Node
from pens.network.node.parts import NodeRules
from pens.network.node.state import PeerFolder
from pens.network.transport.interface import Parcel, Reception
from pens.network.transport.memory import MemoryNetwork
from pens.partitions.rotation import rotated_federation
from pens.protocol.messages import Action, Chose, PeerId, Request, Send
from pens.settings.tree import MethodName, Settings
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
        "give_up": st.sampled_from([0.05, 0.5, 3.0]),
        "training_time": st.floats(0.1, 7.0),
        "init": st.sampled_from(["independent", "common"]),
        "own_in_merge": st.booleans(),
        "accept": st.sampled_from(["neighbours", "anyone"]),
        "admit": st.booleans(),
        "admission_trials": st.integers(1, 2),
        "validated": st.sampled_from(["trained", "merged", "either"]),
        "neighbours_by": st.sampled_from(["expected", "groups", "levels"]),
        "alone_rounds": st.integers(0, 2),
        "gate": st.sampled_from(["off", "on"]),
        "strikes": st.integers(1, 2),
        "score": st.sampled_from(["loss", "cosine-weights", "cosine-update", "l2"]),
    }
).map(lambda values: {**values, **({"init": "common"} if values["score"] == "cosine-update" else {})})


def tiny(**values: object) -> Settings:
    return Settings().replace({**TINY, "schedule": "async", **values})


async def run_until(nodes: list[Node], end: float) -> None:
    """All nodes, until that time."""
    stop = asyncio.Event()
    asyncio.get_running_loop().call_at(end, stop.set)
    await asyncio.gather(*(node.run(stop) for node in nodes))


OUT_OF_ORDER: dict[str, object] = {
    "n_peers": 1,
    "n_sampled": 2,
    "step1_rounds": 2,
    "step1_samplings": 2,
    "rounds": 1,
    "patience": 1,
    "latency": 0.29495825256990654,
    "training_time": 0.827516353019233,
    "jitter": 0.5,
    "give_up": 0.5,
    "score_samples": None,
    "init": "independent",
    "own_in_merge": False,
    "accept": "neighbours",
    "admit": False,
    "admission_trials": 1,
    "validated": "trained",
    "neighbours_by": "levels",
    "alone_rounds": 0,
    "gate": "off",
    "strikes": 1,
    "score": "loss",
}
"""The simulator computes some comparisons of a peer before earlier ones."""
JUDGED: dict[str, object] = {**OUT_OF_ORDER, "gate": "on", "rounds": 6, "patience": 6}
ONLY_BODIES: dict[str, object] = {**JUDGED, "n_sampled": 3, "step1_samplings": 3, "give_up": 0.05, "strikes": 2}
"""Real peers send bodies alone, and the heads of others' models are known in the simulator alone."""


@settings(max_examples=20)
@given(scenarios, st.sampled_from(["pens", "pens+", "random", "dac", "deprl", "facade", "fedfomo"]), st.integers(0, 99))
@example(OUT_OF_ORDER, "pens", 1)
@example({**JUDGED, "admit": True}, "pens", 2)
@example({**JUDGED, "init": "common"}, "random", 3)
@example(ONLY_BODIES, "deprl", 34)
@example({**JUDGED, "init": "common", "merge_only": ("conv",)}, "random", 3)
def test_nodes_decide_as_the_simulator_does(values: dict[str, object], method: MethodName, seed: int) -> None:
    settings_ = tiny(**values)
    federation = rotated_federation(tiny_dataset(), settings_.scenario, seed)
    simulated, real = Log(), Log()
    simulator = run(simulation(settings_, method, seed=seed, federation=federation, log=simulated))
    cluster = Cluster(settings_, method, federation, seed, MemoryNetwork(settings_.timing.latency, posts=True))
    everybody = len(federation.peers)
    nodes = [cluster.node(p, known=everybody, trace=real, rules=NodeRules(wait_for=5)) for p in range(everybody)]
    run_virtually(run_until(nodes, simulator.now + 1e-6))
    for p in range(everybody):
        assert own(simulated, p, simulator.now) == own(real, p, simulator.now)
    told = [(p, actions) for time, p, _, actions in real.entries if time <= simulator.now]
    chosen = {p: action.neighbours for p, actions in told for action in actions if isinstance(action, Chose)}
    assert chosen == simulator.neighbours()
    merges: dict[PeerId, Counter[PeerId]] = {n.peer.me: n.learners.by_peer[n.peer.me].merges for n in nodes}
    assert merges == {peer: learner.merges for peer, learner in simulator.learners.by_peer.items()}
    assert simulated.entries


def own(log: Log, peer: int, end: float) -> list[object]:
    return [(time, event, actions) for time, who, event, actions in log.entries if who == peer and time <= end]


def federation_of(settings_: Settings) -> Federation:
    return rotated_federation(tiny_dataset(), settings_.scenario, 0)


def cluster(method: MethodName = "pens", **values: object) -> Cluster:
    settings_ = tiny(**{"patience": 99, **values})
    return Cluster(settings_, method, federation_of(settings_), 0, MemoryNetwork(0.05), MembershipRules())


def test_who_starts_first_waits_for_the_others() -> None:
    it, log = cluster(rounds=2), Log()
    first = it.node(0, rules=NodeRules(wait_for=2), trace=log)
    second, third = it.node(1), it.node(2)

    async def live() -> None:
        stop = asyncio.Event()
        running = [asyncio.create_task(first.run(stop))]
        await asyncio.sleep(50)
        assert len(log.entries) == 1
        running += [asyncio.create_task(node.run(stop)) for node in (second, third)]
        await asyncio.sleep(10)
        assert first.peer.phase == "searching"
        stop.set()
        await asyncio.gather(*running)

    run_virtually(live())


def test_a_late_joiner_finds_its_cluster_and_is_found() -> None:
    it = cluster(rounds=60, n_peers=2, n_sampled=4, step1_rounds=4, step1_samplings=4, admit=True)
    it.settings = it.settings.replace({"admission_trials": 3})
    nodes = [it.node(p, rules=NodeRules(wait_for=4)) for p in range(6)]
    late, alike = nodes[5], {PeerId(3), PeerId(4)}

    async def live() -> None:
        stop = asyncio.Event()
        running = [asyncio.create_task(node.run(stop)) for node in nodes[:5]]
        while any(node.peer.phase != "gossiping" for node in nodes[:5]):
            await asyncio.sleep(1)
        assert all(late.peer.me not in node.peer.neighbours for node in nodes[:5])
        running.append(asyncio.create_task(late.run(stop)))
        while late.peer.phase != "finished":
            await asyncio.sleep(1)
        stop.set()
        await asyncio.gather(*running)

    run_virtually(live())
    assert late.peer.me in {p for node in nodes[3:5] for p in node.peer.neighbours}
    assert late.peer.me not in {p for node in nodes[:3] for p in node.peer.neighbours}
    assert set(late.peer.neighbours) <= alike


def test_what_is_no_model_is_refused_and_harms_nobody() -> None:
    it = cluster(rounds=3)
    nodes = [it.node(p) for p in range(4)]

    async def live() -> None:
        stop = asyncio.Event()
        running = [asyncio.create_task(node.run(stop)) for node in nodes]
        await asyncio.sleep(3)
        good = nodes[1].learning.payload
        assert good
        for bad in (b"", b"garbage", good[:-1], good + b"x", good[:-4] + b"\x00\x00\xc0\x7f", b"\xff" * len(good)):
            assert await nodes[0].exchange.take_model("peer-1", Parcel(2, bad)) is Reception.REFUSED
        assert await nodes[0].exchange.take_model("peer-0", Parcel(2, good)) is Reception.REFUSED
        assert nodes[0].exchange.wants("peer-1", 1 << 30) is Reception.OTHER_NETWORK
        assert nodes[0].counts.malformed == 6
        assert await nodes[0].exchange.take_model("peer-1", Parcel(2, good)) is Reception.TAKEN
        while any(node.peer.phase != "finished" for node in nodes):
            await asyncio.sleep(1)
        stop.set()
        await asyncio.gather(*running)

    run_virtually(live())


def test_a_full_node_says_busy_and_holds_no_more() -> None:
    it = cluster(n_sampled=4, training_time=1000.0)
    node = it.node(0, rules=NodeRules(wait_for=1, max_held=2), known=6)
    other = it.node(1)

    async def live() -> None:
        stop = asyncio.Event()
        running = [asyncio.create_task(n.run(stop)) for n in (node, other)]
        while node.peer.phase == "starting" or other.learning.payload is None:
            await asyncio.sleep(100)
        verdicts = [
            await node.exchange.take_model(f"peer-{p}", Parcel(2, other.learning.payload or b"")) for p in range(2, 6)
        ]
        assert verdicts[2:] == [Reception.BUSY, Reception.BUSY]
        assert node.learning.num_held == 2
        stop.set()
        await asyncio.gather(*running)

    run_virtually(live())


def test_a_member_that_vanishes_is_not_sent_to_and_the_rest_go_on() -> None:
    it, log = cluster("random", rounds=12, n_peers=2), Log()
    nodes = [it.node(p, rules=NodeRules(wait_for=3), trace=log if p == 0 else None) for p in range(4)]
    gone = nodes[3]

    async def live() -> None:
        stop = asyncio.Event()
        running = [asyncio.create_task(node.run(stop)) for node in nodes]
        await asyncio.sleep(4)
        it.network.vanish(gone.membership.me.address.port)
        running[3].cancel()
        loop = asyncio.get_running_loop()
        while nodes[0].membership.status("peer-3", loop.time()) in ("alive", None):
            await asyncio.sleep(1)
        seen = len(log.entries)
        while any(node.peer.phase != "finished" for node in nodes[:3]):
            await asyncio.sleep(1)
        later = [a for _, _, _, actions in log.entries[seen + 1 :] for a in actions if isinstance(a, Send)]
        assert later
        assert gone.peer.me not in {a.to for a in later}
        stop.set()
        await asyncio.gather(*running, return_exceptions=True)

    run_virtually(live())


def test_nodes_end_by_themselves_when_everybody_has_finished() -> None:
    it = cluster(rounds=2)
    nodes = [it.node(p, rules=NodeRules(wait_for=3, linger_s=5.0)) for p in range(4)]

    async def live() -> None:
        await asyncio.gather(*(node.run(asyncio.Event()) for node in nodes))

    run_virtually(live())
    assert all(node.peer.phase == "finished" for node in nodes)


def test_a_peer_that_fails_ends_its_node_and_what_is_on_disk_stays(tmp_path: Path) -> None:
    it = cluster("random", rounds=99)
    node = it.node(0, rules=NodeRules(wait_for=1), folder=PeerFolder(tmp_path))
    other = it.node(1)
    whole: list[bytes] = []

    async def live() -> None:
        stop = asyncio.Event()
        helper = asyncio.create_task(other.run(stop))
        running = asyncio.create_task(node.run(stop))
        while not (tmp_path / "checkpoint.safetensors").exists():
            await asyncio.sleep(0.1)
        whole.append((tmp_path / "checkpoint.safetensors").read_bytes())
        node.peer.handle = broken  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            await running
        stop.set()
        await helper

    def broken(event: object) -> list[Action]:
        raise ZeroDivisionError(event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("asyncio"), "error", lambda *_, **__: None)  # the loop tells of it, too
        run_virtually(live())
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == whole[0]


def test_a_job_that_fails_after_the_stop_is_told_and_what_is_on_disk_stays(tmp_path: Path) -> None:
    it = cluster("random", rounds=99)
    node, other = it.node(0, rules=NodeRules(wait_for=1), folder=PeerFolder(tmp_path)), it.node(1)
    whole: list[bytes] = []

    async def live() -> None:
        stop, failing = asyncio.Event(), asyncio.Event()

        async def fails(job: object) -> None:
            failing.set()
            await stop.wait()
            await asyncio.sleep(1.0)
            raise ZeroDivisionError(job)

        helper = asyncio.create_task(other.run(stop))
        running = asyncio.create_task(node.run(stop))
        while not (tmp_path / "checkpoint.safetensors").exists():
            await asyncio.sleep(0.1)
        node.queue._do = fails  # type: ignore[method-assign]
        await failing.wait()
        whole.append((tmp_path / "checkpoint.safetensors").read_bytes())
        stop.set()
        with pytest.raises(ZeroDivisionError):
            await running
        await helper

    run_virtually(live())
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == whole[0]


# --- state on disk ----------------------------------------------------------------------------------------------------


def test_a_restart_takes_neighbours_counts_and_received_models_along(tmp_path: Path) -> None:
    it, log = cluster(rounds=30, admit=True), Log()
    folder = PeerFolder(tmp_path)
    nodes = [it.node(p, rules=NodeRules(wait_for=5), folder=folder if p == 0 else None) for p in range(6)]

    async def live() -> None:
        stop, mine = asyncio.Event(), asyncio.Event()
        running = [asyncio.create_task(node.run(stop if node is not nodes[0] else mine)) for node in nodes]
        while nodes[0].peer.updates < 4 or nodes[0].peer.phase != "gossiping" or not nodes[0].learning.num_held:
            await asyncio.sleep(0.5)
        mine.set()
        await running[0]
        again = it.node(0, rules=NodeRules(wait_for=5), folder=folder, trace=log)
        task = asyncio.create_task(again.run(stop))
        await asyncio.sleep(0)
        while not log.entries:
            await asyncio.sleep(0.01)
        assert again.membership.me.incarnation > nodes[0].membership.me.incarnation
        assert again.counts.received >= nodes[0].counts.received > 0
        assert again.learners.by_peer[PeerId(0)].tally.sampled == nodes[0].learners.by_peer[PeerId(0)].tally.sampled
        assert set(again.peer.neighbours) >= set(nodes[0].peer.neighbours)
        assert again.peer.state()["draws"] >= nodes[0].peer.state()["draws"]
        while again.peer.phase != "finished":
            await asyncio.sleep(1)
        stop.set()
        await asyncio.gather(*running, task)

    run_virtually(live())
    told = json.loads((tmp_path / "result.json").read_text())
    assert told["final"]
    assert told["lives"] == 2
    assert set(told["neighbours"]) <= {f"peer-{p}" for p in range(1, 6)}
    history = pq.read_table(tmp_path / "history.parquet")
    assert history["version"].to_pylist() == list(range(1, len(history) + 1))
    assert history["time"].to_pylist() == sorted(history["time"].to_pylist())


def test_a_behaviour_that_requests_models_is_told_to_send() -> None:
    it: Any = None  # nothing of the node is asked for
    with pytest.raises(SettingsError, match=r"real peers only send them: return pens\.Send\(…\) in place of pens\.Req"):
        Node._act(it, Request((PeerId(1),)))

# SPDX-License-Identifier: Apache-2.0
"""Did joining help? The control is what the method `local` trains, and what a peer says of itself in the end."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from pens.learning.executor import Evaluate, Work, evaluate
from pens.network.node.control import AloneControl, Control
from pens.network.node.node import Node
from pens.network.node.parts import NodeRules
from pens.network.node.progress import Progress
from pens.network.node.state import PeerFolder
from pens.network.transport.memory import MemoryNetwork
from pens.partitions.rotation import rotated_federation
from pens.settings.tree import Settings
from pens.simulation.simulator import Simulator
from tests.conftest import TINY, tiny_dataset
from tests.network.nodes import Cluster
from tests.network.virtual import run_virtually
from tests.simulations import run, simulation


def cluster(**values: object) -> Cluster:
    settings = Settings().replace({**TINY, "schedule": "async", **values})
    federation = rotated_federation(tiny_dataset(), settings.scenario, 0)
    return Cluster(settings, "pens", federation, 0, MemoryNetwork(0.05))


async def trained(control: Control) -> AloneControl:
    while not (found := await control.update()):
        pass
    return found


def validated(simulator: Simulator, peer: int) -> float:
    found: list[float] = []

    def work() -> Work:
        answer = yield from evaluate(Evaluate("val", [simulator.learners.tested_rows()[peer]], [peer]))
        found.append(float(answer.accuracy[0]))

    simulator.learners.executor.carry_out([work()], [lambda: None])
    return found[0]


@pytest.mark.parametrize("train_first", [True, False])
@pytest.mark.parametrize("patience", [1, 99])
def test_the_control_is_what_local_training_comes_to(patience: int, train_first: bool) -> None:
    it = cluster(patience=patience, rounds=6, train_first=train_first)
    local = run(simulation(it.settings, "local", federation=it.federation))
    for me in (0, 5):
        node = it.node(me)
        before = node.learning.state()[0]
        alone = run_virtually(trained(Control(node.learning, it.control(me))))
        assert alone.val_accuracy == validated(local, me)
        assert alone.accuracy is not None
        assert alone.updates == sum(r.peer == me for r in local.learners.history.sorted())
        assert node.learning.state()[0] == before, "it leaves no trace in the peer's own learners"


def test_a_finished_peer_tells_what_joining_brought_before_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    it = cluster(rounds=3, patience=99)
    rules = NodeRules(wait_for=3, linger_s=5.0)
    nodes = [it.node(p, rules=rules, control=p == 0, folder=PeerFolder(tmp_path) if p == 0 else None) for p in range(4)]

    async def live(nodes: list[Node]) -> None:
        await asyncio.gather(*(node.run(asyncio.Event()) for node in nodes))

    with caplog.at_level(logging.INFO, "pens"):
        run_virtually(live(nodes))
    (compared,) = [vars(r) for r in caplog.records if r.message == "compared with training alone"]
    finished = [vars(r) for r in caplog.records if r.message == "finished"]
    assert len(finished) == 4
    first, kept = nodes[0].account.first_val_accuracy, nodes[0].learning.val_accuracy
    assert first is not None
    assert kept is not None
    assert any((f["first_val_accuracy"], f["kept_val_accuracy"]) == (round(first, 4), round(kept, 4)) for f in finished)
    expected = run_virtually(trained(Control(it.node(0).learning, it.control(0))))
    assert compared["alone_val_accuracy"] == round(expected.val_accuracy, 4)
    assert compared["kept_val_accuracy"] == round(kept, 4)
    told = json.loads((tmp_path / "result.json").read_text())
    assert told["alone"] == {
        "val_accuracy": expected.val_accuracy,
        "accuracy": expected.accuracy,
        "updates": expected.updates,
    }
    assert (told["val_accuracy"], told["first_val_accuracy"]) == (kept, first)
    assert nodes[0].status
    assert nodes[0].status.kept_val_accuracy == kept

    caplog.clear()
    again = it.node(0, rules=NodeRules(wait_for=0, linger_s=0.0), control=True, folder=PeerFolder(tmp_path))
    with caplog.at_level(logging.INFO, "pens"):
        run_virtually(live([again]))
    assert again.parts.alone == expected, "it is known already"
    assert not [r for r in caplog.records if r.message == "compared with training alone"]


def test_a_peer_tells_how_far_it_is_in_each_phase(caplog: pytest.LogCaptureFixture) -> None:
    it = cluster(rounds=40, patience=99, step1_rounds=8, step1_samplings=4)
    nodes = [it.node(p, rules=NodeRules(wait_for=3, linger_s=0.0)) for p in range(4)]

    async def live() -> None:
        first = asyncio.create_task(nodes[0].run(asyncio.Event()))
        await asyncio.sleep(25)
        await asyncio.gather(first, *(node.run(asyncio.Event()) for node in nodes[1:]))

    with caplog.at_level(logging.INFO, "pens"):
        run_virtually(live())
    told = [vars(r) for r in caplog.records if r.message == "progress"]
    waiting = [line for line in told if line["phase"] == "starting"]
    assert waiting[0]["trained"]
    assert (waiting[0]["members"], waiting[0]["wait_for"]) == (0, 3)
    searching = [line for line in told if line["phase"] == "searching"]
    assert searching
    for line in searching:
        done, _, most = line["samplings"].split()
        assert 0 < int(done) <= int(most) == 32
        assert line["members"] == 3
        assert line["received"] > 0
    gossiping = [line for line in told if line["phase"] == "gossiping"]
    assert gossiping
    assert all(line["updates"].endswith(" of 40") and "kept_val_accuracy" in line for line in gossiping)


def test_progress_is_told_soon_and_then_more_and_more_seldom() -> None:
    progress = Progress()
    told = [now for now in range(4000) if progress.is_due("searching", float(now))]
    assert told == [10, 30, 70, 150, 310, 630, *range(1230, 4000, 600)]
    assert not progress.is_due("gossiping", 4000.0)
    assert progress.is_due("gossiping", 4010.0)

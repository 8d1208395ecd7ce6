# SPDX-License-Identifier: Apache-2.0
"""What a node does about poor models, and what it tells of them: in its log, its status and its records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pens.network.members.rules import MembershipRules
from pens.network.node.node import Node
from pens.network.node.parts import NodeRules
from pens.network.node.state import PeerFolder
from pens.network.transport.codec import encode
from pens.network.transport.interface import Parcel, Reception
from pens.network.transport.memory import MemoryNetwork
from pens.partitions.rotation import rotated_federation
from pens.settings.tree import Settings
from pens.storage.files import read_json
from tests.conftest import TINY, tiny_dataset
from tests.network.nodes import Cluster
from tests.network.virtual import run_virtually


def cluster(**values: object) -> Cluster:
    settings = Settings().replace(
        {**TINY, "schedule": "async", "patience": 99, "n_peers": 1, "accept": "anyone", **values}
    )
    federation = rotated_federation(tiny_dataset(), settings.scenario, 0)
    return Cluster(settings, "random", federation, 0, MemoryNetwork(0.05), MembershipRules())


def times(node: Node, factor: float) -> bytes:
    """The node's own model, multiplied."""
    learning = node.learning
    (row,) = learning.learners.models.read([learning.learners.names.row(learning.current)])
    return encode({name: tensor * factor for name, tensor in learning._layout.tensors(row).items()}, "fp32")


def live(it: Cluster, folder: Path | None, sent: Callable[[Node, int], bytes]) -> tuple[Node, list[Reception]]:
    """Member 0, to the end of its updates; member 1 is honest, and member 2 sends it what `sent` says, all the time."""
    found: list[Reception] = []
    node = it.node(0, rules=NodeRules(wait_for=1), folder=PeerFolder(folder) if folder else None)
    honest = it.node(1)

    async def both() -> None:
        stop = asyncio.Event()
        running = [asyncio.create_task(each.run(stop)) for each in (node, honest)]
        version = 0
        while node.peer.phase != "finished":
            await asyncio.sleep(0.3)
            if node.learning.payload:
                version += 1
                payload = sent(node, version)
                found.append(await node.exchange.take_model("peer-2", Parcel(version, payload)))
        node.status = node.account.status()
        stop.set()
        await asyncio.gather(*running)

    run_virtually(both())
    return node, found


def test_whoever_sends_a_peer_its_own_models_is_dropped_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    it = cluster(rounds=5, gate="on", strikes=2, dropped_for=99)
    node, _ = live(it, tmp_path, lambda node, version: times(node, -1.0 if version % 2 else 1.0))
    (line,) = (record for record in caplog.records if record.getMessage() == "dropped")
    assert vars(line)["members"] == ["peer-2"]
    result = read_json(tmp_path / "result.json", "")
    assert result["trust"]["verdicts"]["echo"] in (2, 3)  # one more may have been saved by then
    assert [name for _, name in result["trust"]["dropped"]] == ["peer-2"]
    assert "dropped another peer, whose models kept hurting" in result["warnings"]
    assert result["refused"] > 0
    status = node.status
    assert status
    assert status.distrusted == ("peer-2",)
    assert status.trust
    assert status.trust.verdicts["echo"] in (2, 3)
    assert 2 not in node.learners.by_peer[node.peer.me].merges

    again = it.node(0, folder=PeerFolder(tmp_path))
    saved = PeerFolder(tmp_path).load()
    assert saved
    again._restore({**saved[0], "wake_in": None, "finished": False}, saved[1])
    assert again.account.trust == node.account.trust
    assert again.parts.versions.state() == node.parts.versions.state()


def test_an_update_that_is_undone_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where models are trusted, one × 10³⁰ makes a merge from which no training leads back."""
    node, _ = live(cluster(rounds=4), tmp_path, lambda node, _: times(node, 1e30))
    lines = [record for record in caplog.records if record.getMessage() == "update undone"]
    result = read_json(tmp_path / "result.json", "")
    assert node.status
    assert len(lines) == result["undone"] == node.status.undone > 0
    assert vars(lines[-1])["undone"] == result["undone"]
    assert result["trust"] is None


@pytest.mark.parametrize("made", ["1e30", "fp16 as fp32"])
def test_absurd_models_are_refused_before_the_merge(made: str) -> None:
    """Half-precision numbers under the name of single precision: each pair of them is read as one number, far too
    small, which no check of the form can tell."""

    def sent(node: Node, version: int) -> bytes:
        if made == "1e30":
            return times(node, 1e30)
        tensors = node.learning._layout.tensors(torch.randn(node.learning._layout.size, generator=torch.Generator()))
        halves = {
            name: torch.stack([t.half(), t.half()], -1).view(torch.float32)[..., 0] for name, t in tensors.items()
        }
        return encode({name: t.contiguous() for name, t in halves.items()}, "fp32")

    node, _ = live(cluster(rounds=4, gate="on", strikes=99), None, sent)
    assert node.account.trust
    assert node.account.trust.verdicts["absurd"] > 0
    assert node.account.num_undone == 0
    assert 2 not in node.learners.by_peer[node.peer.me].merges


def test_versions_that_do_not_advance_are_refused_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    it = cluster(rounds=99)
    node = it.node(0, rules=NodeRules(wait_for=0))
    found = []

    async def both() -> None:
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        while not node.learning.payload:
            await asyncio.sleep(0.1)
        good, other = node.learning.payload, times(node, 2.0)
        for version, payload in ((5, good), (5, good), (4, good), (5, other), (0, good), (1 << 60, good), (6, other)):
            found.append(await node.exchange.take_model("peer-2", Parcel(version, payload)))
        stop.set()
        await running

    run_virtually(both())
    assert [verdict is Reception.TAKEN for verdict in found] == [True, True, False, False, False, False, True]
    assert node.counts.outdated == 4
    assert len([record for record in caplog.records if record.getMessage() == "model refused"]) == 1

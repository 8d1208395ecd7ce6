# SPDX-License-Identifier: Apache-2.0
"""Members with another network than the others: noticed on both sides, counted, told now and then, and in /healthz."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from pens.engine.batches import SampleStack
from pens.engine.functional import StackedNetwork
from pens.engine.training import StackEngine
from pens.network.members.misfits import AGAIN_S, Misfits, Occasions
from pens.network.node.node import Node
from pens.network.node.parts import NodeRules
from pens.network.operating import peer_command
from pens.network.operating.monitor import Vitals
from pens.network.operating.peer_command import vitals
from pens.network.transport.interface import Parcel, Reception
from pens.network.transport.memory import MemoryNetwork
from pens.network.transport.terms import Part, Terms
from pens.network.transport.wire import decode_receipt, encode_receipt
from pens.partitions.rotation import rotated_federation
from pens.protocol.messages import PeerId
from pens.settings.tree import Settings
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.network.nodes import Cluster
from tests.network.virtual import run_virtually
from tests.simulations import CPU

ODD = 3  # the member that has another network


class FiveClasses(TinyNet):
    """The network of somebody who counts five classes where the others count three."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(12, 5)


def cluster() -> Cluster:
    changes = {"schedule": "async", "admit": True, "rounds": 3, "patience": 99, "n_peers": 1, "n_sampled": 2}
    settings = Settings().replace({**TINY, **changes})
    federation = rotated_federation(tiny_dataset(), settings.scenario, 0)
    example = SampleStack([federation.peers[0].train], CPU).x[0, :3]
    odd = StackEngine(StackedNetwork(FiveClasses, example, 5, True), 1 << 28)
    return Cluster(settings, "pens", federation, 0, MemoryNetwork(0.05), engines={ODD: odd})


def health(node: Node, monkeypatch: pytest.MonkeyPatch) -> Vitals:
    """As the monitor would tell it now, in virtual time."""
    monkeypatch.setattr(peer_command, "time", SimpleNamespace(monotonic=asyncio.get_running_loop().time))
    well: Any = SimpleNamespace(trouble=lambda now: None, degraded=lambda now: None, expiry=lambda now: {})
    return vitals(node, well)


def test_both_sides_notice_another_network_and_go_on_without_each_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = cluster()
    nodes = [it.node(p, rules=NodeRules(wait_for=3)) for p in range(4)]
    seen: dict[int, Vitals] = {}

    async def live() -> None:
        stop = asyncio.Event()
        running = [asyncio.create_task(node.run(stop)) for node in nodes]
        while any(node.peer.phase != "finished" for node in nodes[:ODD]):
            await asyncio.sleep(1)
        for p, node in enumerate(nodes):
            assert node.status
            seen[p] = health(node, monkeypatch)
        stop.set()
        await asyncio.gather(*running)

    run_virtually(live())
    odd = nodes[ODD]
    assert odd.learners.by_peer[odd.peer.me].merges.total() == 0
    assert (odd.peer.phase, list(odd.parts.reachable)) == ("searching", [])
    assert all(nodes[p].learners.by_peer[nodes[p].peer.me].merges.total() > 0 for p in range(3))
    for p, node in enumerate(nodes):
        assert 1 <= node.counts.other_network <= 9, "once it is known, nothing more is sent"
        assert node.counts.malformed == 0
        assert seen[p].refusals["another network"] == node.counts.other_network
    told = [r for r in caplog.records if r.message == "member has another network"]
    pairs = [(p, ODD) for p in range(3)] + [(ODD, p) for p in range(3)]
    assert len(told) == len(pairs), "each side once, however many models came"
    assert sorted(vars(r)["member"] for r in told) == ["peer-0", "peer-1", "peer-2", "peer-3", "peer-3", "peer-3"]
    assert all("data.num_classes" in vars(r)["remedy"] for r in told)
    for p in range(3):
        assert (seen[p].trouble, seen[p].misfits) == (None, 1)
        assert "peer-3: another network than ours" in str(seen[p].degraded)
    assert "the peer can use no other member's models: peer-0, peer-1, peer-2: another network" in str(
        seen[ODD].trouble
    )


def test_those_that_fit_end_without_waiting_for_one_that_does_not() -> None:
    it = cluster()
    nodes = [it.node(p, rules=NodeRules(wait_for=3, linger_s=5.0)) for p in range(4)]

    async def live() -> None:
        stop = asyncio.Event()
        odd = asyncio.create_task(nodes[ODD].run(stop))
        await asyncio.gather(*(node.run(asyncio.Event()) for node in nodes[:ODD]))
        stop.set()
        await odd

    run_virtually(live())
    assert all(node.peer.phase == "finished" for node in nodes[:ODD])


def test_members_whose_terms_differ_exchange_no_model_although_their_networks_are_equal(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of four order the classes otherwise. Each half works on its own, and each member is told of both others."""
    it = cluster()
    it.engines, it.method = {}, "random"
    nodes = [it.node(p, rules=NodeRules(wait_for=1)) for p in range(4)]
    for p, node in enumerate(nodes):
        classes = ["well", "ill"] if p < 2 else ["ill", "well"]
        node.parts.terms = node.agreement.terms = Terms(parts=(Part.of("outputs", classes), Part.of("seed", [str(p)])))
    seen: dict[int, Vitals] = {}

    async def live() -> None:
        stop = asyncio.Event()
        running = [asyncio.create_task(node.run(stop)) for node in nodes]
        while any(node.peer.phase != "finished" for node in nodes):
            await asyncio.sleep(1)
        for p, node in enumerate(nodes):
            seen[p] = health(node, monkeypatch)
        forged = Parcel(9, nodes[2].learning.payload or b"")
        assert await nodes[0].exchange.take_model("peer-2", forged) is Reception.OTHER_NETWORK
        assert await nodes[0].exchange.take_model("peer-1", forged) is Reception.TAKEN
        stop.set()
        await asyncio.gather(*running)

    run_virtually(live())
    for p, node in enumerate(nodes):
        fitting, (first, second) = p ^ 1, [q for q in range(4) if q // 2 != p // 2]
        merged = node.learners.by_peer[node.peer.me].merges
        assert merged[PeerId(fitting)] == merged.total() > 0
        assert seen[p].degraded == (
            f"peer-{first}, peer-{second}: does not fit (outputs: {'well' if p < 2 else 'ill'!r} here, "
            f"{'ill' if p < 2 else 'well'!r} there): `pens peer CONFIG.toml --check` on both sides compares all parts"
        )
        assert set(seen[p].why_apart) == {f"peer-{first}", f"peer-{second}"}
    assert seen[0].fingerprint == seen[1].fingerprint != seen[2].fingerprint == seen[3].fingerprint
    told = [vars(r)["member"] for r in caplog.records if r.message == "member does not fit"]
    assert sorted(told) == sorted(f"peer-{p}" for p in range(4) for _ in range(2)), "each side once"


def test_a_member_that_comes_back_with_the_right_network_is_no_misfit_any_more() -> None:
    it = cluster()
    node, good, odd = it.node(0, rules=NodeRules(wait_for=9)), it.node(1), it.node(ODD)

    async def live() -> None:
        stop = asyncio.Event()
        running = [asyncio.create_task(one.run(stop)) for one in (node, good, odd)]
        while not (good.learning.payload and odd.learning.payload):
            await asyncio.sleep(0.1)
        assert await node.exchange.take_model("peer-3", Parcel(1, odd.learning.payload)) is Reception.OTHER_NETWORK
        assert node.parts.misfits.among(["peer-3"])
        assert await node.exchange.take_model("peer-3", Parcel(1, good.learning.payload)) is Reception.TAKEN
        assert not node.parts.misfits.among(["peer-3"])
        assert odd.exchange.wants("peer-0", 1 << 30) is Reception.OTHER_NETWORK
        assert odd.parts.misfits.among(["peer-0"])
        stop.set()
        await asyncio.gather(*running)

    run_virtually(live())


@pytest.mark.parametrize("verdict", list(Reception))
def test_a_receipt_says_why(verdict: Reception) -> None:
    assert decode_receipt(encode_receipt(verdict)) is verdict


def test_peers_of_before_read_a_refusal() -> None:
    """The reason is a field of its own, which they skip."""
    assert encode_receipt(Reception.OTHER_NETWORK).startswith(encode_receipt(Reception.REFUSED))


def test_things_are_told_once_an_hour_for_each_member_and_never_fill_the_memory() -> None:
    occasions, misfits = Occasions(), Misfits()
    assert [occasions.is_due("network", "a", now) for now in (0.0, 5.0, AGAIN_S - 1, AGAIN_S)] == [
        True,
        False,
        False,
        True,
    ]
    assert occasions.is_due("network", "b", 1.0)
    assert occasions.is_due("malformed", "a", 1.0)
    for number in range(10_000):
        occasions.is_due("network", str(number), 2.0)
        misfits.add(str(number), "")
    assert len(occasions._logged) == len(misfits._why) == 4096
    assert misfits.among(["9999", "0"]) == {"9999": ""}

# SPDX-License-Identifier: Apache-2.0
"""Members that only call out take part: nodes over real connections, with training."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pens.network.certificates.authority import Authority
from pens.network.members.rules import MembershipRules
from pens.network.node.parts import NodeRules
from pens.network.transport.grpc_transport import GrpcTransport
from pens.network.transport.interface import Address
from pens.network.transport.memory import MemoryNetwork
from pens.network.transport.outward import Ways, is_attached
from pens.network.transport.terms import Terms
from pens.partitions.rotation import rotated_federation
from pens.protocol.messages import PeerId
from pens.settings.tree import Settings
from tests.conftest import TINY, tiny_dataset
from tests.network.federations import LOOPBACK, QUICK, credentials, make_federation
from tests.network.nodes import Cluster

NAMES = ("peer-0", "peer-1", "peer-2")


class GrpcNetwork(MemoryNetwork):
    """Real transports in the place of those in memory. All but the first can only call out."""

    def __init__(self, authority: Authority) -> None:
        super().__init__()
        self._authority = authority

    def join(self, name: str) -> Any:
        ways = Ways(relay=True) if name == NAMES[0] else Ways(reachable=False)
        return GrpcTransport(credentials(self._authority, name), LOOPBACK, QUICK, ways=ways)


def test_members_that_only_call_out_take_part_and_reach_each_other_through_a_relay(tmp_path: Path) -> None:
    """Of three members two listen nowhere. Every member merges models of both others."""
    changes = {"schedule": "async", "rounds": 4, "patience": 99, "n_peers": 2, "interval": 0.05, "training_time": 0.01}
    settings = Settings().replace({**TINY, **changes})
    federation = rotated_federation(tiny_dataset(), settings.scenario, 0)
    network = GrpcNetwork(make_federation(tmp_path, *NAMES))
    quick = MembershipRules(gossip_s=0.05)
    it = Cluster(settings, "random", federation, 0, network, quick)
    rules = NodeRules(wait_for=2, gossip_s=0.05)
    nodes = [it.node(p, rules=rules) for p in range(3)]
    nodes[0].parts.terms = nodes[0].agreement.terms = Terms(relays=True)

    async def live() -> None:
        stop = asyncio.Event()
        running = [asyncio.create_task(nodes[0].run(stop))]
        while not nodes[0].begun:
            await asyncio.sleep(0.01)
        known: Address = nodes[0].membership.me.address
        for node in nodes[1:]:
            node.membership.change([known], gossip_s=0.05, suspect_s=quick.suspect_s, drop_s=quick.drop_s)
            running.append(asyncio.create_task(node.run(stop)))
        while any(node.peer.phase != "finished" for node in nodes):
            await asyncio.sleep(0.02)
            assert not any(task.done() for task in running)
        stop.set()
        await asyncio.gather(*running)

    asyncio.run(asyncio.wait_for(live(), 60))
    assert [is_attached(node.membership.me.address) for node in nodes] == [False, True, True]
    for p, node in enumerate(nodes):
        merges = node.learners.by_peer[node.peer.me].merges
        assert all(merges[PeerId(other)] > 0 for other in range(3) if other != p), (p, merges, node.counts)

# SPDX-License-Identifier: Apache-2.0
"""Nodes in memory, built in one line."""

from __future__ import annotations

import asyncio
import functools
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from pens.data.samples import Samples
from pens.data.scenarios import Federation, PeerData
from pens.engine.batches import SampleStack
from pens.engine.training import Engine
from pens.experiment.wiring import first_models, new_executor
from pens.learning.learners import Learners
from pens.methods.spec import RunSpec
from pens.network.members.membership import Membership
from pens.network.members.reachable import Reachable
from pens.network.members.rules import MembershipRules
from pens.network.node.audit import AuditLog
from pens.network.node.control import ControlRules
from pens.network.node.learning import Bench, Learning
from pens.network.node.node import Node
from pens.network.node.parts import NodeRules
from pens.network.node.state import PeerFolder
from pens.network.transport.interface import Address, MemberRecord, Table
from pens.network.transport.memory import HOST, MemoryNetwork
from pens.protocol.messages import PeerId, Trace
from pens.protocol.peer import Peer
from pens.settings.tree import MethodName, Settings
from pens.simulation.links import Links
from pens.tasks.task import task_of
from tests.methods.specs import spec_of
from tests.network.members.notaries import FakeAuthority
from tests.simulations import CPU, engine_for

PATIENT = MembershipRules(suspect_s=1e9, drop_s=2e9)


class VirtualBench:
    """Work takes the time that a simulation's links say."""

    def __init__(self, links: Links) -> None:
        self._links = links

    async def do(self, work: Callable[[], None], epochs: int) -> None:
        work()
        if epochs:
            await asyncio.sleep(self._links.training_delay(epochs))


@dataclass
class Cluster:
    """Several nodes on one network in memory. Member 3 is peer number 3 of the federation."""

    settings: Settings
    method: MethodName
    federation: Federation
    seed: int = 0
    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    membership: MembershipRules = PATIENT
    authority: FakeAuthority = field(default_factory=lambda: FakeAuthority(trusting=True))
    engines: Mapping[int, Engine] = field(default_factory=dict)
    """Of members that have another network than the rest."""

    @property
    def spec(self) -> RunSpec:
        return spec_of(self.method, self.settings, self.seed)

    def bench(self) -> VirtualBench:
        timing, epochs = self.settings.timing, self.settings.training.epochs
        return VirtualBench(Links(timing.latency, timing.training_time, epochs))

    def node(
        self,
        me: int,
        *,
        rules: NodeRules | None = None,
        known: int = 0,
        bench: Bench | None = None,
        folder: PeerFolder | None = None,
        trace: Trace | None = None,
        control: bool = False,
        audit: AuditLog | None = None,
    ) -> Node:
        """A node, not started. `known`: it knows members 0, 1, … of a network whose members start in that order."""
        notary = self.authority.admit(record(me).name)
        membership = Membership(
            record(me), 1000 * self.seed + me, self.membership, notary, lambda: 0.0, [Address(HOST, 1)]
        )
        for other in range(known):
            signed = self.authority.admit(record(other).name).sign(record(other))
            membership.hear(Table((signed,)), 0.0, signed.name)
        spec = self.spec
        reachable = Reachable(lambda others: spec.method.reachable(PeerId(me), others, ()))
        data = self.federation.peers[me]
        sizes = len(data.train), len(data.val)
        plan = spec.plan(*sizes, num_peers=len(self.federation.peers))
        peer = Peer(PeerId(me), self.seed, plan, reachable)
        measure = task_of(self.settings).measure
        learning = Learning(PeerId(me), self._learners(me), bench or self.bench(), "fp32", self._test(me), measure)
        rules = rules or NodeRules()
        transport = self.network.join(record(me).name)
        compared = self.control(me) if control else None
        parts = (peer, reachable, learning, membership, transport, number, rules, folder)
        return Node(*parts, trace=trace, control=compared, audit=audit)

    def control(self, me: int) -> ControlRules:
        model = first_models(_engine(self.federation), self.spec.settings, self.seed, me + 1)[me]
        data = self.federation.peers[me]
        return ControlRules.of(self.settings, self.seed, model, len(data.train), len(data.val))

    def _learners(self, me: int) -> Learners:
        engine = self.engines.get(me) or _engine(self.federation)
        data: PeerData = self.federation.peers[me]
        models = first_models(engine, self.spec.settings, self.seed, me + 1)[me:]
        rules = self.spec.learning()
        return Learners(new_executor(engine, [data], CPU), 0, models, rules, [PeerId(me)])

    def _test(self, me: int) -> SampleStack:
        samples: Samples = self.federation.tests[self.federation.tested_on[me]]
        return SampleStack([samples], CPU)


@functools.cache
def _engine_for_shape(*shape: int) -> Engine:
    samples = Samples(np.zeros((3, *shape), np.float32), np.zeros(3, np.int64))
    return engine_for(Federation((PeerData(samples, samples),), (0,), (samples,), ("",)))


def _engine(federation: Federation) -> Engine:
    """One for all nodes: they take turns."""
    return _engine_for_shape(*federation.sample_shape)


def record(me: int) -> MemberRecord:
    return MemberRecord(f"peer-{me}", Address(HOST, me + 1), 1, 0)


def number(name: str) -> PeerId:
    told = name.removeprefix("peer-")
    return PeerId(int(told) if told.isdecimal() else zlib.crc32(name.encode()))

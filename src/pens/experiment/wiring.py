# SPDX-License-Identifier: Apache-2.0
"""Builds the parts of a run from its settings: the engine, first models, peers, and a simulator that is ready to begin.

Only this module tells a method the true clusters of the peers, for methods such as `oracle` that need them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from pens import rng
from pens.attacks.attack import attackers_of
from pens.data.samples import Samples
from pens.data.scenarios import UNKNOWN, Held, PeerData
from pens.engine.batches import SampleStack
from pens.engine.training import Engine, new_engine
from pens.errors import SettingsError
from pens.learning.executor import Executor
from pens.learning.learners import Learners
from pens.merging.trial import try_out
from pens.methods.method import Method
from pens.methods.reach import reach
from pens.methods.spec import RunSpec
from pens.nets import NetFactory, net_factory, with_sizes
from pens.protocol.messages import PeerId, Trace
from pens.protocol.peer import Peer
from pens.settings.schema import SettingsTree
from pens.settings.tree import RunSettings
from pens.simulation.links import Links
from pens.simulation.simulator import Schedule, Simulator
from pens.tasks.task import Task, outputs_of, task_of
from pens.tasks.trial import try_out_task
from pens.topologies.complete import Everybody
from pens.topologies.topology import Graph, build_graph
from pens.topologies.views import Followed, Others


def build_engine(
    settings: SettingsTree,
    num_outputs: int,
    shown: Samples,
    num_samples: int,
    device: torch.device,
    model: Callable[..., nn.Module] | None = None,
) -> Engine:
    """The engine that trains and evaluates models of one network.

    num_outputs: what the task's `num_outputs` says of all targets: the number of classes, in classification.
    model: makes the network, and is given its sizes where it needs them; None: the network of the setting `net`.
    shown: some samples of the data, for their shape.
    num_samples: training samples of all peers that are computed here; whether compiling pays depends on it.
    """
    shape = tuple(shown.x.shape[1:])
    factory: NetFactory = (
        with_sizes(model, shape, num_outputs)
        if model
        else net_factory(settings.model.net, settings.data.source, shape, num_outputs)
    )
    example = SampleStack([shown.take(slice(3))], device).x[0]
    num_visits = num_samples * settings.training.epochs * settings.gossip.rounds
    task = task_of(settings)
    outputs = outputs_of(task, num_outputs, shown.y.shape[1:])
    try_out_task(task, outputs.shape, shown.y)
    return new_engine(factory, example, outputs, settings.engine, num_visits, task)


def new_executor(
    engine: Engine, data: Sequence[PeerData], device: torch.device, runs: int = 1, task: Task | None = None
) -> Executor:
    """The executor that computes runs on these data. `runs`: how many runs share the data.

    task: says how much each training sample counts; None: all the same."""
    weights = [task.sample_weights(d.train.y) for d in data] if task else []
    weighted = [of for of in weights if of is not None]
    training = SampleStack([d.train for d in data], device, weighted or None)
    validation = SampleStack([d.val for d in data], device)
    return Executor(engine, training, validation, runs * len(data))


def try_merging(spec: RunSpec, engine: Engine, knows_samples: bool = True) -> None:
    """Refuse a run whose merge rule does not work with the engine's network; call it before anything is written."""
    if spec.method.needs_batch_norm and not engine.network.stored.batch_norm:
        raise SettingsError(
            f"{spec.method.name} keeps each peer's own batch normalisation, but {engine.network.name} has none: use a "
            "network with batch normalisation (net = digits-cnn-bn, or your own with nn.BatchNorm2d), or fedavg"
        )
    rules = spec.learning()
    try_out(rules.merging, engine.network.stored, rules.own_in_merge, spec.segments(), knows_samples=knows_samples)


def build_simulator(
    spec: RunSpec,
    federation: Held,
    executor: Executor,
    models: Tensor,
    first_slot: int = 0,
    trace: Trace | None = None,
) -> Simulator:
    """The simulator of one run, ready to begin. `models` [peer, size]: untrained, those of servers at the end."""
    num_servers, num_peers = spec.num_servers, len(federation.peers)
    attackers = None if spec.method.pools_data else attackers_of(spec.settings, num_peers)
    learners = Learners(executor, first_slot, models, spec.learning(), num_servers=num_servers, attackers=attackers)
    sizes = [(len(data.train), len(data.val)) for data in federation.peers[: len(models) - num_servers]]
    graph = build_graph(spec.settings, num_peers, spec.seed)
    counts = [(*size, 1 + len(graph[p])) for p, size in enumerate(sizes)]
    plans = {count: spec.plan(*count) for count in set(counts)}
    reachable = reached(spec.method, federation, graph, num_servers)
    peers = [Peer(PeerId(p), spec.seed, plans[count], reachable(PeerId(p)), p == 0) for p, count in enumerate(counts)]
    everybody = Others(range(num_peers + 1), PeerId(num_peers))
    for server in range(num_peers, num_peers + num_servers):
        peers.append(Peer(PeerId(server), spec.seed, spec.server_plan(num_peers), everybody, server == num_peers))
    return Simulator(peers, learners, _schedule(spec.settings), trace)


def num_models(spec: RunSpec, num_peers: int) -> int:
    """How many models a run holds: those that are trained, and those of servers."""
    return spec.method.num_learners(num_peers) + spec.num_servers


def reached(
    method: Method, federation: Held, graph: Graph | None = None, num_servers: int = 0
) -> Callable[[PeerId], Sequence[PeerId]]:
    """A function that gives the peers that a peer may talk to, by its method and the topology's graph, and beside them
    all servers. `graph` None: all peers can talk to each other.

    The results are views, so that 100,000 peers that may all talk to each other share one range instead of lists."""
    num_peers = len(federation.peers)
    servers = tuple(map(PeerId, range(num_peers, num_peers + num_servers)))
    if graph is not None and not isinstance(graph, Everybody):
        return partial(_reached_in, graph, method, federation, servers)
    all_peers, members = range(num_peers), federation.members()

    def of(me: PeerId) -> Sequence[PeerId]:
        cluster = UNKNOWN if federation.clusters is None else federation.clusters[me]
        same_cluster = () if cluster == UNKNOWN else Others(members[cluster], me)
        found = reach(method, me, Others(all_peers, me), same_cluster)
        return Followed(found, servers) if servers else found

    return of


def _reached_in(
    graph: Graph, method: Method, federation: Held, servers: tuple[PeerId, ...], me: PeerId
) -> Sequence[PeerId]:
    """The peers that a peer may talk to in a sparse graph: those next to it that its method allows, and all servers."""
    others, clusters = graph[me], federation.clusters
    known = clusters is not None and clusters[me] != UNKNOWN
    same_cluster = [other for other in others if clusters[other] == clusters[me]] if clusters and known else []
    allowed = set(reach(method, me, others, same_cluster))
    return (*(other for other in others if other in allowed), *servers)


def first_models(engine: Engine, settings: RunSettings, seed: int, count: int) -> Tensor:
    """The untrained models of all peers: independent ones, or one for all (section 6, table 1).  → [peer, size]"""
    different = 1 if settings.model.init == "common" else count
    return torch.stack([first_model(engine, settings, seed, PeerId(p)) for p in range(different)]).expand(count, -1)


def first_model(engine: Engine, settings: RunSettings, seed: int, peer: PeerId) -> Tensor:
    """The untrained model of one peer.  → [size]"""
    whose = () if settings.model.init == "common" else (peer,)
    return engine.network.new_row(rng.key(seed, "init", *whose))


def _schedule(settings: RunSettings) -> Schedule:
    """When peers wake and how long messages and training take, as the settings say."""
    timing = settings.timing
    links = Links(timing.latency, timing.training_time, settings.training.epochs)
    metronome = settings.gossip.schedule == "rounds"
    return Schedule(metronome, links, in_turn=metronome and settings.gossip.pull_from == "latest")

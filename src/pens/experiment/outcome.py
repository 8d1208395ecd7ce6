# SPDX-License-Identifier: Apache-2.0
"""Turns a finished simulation into a result: tests the models, and gathers what was counted.

This module reads test data and the true clusters. Nothing that trains or simulates does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from pens.data.scenarios import Federation
from pens.engine.batches import SampleStack
from pens.engine.devices import device_name, peak_memory_bytes
from pens.engine.rounding import model_bytes
from pens.engine.training import Engine, Evaluation
from pens.experiment.running import Running
from pens.inference.peer_models import PeerModels
from pens.measuring.metrics import neighbour_agreement
from pens.measuring.records import comparisons_of, history_of, pairs_of, undone_words
from pens.measuring.results import Communication, DataSizes, RunResult
from pens.measuring.trust import Dropped, TrustRecord, dropped_words, trust_of
from pens.methods.spec import RunSpec
from pens.protocol.messages import PeerId
from pens.simulation.simulator import Simulator
from pens.tasks.task import task_of
from pens.topologies.topology import Graph, topology_of

_MOST_LISTED = 2000  # peers: with more, lists of all that chose the same server take too much memory


def outcome(run: Running, spec: RunSpec, federation: Federation, engine: Engine, device: torch.device) -> RunResult:
    """Test each peer's model on its test set, and gather what the simulation counted."""
    simulator = run.simulator
    learners, traffic = simulator.learners, simulator.traffic
    neighbours = _by_server(simulator.neighbours()) if spec.num_servers else simulator.neighbours()
    attackers = learners.forger.attackers.peers if learners.forger.attackers else frozenset()
    honest = {peer: of for peer, of in neighbours.items() if peer not in attackers}
    tests = SampleStack(federation.tests, device)
    count = spec.method.num_learners(len(federation.peers))
    rows = learners.tested_rows()[:count]
    main, *others = (metric.measure for metric in task_of(spec.settings).metrics)
    if spec.method.pools_data:
        slots = list(range(len(federation.tests)))
        found = engine.evaluate(learners.models, rows * len(slots), tests, slots, further=bool(others))
        place = list(federation.tested_on)
        found = Evaluation(found.loss[place], found.score[place], {n: of[place] for n, of in found.further.items()})
    else:
        found = engine.evaluate(learners.models, rows, tests, federation.tested_on, further=bool(others))
    weight = model_bytes(engine.network.stored, spec.settings.gossip.wire, learners.travelling)
    tensors = {n: _on_host(t) for n, t in engine.network.state(learners.models.read(rows)).items()}
    return RunResult(
        method=run.method,
        seed=run.seed,
        score=found.score,
        metric=main,
        further={measure: found.further[measure.name] for measure in others if measure.name in found.further},
        clusters=federation.clusters,
        cluster_names=federation.cluster_names,
        agreement=neighbour_agreement(honest, federation.clusters, _reach_in_sparse_graph(spec, simulator)),
        neighbours={int(p): tuple(int(n) for n in ns) for p, ns in sorted(neighbours.items())},
        communication=_communication(simulator, slice(count), weight),
        peer_names=federation.peer_names,
        servers=_communication(simulator, slice(count, None), weight) if spec.num_servers else None,
        pairs=pairs_of(learners, range(count)),
        history=history_of(learners, traffic.received_at),
        models=PeerModels(tensors, federation.peer_names),
        rounds=simulator.now,
        mean_batch=learners.num_updates / learners.num_batches,
        seconds=run.seconds,
        warnings=tuple(_all_warnings(simulator)),
        device=device_name(device),
        peak_memory_bytes=peak_memory_bytes(device),
        comparisons=comparisons_of(learners.comparisons),
        data_sizes=_data_sizes(spec, federation),
        step1_epochs=_step1_epochs(simulator),
        tested_forms=learners.tested_forms()[:count],
        preparation=federation.preparation,
        attackers=tuple(sorted(attackers)),
        trust=_trust(simulator) if learners.rules.trust else None,
    )


def _trust(simulator: Simulator) -> TrustRecord:
    """What the honest peers found."""
    attackers = simulator.learners.forger.attackers
    honest = {me: of for me, of in simulator.learners.by_peer.items() if not attackers or me not in attackers.peers}
    dropped = [
        Dropped(time, peer, other)
        for time, peer, others in simulator.shunned
        for other in others
        if peer in honest and time <= simulator.now
    ]
    return trust_of(honest.values(), tuple(dropped))


def _by_server(chosen: Mapping[PeerId, tuple[PeerId, ...]]) -> dict[PeerId, tuple[PeerId, ...]]:
    """The peers that chose the same server as each peer, in place of the server itself; nobody where these would be too
    many to list."""
    if len(chosen) > _MOST_LISTED:
        return {}
    alike: dict[tuple[PeerId, ...], list[PeerId]] = {}
    for me, of in sorted(chosen.items()):
        alike.setdefault(of, []).append(me)
    return {me: tuple(peer for peer in alike[of] if peer != me) for me, of in chosen.items()}


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of all peers on the host; one that peers share stays one.  [peer, ...]"""
    return tensor[:1].cpu().expand(tensor.shape) if tensor.stride(0) == 0 else tensor.cpu()


def _reach_in_sparse_graph(spec: RunSpec, simulator: Simulator) -> Graph | None:
    """The peers that each peer can reach; None where the topology lets every peer reach all others."""
    return None if topology_of(spec.settings).is_complete else [peer.reachable for peer in simulator.peers]


def _communication(simulator: Simulator, some: slice, weight: int) -> Communication:
    """What some of the participants sent, received and merged. `weight`: bytes of a model on the wire."""
    learners, traffic = list(simulator.learners.by_peer.values()), simulator.traffic
    scored = np.array([learner.scored for learner in learners]) + simulator.asked()
    return Communication(
        sent=np.array(traffic.sent)[some],
        received=np.array(traffic.received)[some],
        refused=np.array(traffic.refused)[some],
        merged=np.array([learner.merges.total() for learner in learners])[some],
        scored=scored[some],
        model_bytes=weight,
    )


def _all_warnings(simulator: Simulator) -> list[str]:
    """The warnings of a run, for its result: undone updates, peers that found no neighbours by the rule, and peers that
    dropped others."""
    setbacks = [f"peer {peer}: {undone_words(count)}" for peer, count in sorted(simulator.learners.setbacks.items())]
    neighbours = simulator.neighbours()
    fallbacks = [f"peer {peer}: {_fallback(simulator, peer, neighbours[peer])}" for peer in sorted(simulator.fallbacks)]
    dropped: Counter[PeerId] = Counter()
    for time, peer, others in simulator.shunned:
        dropped[peer] += len(others) if time <= simulator.now else 0
    drops = [f"peer {peer}: {dropped_words(count)}" for peer, count in sorted(dropped.items()) if count]
    return setbacks + fallbacks + drops


def _fallback(simulator: Simulator, peer: PeerId, neighbours: Sequence[PeerId]) -> str:
    """What a peer did that found no neighbours by the rule, in words. `neighbours`: those that it had in the end."""
    admits, compared = simulator.peers[peer].plan.admit, bool(simulator.learners.by_peer[peer].tally.samplings)
    too_few = "heard too few others in step 1 to compare them" if admits else "heard nobody in step 1"
    why = "selected nobody more often than expected" if compared else too_few
    if simulator.selections[peer]:
        return f"{why}, so took those selected most often"
    if not admits:
        return f"{why}, so trained alone"
    later = f"has admitted {len(neighbours)}" if neighbours else "admitted nobody"
    return f"{why}, so began step 2 without neighbours, and {later}"


def _data_sizes(spec: RunSpec, federation: Federation) -> DataSizes:
    """How many training and validation samples each peer used."""
    train, val = zip(*spec.method.data_sizes(federation.untested, spec.settings), strict=True)
    return DataSizes(np.array(train), np.array(val))


def _step1_epochs(simulator: Simulator) -> tuple[int, ...] | None:
    """The local epochs of each peer in step 1; None where the method has no step 1."""
    searches = [peer.plan.search for peer in simulator.peers]
    return tuple(search.epochs for search in searches if search) if all(searches) else None

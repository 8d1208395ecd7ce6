# SPDX-License-Identifier: Apache-2.0
"""Settings → wiring → runs → run directory. The one place where all parts meet.

What only the experiment may know (which peer is in which cluster, the test data) is used here: to tell the oracle's
peers who is in their cluster, and to measure. Nothing below is handed it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pens import rng
from pens.calls import Workshop
from pens.config import (
    MethodName,
    RunSettings,
    Settings,
    parse_seeds,
)
from pens.curves import UpdateRecord
from pens.data.samples import Array, Dataset
from pens.data.scenarios import Federation, PeerData, check_own_data
from pens.data.sources import load_dataset
from pens.engine.batches import SampleStack
from pens.engine.devices import device_name, forget_peak_memory, peak_memory_bytes, resolve_device
from pens.engine.rounding import model_bytes
from pens.engine.training import Engine, new_engine
from pens.errors import Interrupted, RunDirError, SettingsError
from pens.learners import Learners
from pens.ledger import Ledger
from pens.links import Links
from pens.merging.rule import chosen
from pens.merging.trial import try_out
from pens.messages import PeerId
from pens.methods.method import Method, Participants
from pens.methods.names import (
    MethodLike,
    check_methods,
    find_method,
    lost,
    parse_methods,
    participants,
    references_of,
)
from pens.methods.spec import RunSpec
from pens.metrics import Traffic, neighbour_agreement
from pens.nets import NetFactory, net_factory
from pens.partitions.partition import build_federation, partition_of
from pens.peer import Peer
from pens.presets import default_methods, resolve_settings
from pens.processors import CpuShare
from pens.results import Communication, Comparisons, DataSizes, ExperimentResult, History, Pairs, RunResult
from pens.runlog import RULES, ExperimentDir, ExperimentRecord, RunDir
from pens.running import Running
from pens.simulator import Schedule, Simulator, Trace, advance_together
from pens.topologies.complete import Everybody
from pens.topologies.topology import Graph, build_graph, fewest_neighbours, topology_of
from pens.topology import Others

_PEERS_AT_ONCE = 2048  # fill a GPU: seeds beyond that would cost memory and save no time


class Observer:
    """Who watches an experiment. This one does not care: override what is of interest."""

    def wants(self, method: MethodName, seeds: Sequence[int]) -> bool:
        """Whether these runs, which are computed together, shall begin or go on; else they are left out."""
        return True

    def started(self, method: MethodName, seed: int) -> None:
        """A run begins, or goes on."""

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        """A window of virtual time is over. May raise `Interrupted`: the run is saved, and stops."""

    def warned(self, method: MethodName, seed: int, message: str) -> None:
        """Something happened that the user should know."""

    def finished(self, result: RunResult) -> None:
        """A run is complete."""


def run(
    settings: Settings | str | Path | Mapping[str, Any] = "digits",
    *,
    methods: str | Method | type[Method] | Iterable[MethodLike] | None = None,
    seeds: int | Sequence[int] = 1,
    overrides: Mapping[str, Any] | None = None,
    model: Callable[[], nn.Module] | None = None,
    data: Dataset | Federation | None = None,
    data_dir: Path | str | None = None,
    device: str = "auto",
    out: Path | str | None = None,
    observer: Observer | None = None,
) -> ExperimentResult:
    """Run methods × seeds of one setting and return what was found.

    settings:   a preset's name, a .toml file, a mapping of settings, or Settings
    methods:    names, or own ones: file.py:Name, module:Name, a class or an instance of pens.Method. None: local,
                random, pens, and, where the data have clusters, oracle
    overrides:  settings to change, {"peers": 8, "n_sampled": 3}
    model:      makes the network, in place of the setting `net`: an nn.Module class, or a function without arguments
    data:       a Dataset to share out as the scenario says, or a whole Federation
    out:        a new or empty folder for the run directory; None keeps results in memory
    """
    names = () if methods is None else parse_methods(methods)  # before the settings, which may have their sections
    resolved = resolve_settings(settings).replace(overrides or {})
    record = ExperimentRecord(
        settings=resolved,
        methods=names or default_methods(_smallest_cluster(resolved, data)),
        seeds=parse_seeds(seeds),
        own_parts=tuple(name for name, part in (("model", model), ("data", data)) if part is not None),
        data_dir=str(Path(data_dir).resolve()) if data_dir else None,
        references=references_of(names),
    )
    experiment = Experiment(record, device=device, model=model, data=data)
    experiment.prepare()
    folder = ExperimentDir(Path(out)) if out else None
    if folder:
        folder.create(record)
    return experiment.run(folder, observer or Observer())


def resume(
    folder: Path | str,
    *,
    methods: Iterable[MethodLike] = (),
    model: Callable[[], nn.Module] | None = None,
    data: Dataset | Federation | None = None,
    data_dir: Path | str | None = None,
    device: str = "auto",
    observer: Observer | None = None,
) -> ExperimentResult:
    """Continue an experiment that was stopped, to the same result as if it had not been.

    methods:  own ones that only Python has, and a record cannot say where they are
    """
    given = parse_methods(own) if (own := list(methods)) else ()
    directory = ExperimentDir(Path(folder))
    record = directory.read()
    if record.real_peers:
        raise RunDirError(
            f"{folder} was composed from real peers' records: there is nothing to resume, restart the peers"
        )
    if record.rules != RULES:
        raise RunDirError(
            f"{folder} was begun by a version of pens with other rules: pens show and pens report still read it, "
            "but it has to be run anew, in another folder"
        )
    for name, part in (("model", model), ("data", data)):
        if name not in record.own_parts and part is not None:
            raise RunDirError(f"{folder} was not run with an own {name}: leave it out to resume")
        if name in record.own_parts and part is None:
            raise RunDirError(
                f"{folder} was run with an own {name}: resume it from Python, pens.resume({str(folder)!r}, {name}=…)"
            )
    for name, why in lost((name for name in record.methods if name not in given), record.references).items():
        raise RunDirError(
            f"{folder} was run with the method {name!r}, which is not there any more: {why}. "
            f"From Python, it can be given: pens.resume({str(folder)!r}, methods=[…])"
        )
    experiment = Experiment(
        record, device=device, model=model, data=data, data_dir=Path(data_dir) if data_dir else None
    )
    experiment.prepare()
    return experiment.run(directory, observer or Observer())


@dataclass
class Experiment:
    """Methods × seeds of one setting."""

    record: ExperimentRecord
    device: str = "auto"
    model: Callable[[], nn.Module] | None = None
    data: Dataset | Federation | None = None
    data_dir: Path | None = None
    _torch_device: torch.device = field(init=False)
    _dataset: Dataset = field(init=False)
    _engine: Engine = field(init=False)
    _federations: dict[int, Federation] = field(init=False, default_factory=dict)
    """Who holds what, for the seeds that are computed together."""
    _workshop: Workshop | None = field(init=False, default=None)
    """For their peers, whatever the method."""
    _untrained: dict[int, Tensor] = field(init=False, default_factory=dict)
    _cpu_share: CpuShare = field(init=False, default_factory=lambda: CpuShare())

    def prepare(self) -> None:
        """Refuse what cannot work, before anything is written or computed."""
        settings, methods = self.record.settings, self.record.methods
        self._torch_device = resolve_device(self.device)
        if self.model is not None and (isinstance(self.model, nn.Module) or not callable(self.model)):
            raise SettingsError(
                f"model is {type(self.model).__name__}, one network, but each peer needs a fresh one: "
                "pass its class, or a function that makes it"
            )
        if self.data is not None and not isinstance(self.data, Dataset | Federation):
            raise SettingsError(f"data is a {type(self.data).__name__}: pass a pens.Dataset or a pens.Federation")
        if self.data is not None:
            check_own_data(self.data)
        smallest = _smallest_cluster(settings, self.data)
        if isinstance(self.data, Federation):
            peers = len(self.data.peers)
            fewest = fewest_neighbours(settings, peers, self.record.seeds)
            check_methods(settings, methods, Participants(peers, smallest, fewest))
        else:
            partition_of(settings).check(settings)
            check_methods(settings, methods, participants(settings, self.record.seeds))
            folder = self.data_dir or (Path(self.record.data_dir) if self.record.data_dir else None)
            self._dataset = self.data or load_dataset(settings.scenario.dataset, folder)
        self._engine = self._make_engine(self.federation(self.record.seeds[0]))
        try_out(chosen(settings), self._engine.network.stored, settings.gossip.own_in_merge)

    def federation(self, seed: int) -> Federation:
        """Who holds what, for one seed."""
        if isinstance(self.data, Federation):
            return self.data
        if seed not in self._federations:
            self._federations[seed] = build_federation(self._dataset, self.record.settings, seed)
        return self._federations[seed]

    def _make_engine(self, federation: Federation) -> Engine:
        settings = self.record.settings
        classes = federation.num_classes if isinstance(self.data, Federation) else self._dataset.num_classes
        factory: NetFactory = self.model or net_factory(
            settings.model.net, settings.scenario.dataset, federation.sample_shape, classes
        )
        some = federation.peers[0]
        example = SampleStack([some.train if len(some.train) > 2 else federation.tests[0]], self._torch_device).x[0, :3]
        samples = sum(len(peer.train) for peer in federation.peers)
        num_visits = samples * settings.training.epochs * settings.gossip.rounds
        return new_engine(factory, example, classes, settings.engine, num_visits)

    def run(self, folder: ExperimentDir | None, observer: Observer) -> ExperimentResult:
        """Run what is missing; keep what is complete."""
        results: list[RunResult] = []
        for seeds in self._seeds_at_once():
            self._forget_others(seeds)
            for method in self.record.methods:
                dirs = {seed: folder.run(method, seed) if folder else None for seed in seeds}
                for run_dir in dirs.values():
                    if run_dir and run_dir.is_complete():
                        results.append(run_dir.read())
                        observer.finished(results[-1])
                missing = {seed: run_dir for seed, run_dir in dirs.items() if not (run_dir and run_dir.is_complete())}
                if missing and observer.wants(method, tuple(missing)):
                    results += self._run_together(method, seeds, missing, observer)
        results.sort(key=lambda r: (self.record.methods.index(r.method), self.record.seeds.index(r.seed)))
        return ExperimentResult(self.record.settings, tuple(results), folder.folder if folder else None)

    def _seeds_at_once(self) -> Iterator[tuple[int, ...]]:
        seeds, count = self.record.seeds, self.record.settings.engine.seeds_at_once
        peers = len(self.federation(seeds[0]).peers)
        count = count or (max(1, _PEERS_AT_ONCE // peers) if self._torch_device.type == "cuda" else 1)
        return (seeds[start : start + count] for start in range(0, len(seeds), count))

    def _forget_others(self, seeds: Sequence[int]) -> None:
        self._federations = {seed: f for seed, f in self._federations.items() if seed in seeds}
        self._workshop, self._untrained = None, {}

    def _run_together(
        self, method: MethodName, seeds: Sequence[int], missing: Mapping[int, RunDir | None], observer: Observer
    ) -> list[RunResult]:
        """One method with several of the seeds, as one stack."""
        forget_peak_memory(self._torch_device)
        last = time.perf_counter()
        runs = self._begin(method, seeds, missing, observer)
        results: list[RunResult] = []
        try:
            while runs := self._those_not_over(runs, results, observer):
                with _collector_paused(), self._cpu_share.measured():
                    advance_together([run.simulator for run in runs])
                last, spent = time.perf_counter(), time.perf_counter() - last
                for run in runs:
                    run.seconds += spent / len(runs)
                    run.tell_setbacks(partial(observer.warned, method, run.seed))
                    run.save_if_due(self.record.settings.engine.checkpoint_every_s)
                if self._torch_device.type == "cpu" and (complaint := self._cpu_share.complaint()):
                    observer.warned(method, runs[0].seed, complaint)
                for run in runs:
                    observer.progressed(method, run.seed, run.simulator.progress())
        except Interrupted:
            for run in runs:
                run.save()
            raise
        return results

    def _begin(
        self, method: MethodName, seeds: Sequence[int], missing: Mapping[int, RunDir | None], observer: Observer
    ) -> list[Running]:
        workshop, first_slots = self._place(method, seeds)
        runs = []
        for seed, run_dir in missing.items():
            observer.started(method, seed)
            spec, federation = self._spec(method, seed), self.federation(seed)
            models = self._first_models(spec, len(federation.peers))
            simulator = build_simulator(spec, federation, workshop, models, first_slots[seed])
            runs.append(Running(method, seed, simulator, run_dir))
            runs[-1].resume()
        return runs

    def _place(self, method: MethodName, seeds: Sequence[int]) -> tuple[Workshop, dict[int, int]]:
        """Where several seeds are computed, and the slot of each one's first peer. Samples are brought to the device
        once, for all methods; those of an own federation, which is the same for all seeds, only once at all."""
        spec = self._spec(method, seeds[0])
        held = {id(f): spec.method.holders(f, spec.settings) for f in map(self.federation, seeds)}
        starts = dict(zip(held, np.cumsum([0, *map(len, held.values())]).tolist(), strict=False))
        workshop = self._workshop if not spec.method.pools_data else None
        if workshop is None:
            data = [peer for peers in held.values() for peer in peers]
            workshop = new_workshop(self._engine, data, self._torch_device, len(seeds) // len(held))
        if not spec.method.pools_data:
            self._workshop = workshop
        return workshop, {seed: starts[id(self.federation(seed))] for seed in seeds}

    def _spec(self, method: MethodName, seed: int) -> RunSpec:
        return RunSpec.of(find_method(method), self.record.settings, seed)

    def _first_models(self, spec: RunSpec, peers: int) -> Tensor:
        """Made once for all methods."""
        seed, count = spec.seed, spec.method.num_learners(peers)
        if len(self.record.methods) == 1:
            return first_models(self._engine, self.record.settings, seed, count)
        if len(self._untrained.get(seed, ())) < count:
            self._untrained[seed] = first_models(self._engine, self.record.settings, seed, count)
        return self._untrained[seed][:count]

    def _those_not_over(self, runs: list[Running], results: list[RunResult], observer: Observer) -> list[Running]:
        """What goes on; the others become results."""
        for run in runs:
            if run.simulator.is_over():
                results.append(self._complete(run))
                observer.finished(results[-1])
        return [run for run in runs if not run.simulator.is_over()]

    def _complete(self, run: Running) -> RunResult:
        result = self._measure(run)
        run.simulator.learners.let_go()
        if not run.run_dir:
            return result
        run.run_dir.save(result)
        return replace(result, models=run.run_dir.models())

    def _measure(self, run: Running) -> RunResult:
        simulator, federation, spec = run.simulator, self.federation(run.seed), self._spec(run.method, run.seed)
        learners, traffic, neighbours = simulator.learners, simulator.traffic, simulator.neighbours()
        tests = SampleStack(federation.tests, self._torch_device)
        rows = learners.tested_rows()
        if spec.method.pools_data:
            slots = list(range(len(federation.tests)))
            per_test = self._engine.evaluate(learners.models, rows * len(slots), tests, slots).accuracy
            accuracy = per_test[list(federation.tested_on)]
        else:
            accuracy = self._engine.evaluate(learners.models, rows, tests, federation.tested_on).accuracy
        tensors = {n: t.cpu() for n, t in self._engine.network.state(learners.models.read(rows)).items()}
        return RunResult(
            method=run.method,
            seed=run.seed,
            accuracy=accuracy,
            clusters=federation.clusters,
            cluster_names=federation.cluster_names,
            agreement=neighbour_agreement(neighbours, federation.clusters, _reach_in_sparse_graph(spec, simulator)),
            neighbours={int(p): tuple(int(n) for n in ns) for p, ns in sorted(neighbours.items())},
            communication=Communication(
                sent=np.array(traffic.sent),
                received=np.array(traffic.received),
                refused=np.array(traffic.refused),
                merged=np.array([m.total() for m in learners.merges.values()]),
                scored=np.array(list(learners.scored.values())) + simulator.asked(),
                model_bytes=model_bytes(self._engine.network.stored, self.record.settings.gossip.wire),
            ),
            pairs=_pairs(learners),
            history=_history(learners, traffic),
            models=tensors,
            rounds=simulator.now,
            mean_batch=learners.num_updates / learners.num_batches,
            seconds=run.seconds,
            warnings=tuple(_all_warnings(simulator)),
            device=device_name(self._torch_device),
            peak_memory_bytes=peak_memory_bytes(self._torch_device),
            comparisons=_comparisons(learners.comparisons),
            data_sizes=_data_sizes(spec, federation),
            step1_epochs=_step1_epochs(simulator),
        )


# --- wiring -----------------------------------------------------------------------------------------------------------


def new_workshop(engine: Engine, data: Sequence[PeerData], device: torch.device, runs: int = 1) -> Workshop:
    """Where runs on these data are computed; `runs`: how many of them on the same."""
    training, validation = SampleStack([d.train for d in data], device), SampleStack([d.val for d in data], device)
    return Workshop(engine, training, validation, runs * len(data))


def build_simulator(
    spec: RunSpec,
    federation: Federation,
    workshop: Workshop,
    models: Tensor,
    first_slot: int = 0,
    trace: Trace | None = None,
) -> Simulator:
    """One run, ready to begin. `models` [peer, size]: untrained."""
    learners = Learners(workshop, first_slot, models, spec.learning())
    sizes = [(len(data.train), len(data.val)) for data in federation.peers[: len(models)]]
    graph = build_graph(spec.settings, len(federation.peers), spec.seed)
    counts = [(*size, 1 + len(graph[p])) for p, size in enumerate(sizes)]
    plans = {count: spec.plan(*count) for count in set(counts)}
    reach = reached(spec.method, federation, graph)
    peers = [Peer(PeerId(p), spec.seed, plans[count], reach(PeerId(p))) for p, count in enumerate(counts)]
    return Simulator(peers, learners, _schedule(spec.settings), trace)


def reached(method: Method, federation: Federation, graph: Graph | None = None) -> Callable[[PeerId], Sequence[PeerId]]:
    """Whom each peer may talk to, by its method and the topology's graph; None: everybody can talk to everybody.

    Views: 100,000 peers that may all talk to each other hold one range, not lists."""
    if graph is not None and not isinstance(graph, Everybody):
        return partial(_reached_in, graph, method, federation.clusters)
    everybody, members = range(len(federation.peers)), federation.members()

    def of(me: PeerId) -> Sequence[PeerId]:
        alike = Others(members[federation.clusters[me]], me) if federation.clusters is not None else ()
        return method.reachable(me, Others(everybody, me), alike)

    return of


def _reached_in(graph: Graph, method: Method, clusters: Sequence[int] | None, me: PeerId) -> Sequence[PeerId]:
    """Likewise, on a sparse graph: those of the peer's neighbours that the method allows."""
    others = graph[me]
    alike = [other for other in others if clusters[other] == clusters[me]] if clusters is not None else []
    allowed = set(method.reachable(me, others, alike))
    return tuple(other for other in others if other in allowed)


def _reach_in_sparse_graph(spec: RunSpec, simulator: Simulator) -> Graph | None:
    """Whom each peer can reach; None where the topology lets it reach all others."""
    return None if topology_of(spec.settings).is_complete else [peer.reachable for peer in simulator.peers]


def first_models(engine: Engine, settings: Settings, seed: int, count: int) -> Tensor:
    """Untrained models: independent for each peer, or one for all (section 6, table 1).  → [peer, size]"""
    different = 1 if settings.model.init == "common" else count
    return torch.stack([first_model(engine, settings, seed, PeerId(p)) for p in range(different)]).expand(count, -1)


def first_model(engine: Engine, settings: Settings, seed: int, peer: PeerId) -> Tensor:
    """One peer's untrained model.  → [size]"""
    whose = () if settings.model.init == "common" else (peer,)
    return engine.network.new_row(rng.key(seed, "init", *whose))


def _schedule(settings: RunSettings) -> Schedule:
    timing = settings.timing
    links = Links(timing.latency, timing.training_time, settings.training.epochs)
    metronome = settings.gossip.schedule == "rounds"
    return Schedule(metronome, links, in_turn=metronome and settings.gossip.pull_from == "latest")


def _smallest_cluster(settings: Settings, data: Dataset | Federation | None) -> int | None:
    """How many peers the smallest cluster has; None where clusters are not known."""
    if isinstance(data, Federation):
        return data.smallest_cluster
    return partition_of(settings).smallest_cluster(settings)


# --- bookkeeping ------------------------------------------------------------------------------------------------------


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Events, names and jobs come and go by the million and hold no cycles: looking for some can double the cost."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _all_warnings(simulator: Simulator) -> list[str]:
    setbacks = [
        f"peer {peer}: {count} update(s) undone, the loss was not a finite number"
        for peer, count in sorted(simulator.learners.setbacks.items())
    ]
    neighbours = simulator.neighbours()
    fallbacks = [f"peer {peer}: {_fallback(simulator, peer, neighbours[peer])}" for peer in sorted(simulator.fallbacks)]
    return setbacks + fallbacks


def _fallback(simulator: Simulator, peer: PeerId, neighbours: Sequence[PeerId]) -> str:
    """What a peer did that selected nobody more often than expected, in words. `neighbours`: in the end."""
    admits, compared = simulator.peers[peer].plan.admit, bool(simulator.learners.tallies[peer].samplings)
    too_few = "heard too few others in step 1 to compare them" if admits else "heard nobody in step 1"
    why = "selected nobody more often than expected" if compared else too_few
    if simulator.selections[peer]:
        return f"{why}, so took those selected most often"
    if not admits:
        return f"{why}, so trained alone"
    later = f"has admitted {len(neighbours)}" if neighbours else "admitted nobody"
    return f"{why}, so began step 2 without neighbours, and {later}"


def _pairs(learners: Learners) -> Pairs:
    columns: list[list[int]] = [[], [], [], [], []]
    for peer, merges in learners.merges.items():
        tally = learners.tallies[peer]
        for other in sorted(set(merges) | set(tally.sampled)):
            row = (peer, other, merges[other], tally.selected[other], tally.sampled[other])
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    return Pairs(*(np.array(column, np.int64) for column in columns))


def _comparisons(ledger: Ledger) -> Comparisons | None:
    """Counts per receiver, round and sender, in that order, whatever order they were computed in."""
    if not len(ledger):
        return None
    columns = tuple(ledger.column(name) for name in ("peer", "round", "sender"))
    shape = tuple(int(c.max()) + 1 for c in columns)
    keys, place, sampled = np.unique(np.ravel_multi_index(columns, shape), return_inverse=True, return_counts=True)
    selected = np.bincount(place, ledger.column("chosen"), len(keys)).astype(np.int64)
    receiver, round_, sender = np.unravel_index(keys, shape)
    return Comparisons(receiver, round_, sender, sampled, selected)


def _data_sizes(spec: RunSpec, federation: Federation) -> DataSizes:
    train, val = zip(*spec.method.data_sizes(federation, spec.settings), strict=True)
    return DataSizes(np.array(train), np.array(val))


def _step1_epochs(simulator: Simulator) -> tuple[int, ...] | None:
    searches = [peer.plan.search for peer in simulator.peers]
    return tuple(search.epochs for search in searches if search) if all(searches) else None


def _history(learners: Learners, traffic: Traffic) -> History:
    curves = learners.history.sorted()
    types = {"peer": np.int64, "version": np.int64, "searching": np.bool_, "merged": np.int64}
    columns: dict[str, Array] = {
        name: curves.column(name).astype(types.get(name, np.float64)) for name in UpdateRecord._fields
    }
    return History(**columns, received=traffic.received_at(columns["peer"], columns["version"]))

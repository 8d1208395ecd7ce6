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
    SELECTING,
    TOLD_CLUSTERS,
    UNCONNECTED,
    Method,
    Settings,
    StoppingSettings,
    check_methods,
    default_methods,
    epochs_of_step1,
    parse_methods,
    parse_seeds,
)
from pens.curves import UpdateRecord
from pens.data.samples import Array, Dataset
from pens.data.scenarios import Federation, PeerData, check_own_data, pooled, pooled_sizes
from pens.data.sources import load_dataset
from pens.engine.batches import SampleStack
from pens.engine.devices import device_name, forget_peak_memory, peak_memory_bytes, resolve_device
from pens.engine.optimizers import Recipe
from pens.engine.rounding import model_bytes
from pens.engine.training import Engine, new_engine
from pens.errors import Interrupted, RunDirError, SettingsError
from pens.learners import Learners, LearningRules
from pens.ledger import Ledger
from pens.links import Links
from pens.merging.rule import chosen
from pens.merging.trial import try_out
from pens.messages import PeerId
from pens.metrics import Traffic, neighbour_agreement
from pens.nets import NetFactory, net_factory
from pens.partitions.partition import build_federation, partition_of
from pens.peer import Peer
from pens.policies import SelectionRule
from pens.presets import resolve_settings
from pens.processors import CpuShare
from pens.protocol.plan import Plan, Search
from pens.results import Communication, Comparisons, DataSizes, ExperimentResult, History, Pairs, RunResult
from pens.runlog import RULES, ExperimentDir, ExperimentRecord, RunDir
from pens.running import Running
from pens.simulator import Schedule, Simulator, Trace, advance_together
from pens.topology import Others

_PEERS_AT_ONCE = 2048  # fill a GPU: seeds beyond that would cost memory and save no time


class Observer:
    """Who watches an experiment. This one does not care: override what is of interest."""

    def wants(self, method: Method, seeds: Sequence[int]) -> bool:
        """Whether these runs, which are computed together, shall begin or go on; else they are left out."""
        return True

    def started(self, method: Method, seed: int) -> None:
        """A run begins, or goes on."""

    def progressed(self, method: Method, seed: int, fraction: float) -> None:
        """A window of virtual time is over. May raise `Interrupted`: the run is saved, and stops."""

    def warned(self, method: Method, seed: int, message: str) -> None:
        """Something happened that the user should know."""

    def finished(self, result: RunResult) -> None:
        """A run is complete."""


def run(
    settings: Settings | str | Path | Mapping[str, Any] = "digits",
    *,
    methods: str | Iterable[str] | None = None,
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
    methods:    None: local, random, pens, and, where the data have clusters, oracle
    overrides:  settings to change, {"peers": 8, "n_sampled": 3}
    model:      makes the network, in place of the setting `net`: an nn.Module class, or a function without arguments
    data:       a Dataset to share out as the scenario says, or a whole Federation
    out:        a new or empty folder for the run directory; None keeps results in memory
    """
    resolved = resolve_settings(settings).replace(overrides or {})
    record = ExperimentRecord(
        settings=resolved,
        methods=default_methods(_smallest_cluster(resolved, data)) if methods is None else parse_methods(methods),
        seeds=parse_seeds(seeds),
        own_parts=tuple(name for name, part in (("model", model), ("data", data)) if part is not None),
        data_dir=str(Path(data_dir).resolve()) if data_dir else None,
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
    model: Callable[[], nn.Module] | None = None,
    data: Dataset | Federation | None = None,
    data_dir: Path | str | None = None,
    device: str = "auto",
    observer: Observer | None = None,
) -> ExperimentResult:
    """Continue an experiment that was stopped, to the same result as if it had not been."""
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
            check_methods(settings, methods, len(self.data.peers), smallest)
        else:
            partition_of(settings).check(settings)
            check_methods(settings, methods, settings.scenario.peers, smallest)
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
        self, method: Method, seeds: Sequence[int], missing: Mapping[int, RunDir | None], observer: Observer
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
        self, method: Method, seeds: Sequence[int], missing: Mapping[int, RunDir | None], observer: Observer
    ) -> list[Running]:
        workshop, first_slots = self._place(method, seeds)
        runs = []
        for seed, run_dir in missing.items():
            observer.started(method, seed)
            federation, settings = self.federation(seed), self.record.settings
            models = self._first_models(method, seed, len(federation.peers))
            simulator = build_simulator(settings, method, seed, federation, workshop, models, first_slots[seed])
            runs.append(Running(method, seed, simulator, run_dir))
            runs[-1].resume()
        return runs

    def _place(self, method: Method, seeds: Sequence[int]) -> tuple[Workshop, dict[int, int]]:
        """Where several seeds are computed, and the slot of each one's first peer. Samples are brought to the device
        once, for all methods; those of an own federation, which is the same for all seeds, only once at all."""
        held = {id(f): holders(self.record.settings, method, f) for f in map(self.federation, seeds)}
        starts = dict(zip(held, np.cumsum([0, *map(len, held.values())]).tolist(), strict=False))
        workshop = self._workshop if method != "central" else None
        if workshop is None:
            data = [peer for peers in held.values() for peer in peers]
            workshop = new_workshop(self._engine, data, self._torch_device, len(seeds) // len(held))
        if method != "central":
            self._workshop = workshop
        return workshop, {seed: starts[id(self.federation(seed))] for seed in seeds}

    def _first_models(self, method: Method, seed: int, peers: int) -> Tensor:
        """Made once for all methods."""
        count = 1 if method == "central" else peers
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
        simulator, federation = run.simulator, self.federation(run.seed)
        learners, traffic, neighbours = simulator.learners, simulator.traffic, simulator.neighbours()
        tests = SampleStack(federation.tests, self._torch_device)
        rows = learners.tested_rows()
        if run.method == "central":
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
            agreement=neighbour_agreement(neighbours, federation.clusters),
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
            data_sizes=_data_sizes(self.record.settings, run.method, federation),
            step1_epochs=_step1_epochs(simulator),
        )


# --- wiring -----------------------------------------------------------------------------------------------------------


def holders(settings: Settings, method: Method, federation: Federation) -> Sequence[PeerData]:
    """Whose data are trained on: each peer's own, or for `central` everybody's in one place."""
    return [pooled(federation, settings.central.central_val_share)] if method == "central" else federation.peers


def new_workshop(engine: Engine, data: Sequence[PeerData], device: torch.device, runs: int = 1) -> Workshop:
    """Where runs on these data are computed; `runs`: how many of them on the same."""
    training, validation = SampleStack([d.train for d in data], device), SampleStack([d.val for d in data], device)
    return Workshop(engine, training, validation, runs * len(data))


def build_simulator(
    settings: Settings,
    method: Method,
    seed: int,
    federation: Federation,
    workshop: Workshop,
    models: Tensor,
    first_slot: int = 0,
    trace: Trace | None = None,
) -> Simulator:
    """One method with one seed, ready to run. `models` [peer, size]: untrained."""
    settings = settings.for_method(method)
    learners = Learners(workshop, first_slot, models, learning_rules(settings, method, seed))
    sizes = [(len(data.train), len(data.val)) for data in federation.peers[: len(models)]]
    plans = {size: build_plan(settings, method, *size, num_peers=len(models)) for size in set(sizes)}
    members = federation.members()
    peers = [
        Peer(PeerId(p), seed, plans[size], _reachable(method, federation, members, PeerId(p)))
        for p, size in enumerate(sizes)
    ]
    return Simulator(peers, learners, _schedule(settings, peers[0].plan), trace)


def learning_rules(settings: Settings, method: Method, seed: int) -> LearningRules:
    """What all peers of a run have in common when they compute."""
    return LearningRules(
        recipe=_recipe(settings, method),
        stopping=_stopping(settings, method),
        own_in_merge=settings.gossip.own_in_merge,
        seed=seed,
        score_on=settings.pens.score_on,
        score_by=settings.pens.score_by,
        score_samples=settings.pens.score_samples,
        max_batch=settings.engine.max_batch,
        wire=settings.gossip.wire,
        merging=chosen(settings),
        step2_model=settings.pens.step2_model if method in SELECTING else "last",
        optimizer_remembers=method in UNCONNECTED,
    )


def build_plan(settings: Settings, method: Method, train: int, val: int, num_peers: int) -> Plan:
    """What a method tells a peer with so many samples to do: sections 4.1 (random), 4.2 (PENS), 5.3 (baselines)."""
    gossip, pens, central = settings.gossip, settings.pens, method == "central"
    search = None
    if method in SELECTING:
        epochs = epochs_of_step1(settings, train, val)
        anew = pens.step2_model != "last"
        rule = selection_rule(settings, num_peers)
        search = Search(pens.n_sampled, pens.m, pens.step1_rounds, pens.step1_samplings, epochs, rule, anew)
    return Plan(
        pace="pull" if gossip.schedule == "rounds" else "push",
        rounds=settings.central.central_rounds if central else gossip.rounds,
        n_peers=gossip.n_peers,
        epochs=settings.central.central_epochs if central else settings.training.epochs,
        search=search,
        accept_anyone=gossip.accept == "anyone",
        interval=settings.timing.interval,
        jitter=settings.timing.jitter,
        give_up=settings.timing.give_up,
        train_first=settings.training.train_first,
        admit=method in SELECTING and pens.admit and gossip.schedule == "async",
        admission_trials=pens.admission_trials,
    )


def first_models(engine: Engine, settings: Settings, seed: int, count: int) -> Tensor:
    """Untrained models: independent for each peer, or one for all (section 6, table 1).  → [peer, size]"""
    different = 1 if settings.model.init == "common" else count
    return torch.stack([first_model(engine, settings, seed, PeerId(p)) for p in range(different)]).expand(count, -1)


def first_model(engine: Engine, settings: Settings, seed: int, peer: PeerId) -> Tensor:
    """One peer's untrained model.  → [size]"""
    whose = () if settings.model.init == "common" else (peer,)
    return engine.network.new_row(rng.key(seed, "init", *whose))


def _reachable(
    method: Method, federation: Federation, members: Mapping[int, Sequence[int]], me: PeerId
) -> Sequence[PeerId]:
    if method in UNCONNECTED:
        return ()
    if method in TOLD_CLUSTERS:
        assert federation.clusters is not None  # `check_methods` refuses such methods without clusters
        return Others(members[federation.clusters[me]], me)
    return Others(range(len(federation.peers)), me)


def _recipe(settings: Settings, method: Method) -> Recipe:
    training = settings.training
    batch_size = settings.central.central_batch_size if method == "central" else training.batch_size
    return Recipe(training.optimizer, training.lr, training.momentum, training.weight_decay, batch_size)


def _stopping(settings: Settings, method: Method) -> StoppingSettings:
    if method != "central":
        return settings.stopping
    central = settings.central
    return settings.stopping.model_copy(update={"window": central.central_window, "patience": central.central_patience})


def _schedule(settings: Settings, plan: Plan) -> Schedule:
    timing = settings.timing
    links = Links(timing.latency, timing.training_time, plan.epochs)
    metronome = settings.gossip.schedule == "rounds"
    return Schedule(metronome, links, in_turn=metronome and settings.gossip.pull_from == "latest")


def selection_rule(settings: Settings, num_peers: int) -> SelectionRule:
    """What makes a neighbour at the end of step 1."""
    pens = settings.pens
    return SelectionRule(
        pens.m,
        pens.n_sampled,
        num_peers - 1,
        settings.expected,
        pens.neighbours_by,
        pens.expected_offset,
        pens.nobody_found,
    )


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


def _data_sizes(settings: Settings, method: Method, federation: Federation) -> DataSizes:
    if method == "central":
        train, val = pooled_sizes(federation, settings.central.central_val_share)
        return DataSizes(np.array([train]), np.array([val]))
    peers = federation.peers
    return DataSizes(np.array([len(p.train) for p in peers]), np.array([len(p.val) for p in peers]))


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

# SPDX-License-Identifier: Apache-2.0
"""Runs each method with each seed: what is missing of an experiment, with several seeds as one stack where they fit."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from pens.data.scenarios import Federation
from pens.engine.devices import forget_peak_memory, resolve_device
from pens.engine.training import Engine
from pens.errors import Interrupted, SettingsError
from pens.experiment.holdings import Holdings
from pens.experiment.observer import Observer
from pens.experiment.outcome import outcome
from pens.experiment.running import Running
from pens.experiment.wiring import (
    build_engine,
    build_simulator,
    first_models,
    new_executor,
    num_models,
    try_merging,
)
from pens.inference.network_form import NetworkForm
from pens.learning.executor import Executor
from pens.measuring.results import ExperimentResult, RunResult
from pens.methods.names import check_methods, find_method
from pens.methods.spec import RunSpec
from pens.processors import CpuShare
from pens.settings.tree import MethodName
from pens.simulation.simulator import advance_together
from pens.storage.runlog import ExperimentDir, ExperimentRecord, RunDir
from pens.tasks.task import num_outputs, task_of

_PEERS_AT_ONCE = 2048  # peers that fill a GPU: more seeds at once would cost memory and save no time


@dataclass
class Experiment:
    """An experiment: a record that says what to run, the user's own parts, and the engine that computes it."""

    record: ExperimentRecord
    holdings: Holdings
    device: str = "auto"
    model: Callable[[], nn.Module] | None = None
    _torch_device: torch.device = field(init=False)
    _engine: Engine = field(init=False)
    _network: NetworkForm = field(init=False)
    _executor: Executor | None = field(init=False, default=None)
    """The executor for their peers, shared by all methods that do not pool data."""
    _untrained: dict[tuple[int, str], Tensor] = field(init=False, default_factory=dict)
    """The untrained models by seed and `init`: a method may set that one for itself."""
    _cpu_share: CpuShare = field(init=False, default_factory=lambda: CpuShare())

    def prepare(self) -> None:
        """Check everything, and refuse what cannot work before anything is written or computed."""
        settings, methods = self.record.settings, self.record.methods
        self._torch_device = resolve_device(self.device)
        if self.model is not None and (isinstance(self.model, nn.Module) or not callable(self.model)):
            raise SettingsError(
                f"model is a {type(self.model).__name__}, one network, but each peer needs a new one: "
                "pass its class, or a function that makes it"
            )
        check_methods(settings, methods, self.holdings.participants(settings, self.record.seeds), self.record.seeds)
        federation = self.federation(self.record.seeds[0])
        self.holdings.check_repeats(settings, self.record.seeds[0])
        self._engine = self._make_engine(federation)
        for method in methods:
            try_merging(self._spec(method, self.record.seeds[0]), self._engine)

    def federation(self, seed: int) -> Federation:
        """The federation of one seed."""
        return self.holdings.federation(self.record.settings, seed)

    def _make_engine(self, federation: Federation) -> Engine:
        known = federation if self.holdings.peers else self.holdings.dataset(self.record.settings)
        some = federation.peers[0].train
        shown = some if len(some) > 2 else federation.tests[0]
        samples = sum(len(peer.train) for peer in federation.peers)
        outputs = num_outputs(task_of(self.record.settings), known)
        self._network = NetworkForm.of(self.record.settings, outputs, shown, self.model, federation.class_names)
        return build_engine(self.record.settings, outputs, shown, samples, self._torch_device, self.model)

    def run(self, folder: ExperimentDir | None, observer: Observer) -> ExperimentResult:
        """Run what is missing, and read what is complete."""
        results: list[RunResult] = []
        for seeds in self._seeds_at_once():
            self._forget_others(seeds)
            for method in self.record.methods:
                dirs = {seed: folder.run(method, seed) if folder else None for seed in seeds}
                for run_dir in dirs.values():
                    if run_dir and run_dir.is_complete():
                        results.append(replace(run_dir.read(), network=self._network))
                        observer.finished(results[-1])
                missing = {seed: run_dir for seed, run_dir in dirs.items() if not (run_dir and run_dir.is_complete())}
                if missing and observer.wants(method, tuple(missing)):
                    results += self._run_together(method, seeds, missing, observer)
        return self.record.result(results, folder.folder if folder else None)

    def _seeds_at_once(self) -> Iterator[tuple[int, ...]]:
        seeds, count = self.record.seeds, self.record.settings.engine.seeds_at_once
        peers = len(self.federation(seeds[0]).peers)
        count = count or (max(1, _PEERS_AT_ONCE // peers) if self._torch_device.type == "cuda" else 1)
        return (seeds[start : start + count] for start in range(0, len(seeds), count))

    def _forget_others(self, seeds: Sequence[int]) -> None:
        self.holdings.forget_others(seeds)
        self._executor, self._untrained = None, {}

    def _run_together(
        self, method: MethodName, seeds: Sequence[int], missing: Mapping[int, RunDir | None], observer: Observer
    ) -> list[RunResult]:
        """Run one method with several seeds, as one stack."""
        forget_peak_memory(self._torch_device)
        last = time.perf_counter()
        runs = self._begin(method, seeds, missing, observer)
        results: list[RunResult] = []
        try:
            while runs := self._unfinished(runs, results, observer):
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
        executor, first_slots = self._place(method, seeds)
        runs = []
        for seed, run_dir in missing.items():
            observer.started(method, seed)
            spec, federation = self._spec(method, seed), self.federation(seed)
            models = self._first_models(spec, len(federation.peers))
            simulator = build_simulator(spec, federation, executor, models, first_slots[seed])
            runs.append(Running(method, seed, simulator, run_dir, federation))
            runs[-1].resume()
        return runs

    def _place(self, method: MethodName, seeds: Sequence[int]) -> tuple[Executor, dict[int, int]]:
        """The executor that computes several seeds, and the slot of each seed's first peer. Samples are copied to the
        device once for all methods, and those of a user's own federation once for all seeds, too."""
        spec = self._spec(method, seeds[0])
        held = {id(f): spec.method.holders(f, spec.settings) for f in map(self.federation, seeds)}
        starts = dict(zip(held, np.cumsum([0, *map(len, held.values())]).tolist(), strict=False))
        executor = self._executor if not spec.method.pools_data else None
        if executor is None:
            data = [peer for peers in held.values() for peer in peers]
            task = task_of(self.record.settings)
            executor = new_executor(self._engine, data, self._torch_device, len(seeds) // len(held), task)
        if not spec.method.pools_data:
            self._executor = executor
        return executor, {seed: starts[id(self.federation(seed))] for seed in seeds}

    def _spec(self, method: MethodName, seed: int) -> RunSpec:
        return RunSpec.of(find_method(method), self.record.settings, seed)

    def _first_models(self, spec: RunSpec, peers: int) -> Tensor:
        """The untrained models of a run's peers; made once for all methods that begin alike."""
        key, count = (spec.seed, spec.settings.model.init), num_models(spec, peers)
        if len(self.record.methods) == 1:
            return first_models(self._engine, spec.settings, spec.seed, count)
        if len(self._untrained.get(key, ())) < count:
            self._untrained[key] = first_models(self._engine, spec.settings, spec.seed, count)
        return self._untrained[key][:count]

    def _unfinished(self, runs: list[Running], results: list[RunResult], observer: Observer) -> list[Running]:
        """The runs that are not over. The others become results."""
        for run in runs:
            if run.simulator.is_over():
                results.append(self._complete(run))
                run.tell_fallbacks(results[-1].warnings, partial(observer.warned, run.method, run.seed))
                observer.finished(results[-1])
        return [run for run in runs if not run.simulator.is_over()]

    def _complete(self, run: Running) -> RunResult:
        spec, federation = self._spec(run.method, run.seed), self.federation(run.seed)
        result = outcome(run, spec, federation, self._engine, self._torch_device)
        result = replace(result, network=self._network)
        run.simulator.learners.let_go()
        if not run.run_dir:
            return result
        run.run_dir.save(result)
        return replace(result, models=run.run_dir.models(result.peer_names))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause Python's garbage collector. Runs make millions of events and jobs without reference cycles, and searching
    them for cycles can double the cost."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

# SPDX-License-Identifier: Apache-2.0
"""Runs each method with each seed: what is missing of an experiment, with several seeds as one stack where they fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from torch import nn

from pens.data.own_sources import older_preparation
from pens.data.scenarios import Federation
from pens.engine.devices import forget_peak_memory, resolve_device
from pens.errors import SettingsError
from pens.experiment.holdings import Holdings
from pens.experiment.observer import Observer
from pens.experiment.outcome import outcome
from pens.experiment.running import Running
from pens.experiment.together import Pace, compute_together
from pens.experiment.wiring import try_merging
from pens.experiment.workplace import Workplace
from pens.measuring.results import ExperimentResult, RunResult
from pens.methods.names import check_methods, find_method
from pens.methods.spec import RunSpec
from pens.processors import CpuShare
from pens.settings.tree import MethodName
from pens.storage.runlog import ExperimentDir, ExperimentRecord, RunDir


@dataclass
class Experiment:
    """An experiment: a record that says what to run, the user's own parts, and the engine that computes it."""

    record: ExperimentRecord
    holdings: Holdings
    device: str = "auto"
    model: Callable[[], nn.Module] | None = None
    workplace: Workplace = field(init=False)
    _cpu_share: CpuShare = field(init=False, default_factory=lambda: CpuShare())

    def prepare(self) -> None:
        """Check everything, and refuse what cannot work before anything is written or computed."""
        settings, methods = self.record.settings, self.record.methods
        device = resolve_device(self.device)
        if self.model is not None and (isinstance(self.model, nn.Module) or not callable(self.model)):
            raise SettingsError(
                f"model is a {type(self.model).__name__}, one network, but each peer needs a new one: "
                "pass its class, or a function that makes it"
            )
        check_methods(settings, methods, self.holdings.participants(settings, self.record.seeds), self.record.seeds)
        self.holdings.check_repeats(settings, self.record.seeds[0])
        self.workplace = Workplace(settings, self.holdings, device, self.model, keeps_first_models=len(methods) > 1)
        self.workplace.prepare(self.record.seeds[0])
        for method in methods:
            try_merging(self._spec(method, self.record.seeds[0]), self.workplace.engine)

    def federation(self, seed: int) -> Federation:
        """The federation of one seed."""
        return self.workplace.federation(seed)

    def run(self, folder: ExperimentDir | None, observer: Observer) -> ExperimentResult:
        """Run what is missing, and read what is complete."""
        results: list[RunResult] = []
        for seeds in self._seeds_at_once():
            self.workplace.forget_others(seeds)
            for method in self.record.methods:
                dirs = {seed: folder.run(method, seed) if folder else None for seed in seeds}
                for run_dir in dirs.values():
                    if run_dir and run_dir.is_complete():
                        results.append(self._complete_before(run_dir))
                        observer.finished(results[-1])
                missing = {seed: run_dir for seed, run_dir in dirs.items() if not (run_dir and run_dir.is_complete())}
                if missing and observer.wants(method, tuple(missing)):
                    results += self._run_together(method, seeds, missing, observer)
        return self.record.result(results, folder.folder if folder else None)

    def _seeds_at_once(self) -> Iterator[tuple[int, ...]]:
        seeds, count = self.record.seeds, self.workplace.runs_at_once(self.record.seeds[0])
        return (seeds[start : start + count] for start in range(0, len(seeds), count))

    def _run_together(
        self, method: MethodName, seeds: Sequence[int], missing: Mapping[int, RunDir | None], observer: Observer
    ) -> list[RunResult]:
        """Run one method with several seeds, as one stack."""
        forget_peak_memory(self.workplace.device)
        begun = time.perf_counter()
        for seed in missing:
            observer.started(method, seed)
        runs = self.workplace.begin([(self._spec(method, seed), of) for seed, of in missing.items()], seeds)
        pace = _Told(self, observer)
        compute_together(runs, pace, self._cpu_share, begun)
        return pace.results

    def _complete_before(self, run_dir: RunDir) -> RunResult:
        """A run that was complete before, with what older versions do not record of it."""
        run, older = run_dir.read(), older_preparation(self.record.settings, self.record.own_parts)
        return replace(run, network=self.workplace.network, preparation=run.preparation or older)

    def _spec(self, method: MethodName, seed: int) -> RunSpec:
        return RunSpec.of(find_method(method), self.record.settings, seed)

    def complete(self, run: Running) -> RunResult:
        """The result of a run that is over: its models are tested."""
        spec, federation, place = self._spec(run.method, run.seed), self.federation(run.seed), self.workplace
        result = outcome(run, spec, federation, place.engine, place.device)
        result = replace(result, network=place.network)
        run.simulator.learners.let_go()
        if not run.run_dir:
            return result
        run.run_dir.save(result)
        return replace(result, models=run.run_dir.models(result.peer_names))

    def complaint(self) -> str | None:
        """A warning where other processes keep the cores busy that these runs need."""
        return self._cpu_share.complaint() if self.workplace.device.type == "cpu" else None


class _Told(Pace):
    """Tells an observer of an experiment's runs, and collects their results."""

    def __init__(self, experiment: Experiment, observer: Observer) -> None:
        self._experiment, self._observer = experiment, observer
        self.checkpoint_every_s = experiment.record.settings.engine.checkpoint_every_s
        self.results: list[RunResult] = []

    def over(self, run: Running) -> None:
        self.results.append(self._experiment.complete(run))
        run.tell_fallbacks(self.results[-1].warnings, partial(self.warned, run))
        self._observer.finished(self.results[-1])

    def advanced(self, runs: Sequence[Running]) -> None:
        if complaint := self._experiment.complaint():
            self.warned(runs[0], complaint)

    def progressed(self, run: Running, fraction: float) -> None:
        self._observer.progressed(run.method, run.seed, fraction)

    def warned(self, run: Running, message: str) -> None:
        self._observer.warned(run.method, run.seed, message)

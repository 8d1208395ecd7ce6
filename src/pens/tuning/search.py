# SPDX-License-Identifier: Apache-2.0
"""A random search as a plan: every method gets the same number of trials, which are validated and never tested."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np

from pens.comparing.scenes import Scene
from pens.engine.devices import device_name
from pens.errors import SettingsError
from pens.experiment.running import Running
from pens.experiment.together import Pace, compute_together
from pens.experiment.wiring import try_merging
from pens.experiment.workplace import Workplace
from pens.methods.names import changed_shared, check_methods, find_method
from pens.methods.spec import RunSpec
from pens.planning.conductor import Conductor
from pens.planning.identity import RunKey, identity
from pens.planning.plan import Means, MissingRuns, Plan, Wanted
from pens.planning.shared_data import SharedData
from pens.processors import CpuShare
from pens.report.words import duration
from pens.settings.tree import MethodName, Settings
from pens.tasks.metric import Measure
from pens.tasks.task import task_of
from pens.tuning.spaces import space_of, trial_values
from pens.tuning.store import TrialStore, Validated
from pens.tuning.wishes import Wishes


@dataclass(frozen=True)
class Trial:
    """One trial of a method in a scenario."""

    scenario: str
    method: MethodName
    number: int
    """0: with the settings that the file gives the method."""
    values: Mapping[str, Any]
    """What it sets, by `section.key`."""
    settings: Settings
    refused: str = ""
    """Why its values cannot work together; empty where they can."""


@dataclass(frozen=True)
class Tried:
    """A trial and what it reached."""

    trial: Trial
    measure: Measure
    found: Mapping[int, Validated] = field(default_factory=dict)
    """By the seed; empty where it was refused, or not computed yet."""

    @property
    def score(self) -> float | None:
        """The mean over seeds; None without any, or where it is not a finite number."""
        mean = float(np.mean([each.score for each in self.found.values()])) if self.found else math.nan
        return mean if math.isfinite(mean) else None

    @property
    def goodness(self) -> float:
        """A number that is the higher the better the trial is."""
        return -math.inf if self.score is None else self.measure.goodness(self.score)


def trials_of(scene: Scene, wishes: Wishes) -> Iterator[Trial]:
    """All trials of a scenario, those of one method after the other."""
    for method, settings in scene.methods.items():
        base = _of_trials(settings, wishes)
        space = space_of(scene, method, wishes)
        for number in range(wishes.trials):
            values = trial_values(space, number)
            yield _checked(Trial(scene.name, method, number, values, base.replace(values)), scene)


def _of_trials(settings: Settings, wishes: Wishes) -> Settings:
    """A method's settings with those of trials, which may not be about the data or the network."""
    base = settings.replace(wishes.settings) if wishes.settings else settings
    if shared := changed_shared(settings, base):
        raise SettingsError(f"[tuning.settings] {shared[0]}: trials have the data and the network of the scenario")
    return base


def _checked(trial: Trial, scene: Scene) -> Trial:
    """A trial whose values cannot work together counts, and is not computed."""
    try:
        check_methods(trial.settings, [trial.method], scene.who[trial.method], scene.seeds)
    except SettingsError as error:
        if not trial.values:
            raise
        return replace(trial, refused=str(error))
    return trial


class Search(Plan):
    """All trials of a comparison's methods."""

    def __init__(
        self, scenes: Sequence[Scene], wishes: Wishes, store: TrialStore, means: Means, data: SharedData | None = None
    ) -> None:
        self.store, self.wishes = store, wishes
        self.trials = tuple(trial for scene in scenes for trial in trials_of(scene, wishes))
        wanted = [
            Wanted(trial.scenario, f"{trial.method}, trial {trial.number}", trial.settings, self._runs(trial))
            for trial in self.trials
            if not trial.refused
        ]
        super().__init__(wanted, store, means, data)

    def _runs(self, trial: Trial) -> tuple[tuple[MethodName, int], ...]:
        return tuple((trial.method, seed) for seed in self.wishes.seeds)

    def batches(self, works: Sequence[MissingRuns]) -> list[list[MissingRuns]]:
        """Trials of one method in one scenario share a workplace."""
        return [list(alike) for _, alike in groupby(works, key=lambda work: (work.group, work.methods))]

    def carry_out(self, works: Sequence[MissingRuns], conductor: Conductor) -> None:
        settings, seeds = works[0].settings, self.wishes.seeds
        place = Workplace(settings, self.data.holdings(settings), self.torch_device)
        place.prepare(seeds[0])
        place.forget_others(seeds)
        at_once = max(1, place.runs_at_once(seeds[0]) // len(seeds))
        for start in range(0, len(works), at_once):
            some = works[start : start + at_once]
            if conductor.fits([key for work in some for key in work.keys]):
                self._compute([(work, seed) for work in some for seed in work.seeds], len(some), place, conductor)

    def _compute(
        self, runs: Sequence[tuple[MissingRuns, int]], sharing: int, place: Workplace, conductor: Conductor
    ) -> None:
        """Compute trials as one stack, and keep what they reach on validation data."""
        self.store.mark()
        begun = time.perf_counter()
        specs = [
            (RunSpec.of(find_method(method), work.settings, seed), self.store.run_dir(work.settings, method, seed))
            for work, seed in runs
            for method in work.methods
        ]
        for spec, _ in specs:
            try_merging(spec, place.engine)
        running = place.begin(specs, self.wishes.seeds, sharing)
        pace = _Validating(dict(zip(map(id, running), runs, strict=True)), self.store, conductor, place)
        compute_together(running, pace, CpuShare(), begun)

    def tried(self) -> list[Tried]:
        """All trials, and what is known of each."""
        return [self._tried(trial) for trial in self.trials]

    def _tried(self, trial: Trial) -> Tried:
        read = {} if trial.refused else {s: self.store.read(trial.settings, trial.method, s) for s in self.wishes.seeds}
        found = {seed: each for seed, each in read.items() if each is not None}
        return Tried(trial, task_of(trial.settings).measure, found if len(found) == len(self.wishes.seeds) else {})


class _Validating(Pace):
    """Keeps what trials reach on validation data."""

    def __init__(
        self,
        runs: Mapping[int, tuple[MissingRuns, int]],
        store: TrialStore,
        conductor: Conductor,
        place: Workplace,
    ) -> None:
        self._runs, self._store, self._conductor, self._place = runs, store, conductor, place
        self.checkpoint_every_s = place.settings.engine.checkpoint_every_s

    def over(self, run: Running) -> None:
        work, seed = self._runs[id(run)]
        learners = run.simulator.learners
        found = learners.validation()
        device = device_name(self._place.device)
        kept = Validated(float(np.mean(found.score)), float(np.mean(found.loss)), run.seconds, device)
        learners.let_go()
        self._store.write(work.settings, run.method, seed, kept)
        self._conductor.complete(self._key(run), run.seconds, device)
        score = task_of(work.settings).measure.words(kept.score)
        self._conductor.tried(f"{work.place}, seed {seed}: validation {score} in {duration(run.seconds)}")

    def progressed(self, run: Running, fraction: float) -> None:
        self._conductor.working()
        self._conductor.advance(self._key(run), fraction)

    def warned(self, run: Running, message: str) -> None:
        self._conductor.warned(run.method, run.seed, message)

    def _key(self, run: Running) -> RunKey:
        work, seed = self._runs[id(run)]
        return identity(work.settings), run.method, seed


def best_of(tried: Sequence[Tried]) -> Tried | None:
    """The best of a method's trials on validation data; of equally good ones the first. None where one is missing, so
    that every method is chosen among equally many."""
    if any(not each.found and not each.trial.refused for each in tried):
        return None
    return max(tried, key=lambda each: each.goodness)

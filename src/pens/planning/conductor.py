# SPDX-License-Identifier: Apache-2.0
"""Keeps a plan within its time budget, and tells how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from pens.errors import Interrupted
from pens.experiment.observer import Observer
from pens.measuring.results import RunResult
from pens.planning.estimates import Estimates
from pens.planning.identity import RunKey, identity
from pens.settings.tree import MethodName, Settings


class PlanObserver(Observer):
    """Progress callbacks of a whole plan; all no-ops."""

    def planned(self, runs: int) -> None:
        """The plan has this many runs."""

    def entered(self, place: str) -> None:
        """The runs of another setting begin. `place`: which one it is, in words."""

    def advanced(self, done: float, seconds_left: float | None) -> None:
        """`done`: the number of complete runs, with fractions for runs in progress. `seconds_left`: None without an
        estimate."""

    def tried(self, message: str) -> None:
        """Called when something is complete that has no result of a run, with words that say what it is."""

    def working(self) -> None:
        """Called again and again while that is computed. May raise `Interrupted`: then it is saved and stops."""


class BudgetSpent(Interrupted):
    """The time budget is spent; the runs in progress are saved."""


class Conductor(Observer):
    """Lets a run begin if it fits into the remaining budget, saves and stops runs when the budget is spent, and reports
    the progress of the whole plan."""

    def __init__(
        self,
        estimates: Estimates,
        settings: Mapping[RunKey, Settings],
        seconds: Mapping[RunKey, float | None],
        budget_s: float | None,
        observer: PlanObserver,
        clock: Callable[[], float],
    ) -> None:
        """`settings`: of each missing run. `seconds`: what each is expected to take; None without an estimate."""
        self._estimates, self._observer, self._clock = estimates, observer, clock
        self._begun, self._budget_s = clock(), budget_s
        self._settings, self._seconds = settings, dict(seconds)
        self._fractions: dict[RunKey, float] = dict.fromkeys(settings, 0.0)
        self._setting = ""

    def enter(self, settings: Settings) -> None:
        """From here on, runs are of this setting."""
        self._setting = identity(settings)

    def wants(self, method: MethodName, seeds: Sequence[int]) -> bool:
        return self.fits([self._key(method, seed) for seed in seeds])

    def noted(self, message: str) -> None:
        self._observer.noted(message)

    def started(self, method: MethodName, seed: int) -> None:
        self._observer.started(method, seed)

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        self._observer.progressed(method, seed, fraction)
        self.advance(self._key(method, seed), fraction)

    def warned(self, method: MethodName, seed: int, message: str) -> None:
        self._observer.warned(method, seed, message)

    def finished(self, result: RunResult) -> None:
        key = self._key(result.method, result.seed)
        if key in self._fractions:
            self.complete(key, result.seconds, result.device)
            self._observer.finished(result)

    def tried(self, message: str) -> None:
        """Tell of something that is complete and has no result of a run."""
        self._observer.tried(message)

    def working(self) -> None:
        """Let the user stop something that has no result of a run."""
        self._observer.working()

    def fits(self, keys: Sequence[RunKey]) -> bool:
        """Whether these runs fit into the remaining budget. Runs without an estimate are attempted."""
        left, expected = self._left(), sum(self._seconds[key] or 0.0 for key in keys)
        return left > 0 and expected <= left

    def advance(self, key: RunKey, fraction: float) -> None:
        """A run is computed as far as this. What is running is stopped if the budget is spent."""
        self._tell(key, fraction)
        if self._left() <= 0:
            raise BudgetSpent("the budget is spent")

    def complete(self, key: RunKey, seconds: float, device: str) -> None:
        """A run is complete: what it has taken tells something about the others."""
        self._estimates.learn(self._settings[key], key[1], seconds, device)
        for other in (k for k, known in self._seconds.items() if known is None):
            self._seconds[other] = self._estimates.seconds(self._settings[other], other[1])
        self._tell(key, 1.0)

    def _key(self, method: MethodName, seed: int) -> RunKey:
        return self._setting, method, seed

    def _left(self) -> float:
        return float("inf") if self._budget_s is None else self._budget_s - (self._clock() - self._begun)

    def _tell(self, key: RunKey, fraction: float) -> None:
        self._fractions[key] = fraction
        self._observer.advanced(sum(self._fractions.values()), self._seconds_left())

    def _seconds_left(self) -> float | None:
        """The expected seconds of the rest of the plan. A run without an estimate counts as other methods' runs on the
        same data do, or else as an average run."""
        shares = {key: 1 - done for key, done in self._fractions.items() if done < 1}
        seconds = {key: self._seconds[key] or self._estimates.guess(self._settings[key]) for key in shares}
        known = [each for each in seconds.values() if each is not None]
        if not known:
            return None if shares else 0.0
        usual = fmean(known)
        return sum(share * (usual if (each := seconds[key]) is None else each) for key, share in shares.items())

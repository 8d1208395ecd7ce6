# SPDX-License-Identifier: Apache-2.0
"""Estimates how long runs will take, from complete runs."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

from pens.planning.identity import identity
from pens.settings.tree import MethodName, Settings


class Estimates:
    """Estimates of the seconds of a run on one device. An estimate is the mean of runs with the same setting and
    method; otherwise of the method's runs on the same data set, scaled by the samples that peers train on at most.
    Without such runs there is no estimate."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._same: dict[tuple[str, MethodName], list[float]] = defaultdict(list)
        self._alike: dict[tuple[str, MethodName], list[float]] = defaultdict(list)

    def learn(self, settings: Settings, method: MethodName, seconds: float, device: str) -> None:
        """Add a complete run. Runs on other devices are ignored."""
        if device == self._device:
            self._same[identity(settings), method].append(seconds)
            self._alike[settings.data.source, method].append(seconds / _visits(settings))

    def seconds(self, settings: Settings, method: MethodName) -> float | None:
        """The expected seconds of one seed, as its share of the seeds computed together; None without an estimate."""
        if same := self._same.get((identity(settings), method)):
            return fmean(same)
        alike = self._alike.get((settings.data.source, method))
        return fmean(alike) * _visits(settings) if alike else None

    def guess(self, settings: Settings) -> float | None:
        """A guess for a method without an estimate: the mean of the other methods on the same data set. A guess is too
        rough to decide what fits into a budget."""
        dataset = settings.data.source
        alike = [fmean(each) for (of, _), each in self._alike.items() if of == dataset]
        return fmean(alike) * _visits(settings) if alike else None


def _visits(settings: Settings) -> int:
    """The number of samples that all peers train on, if no peer stops early."""
    samples = settings.scenario.peers * settings.scenario.train_per_peer
    return samples * settings.training.epochs * settings.gossip.rounds

# SPDX-License-Identifier: Apache-2.0
"""What runs will take, judged by those that are complete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean

from pens.errors import SettingsError
from pens.reproduce.compare import Comparison
from pens.reproduce.store import RunStore, identity
from pens.settings.tree import MethodName, Settings


class Estimates:
    """Seconds of a run on one device. Known from runs of the same setting and method; else from the method's runs on
    the same data set, in proportion to what is trained on at most; else not at all."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._same: dict[tuple[str, MethodName], list[float]] = defaultdict(list)
        self._alike: dict[tuple[str, MethodName], list[float]] = defaultdict(list)

    def learn(self, settings: Settings, method: MethodName, seconds: float, device: str) -> None:
        """One complete run. Those of other devices tell nothing."""
        if device == self._device:
            self._same[identity(settings), method].append(seconds)
            self._alike[settings.scenario.dataset, method].append(seconds / _visits(settings))

    def learn_all(self, store: RunStore) -> None:
        for record, place in store.records():
            for method in record.methods:
                for run in (place.run(method, seed) for seed in record.seeds):
                    if run.is_complete():
                        self.learn(record.settings, method, *run.took())

    def learn_kept(self, kept: Iterable[Comparison]) -> None:
        """What was kept of one device, which is then that of all its runs. Nothing of settings that are no more."""
        for comparison in (each for each in kept if len(each.devices) == 1):
            for column in comparison.columns:
                try:
                    settings = Settings().replace(column.settings)
                except SettingsError:
                    continue
                for finding in (f for f in column.findings if f.values):
                    seconds = finding.seconds / len(finding.values)
                    self.learn(settings, finding.method, seconds, comparison.devices[0])

    def seconds(self, settings: Settings, method: MethodName) -> float | None:
        """Of one seed, as its share of those computed together."""
        if same := self._same.get((identity(settings), method)):
            return fmean(same)
        alike = self._alike.get((settings.scenario.dataset, method))
        return fmean(alike) * _visits(settings) if alike else None

    def guess(self, settings: Settings) -> float | None:
        """Of a method of which nothing is known: what the others take on the same data set. Too rough to decide by."""
        dataset = settings.scenario.dataset
        alike = [fmean(each) for (of, _), each in self._alike.items() if of == dataset]
        return fmean(alike) * _visits(settings) if alike else None


def _visits(settings: Settings) -> int:
    """Samples that all peers train on, if nobody stops early."""
    samples = settings.scenario.peers * settings.scenario.train_per_peer
    return samples * settings.training.epochs * settings.gossip.rounds

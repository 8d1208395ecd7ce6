# SPDX-License-Identifier: Apache-2.0
"""A plan whose runs are experiments: each ends with a result, in a run directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from pens.experiment.execution import Experiment
from pens.experiment.interface import changed_parts
from pens.methods.names import prints_of, references_of
from pens.planning.conductor import Conductor, PlanObserver
from pens.planning.plan import Means, MissingRuns, Plan, Wanted
from pens.planning.shared_data import SharedData
from pens.planning.store import RunStore
from pens.storage.runlog import ExperimentRecord


class RunPlan(Plan):
    """Wanted runs, in run directories that are found by their settings."""

    def __init__(self, wanted: Sequence[Wanted], store: RunStore, means: Means, data: SharedData | None = None) -> None:
        super().__init__(wanted, store, means, data)
        self.store = store

    def run(self, observer: PlanObserver, clock: Callable[[], float] = time.monotonic) -> None:
        places = {id(place): place for each in self.wanted if (place := self.store.find(each.settings))}
        for place in places.values():
            for words in changed_parts(place.read(), place.folder):
                observer.noted(words)
        super().run(observer, clock)

    def carry_out(self, works: Sequence[MissingRuns], conductor: Conductor) -> None:
        for work in works:
            self._run(work, conductor)

    def _run(self, work: MissingRuns, conductor: Conductor) -> None:
        folder = str(self.means.data_dir.resolve()) if self.means.data_dir else None
        conductor.enter(work.settings)
        for methods, seeds in work.stacks:
            record = ExperimentRecord(work.settings, methods, seeds, data_dir=folder, references=references_of(methods))
            record = replace(record, part_files=prints_of(record.settings, methods))
            experiment = Experiment(record, self.data.holdings(work.settings), self.means.device)
            experiment.prepare()
            experiment.run(self.store.take(record), conductor)

# SPDX-License-Identifier: Apache-2.0
"""An experiment as a report reads it: the record and the complete runs of a run directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pens.data.scenarios import UNKNOWN
from pens.errors import RunDirError
from pens.measuring.results import RunResult, RunsByMethod, spec_of
from pens.methods.method import Absent
from pens.methods.names import in_order, method_of, selecting
from pens.methods.spec import RunSpec
from pens.settings.tree import MethodName, Settings
from pens.storage.runlog import ExperimentDir, ExperimentRecord
from pens.tasks.metric import Measure


@dataclass(frozen=True)
class Study(RunsByMethod):
    """An experiment and its complete runs, under a unique name."""

    name: str
    folder: Path
    record: ExperimentRecord
    runs: tuple[RunResult, ...]
    """The complete runs, by method and then by seed, in the order of the record."""

    @property
    def settings(self) -> Settings:
        return self.record.settings

    @property
    def missing(self) -> tuple[tuple[MethodName, int], ...]:
        """The runs that are not complete."""
        done = {(run.method, run.seed) for run in self.runs}
        planned = [(method, seed) for method in self.record.methods for seed in self.record.seeds]
        return tuple(run for run in planned if run not in done)

    @property
    def num_peers(self) -> int:
        return self.runs[0].num_peers

    @property
    def clusters_known(self) -> bool:
        return self.runs[0].clusters_known

    @property
    def metric(self) -> Measure:
        """What the runs measured: the main metric of the task."""
        return self.runs[0].metric

    @property
    def num_untested(self) -> int:
        """The number of peers whose score is on validation data, because they have no test data."""
        return max(len(run.untested) for run in self.runs)

    @property
    def has_own_data(self) -> bool:
        return "data" in self.record.own_parts

    def spec(self, run: RunResult) -> RunSpec:
        """The method and settings that decided a run."""
        return spec_of(run, self.settings)

    def spec_of(self, method: MethodName) -> RunSpec:
        """The method and settings that decided a method's runs, apart from their seeds."""
        return RunSpec.of(method_of(method), self.settings, 0)

    @property
    def pooled(self) -> tuple[MethodName, ...]:
        """The methods that train one learner on pooled data, whose work and rounds are not those of a peer."""
        return tuple(name for name in self.methods if method_of(name).pools_data)

    @property
    def alone(self) -> MethodName | None:
        """The method with which each peer trained alone; None where there is none."""
        return next((name for name in in_order(self.methods) if method_of(name).trains_alone), None)

    @property
    def selecting(self) -> list[MethodName]:
        """The methods whose peers select their neighbours."""
        return selecting(self.methods)


def read_studies(folders: Sequence[Path]) -> list[Study]:
    """Read the experiments of these folders, or of the folders in them, each named after its folder."""
    studies: list[Study] = []
    for folder in (run for named in folders for run in _run_directories(named)):
        place = folder.resolve()
        if any(study.folder.resolve() == place for study in studies):
            raise RunDirError(f"{folder} is named twice: name each run directory once")
        directory = ExperimentDir(folder)
        record, runs = directory.read(), tuple(directory.results())
        for run in runs:
            _check(folder, run, runs[0].num_peers)
        name = (
            place.parent.name if record.real_peers and place.name == "run" else place.name
        )  # `pens up` writes DIR/run
        studies.append(Study(_unique(name, studies), folder, record, runs))
    if not any(study.runs for study in studies):
        names = ", ".join(str(folder) for folder in folders)
        raise RunDirError(f"{names}: no run is complete yet, so there is nothing to report: pens run --resume DIR")
    return studies


def _run_directories(folder: Path) -> list[Path]:
    """The folder itself, if it is a run directory; otherwise the run directories in it, as in a folder of `pens
    reproduce`."""
    if ExperimentDir(folder).exists() or not folder.is_dir():
        return [folder]
    return sorted(f for f in folder.iterdir() if ExperimentDir(f).exists()) or [folder]


def _check(folder: Path, run: RunResult, num_peers: int) -> None:
    """Refuse a run whose files do not belong together, because files were exchanged or numbers were changed."""
    method, learners = method_of(run.method), len(run.communication.received)
    possible = {1, num_peers} if isinstance(method, Absent) else {method.num_learners(num_peers)}
    peers = (run.history.peer, run.pairs.receiver, run.pairs.sender)
    clusters = run.clusters
    fits = (
        run.num_peers == num_peers
        and (clusters is None or len(clusters) == num_peers)
        and all(UNKNOWN <= cluster < len(run.cluster_names) for cluster in clusters or ())
        and learners in possible
        and len(np.unique(run.history.peer)) == learners
        and all(column.min(initial=0) >= 0 and column.max(initial=0) < num_peers for column in peers)
        and (run.metric.unit != "%" or bool(np.isfinite(run.score).all()))
    )
    if not fits:
        place = folder / f"{run.method}-seed{run.seed}"
        raise RunDirError(
            f"{place}: its files do not belong together: delete that folder and resume, and this run starts anew"
        )


def _unique(name: str, studies: Sequence[Study]) -> str:
    taken = {study.name for study in studies}
    return next(n for i in range(1, len(studies) + 2) if (n := name if i == 1 else f"{name} ({i})") not in taken)

# SPDX-License-Identifier: Apache-2.0
"""Typed results: of one run, of an experiment with several runs, and as rows of its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import pyarrow as pa

from pens.data.preparation import Preparation
from pens.data.samples import Array
from pens.data.scenarios import UNKNOWN
from pens.errors import ResultError
from pens.inference.network_form import Model, NetworkForm
from pens.inference.peer_models import PeerModels
from pens.inference.predicting import BATCH
from pens.inference.tested import HasTestedModels
from pens.measuring.fairness import Fairness, cluster_means, fair_measure, fairness
from pens.measuring.metrics import Agreement, Interval, clusters_are_known, forward_passes, interval, worst_tenth
from pens.measuring.showing import as_html, as_text, percent
from pens.measuring.tabular import Tabular, joined
from pens.measuring.trust import TrustRecord
from pens.methods.names import method_of
from pens.methods.spec import RunSpec
from pens.partitions.partition import data_words
from pens.settings.schema import Distance
from pens.settings.tree import MethodName, RunSettings, Settings
from pens.tasks.metric import ACCURACY, Measure

_COUNTS = ("sent", "received", "refused", "merged", "scored")
_WHOLE = ("neighbours", "neighbours_in_cluster", "train_samples", "val_samples", *_COUNTS)
_PEER_COLUMNS = {"cluster": pa.string(), "gain": pa.float64(), **{name: pa.int64() for name in _WHOLE}}


@dataclass(frozen=True, repr=False)
class Communication:
    """The numbers of models that each peer sent, received, refused, merged and scored.  [peer] each"""

    sent: Array
    received: Array
    refused: Array
    merged: Array
    scored: Array
    model_bytes: int
    """The size of one model on the wire: 4 bytes per number, or less where numbers are rounded."""

    def __repr__(self) -> str:
        totals = ", ".join(f"{name} {int(getattr(self, name).sum()):,}" for name in _COUNTS)
        who, weight = f"{len(self.sent):,} participants", f"{self.model_bytes:,} bytes each"
        return f"Communication({who}; models in total: {totals}; {weight})"

    @property
    def bytes_sent(self) -> int:
        return int(self.sent.sum()) * self.model_bytes

    @property
    def bytes_received(self) -> int:
        return int(self.received.sum()) * self.model_bytes


@dataclass(frozen=True, repr=False)
class Pairs(Tabular):
    """What happened between pairs of peers, as sparse columns: only pairs that met have a row."""

    receiver: Array
    sender: Array
    merged: Array
    """How often the receiver merged a model of the sender."""
    selected: Array
    """How often the sender was among the receiver's top m."""
    sampled: Array
    """How often the receiver compared a model of the sender."""

    def merge_matrix(self, num_peers: int) -> Array:
        """Merge counts as a dense matrix, as in figure 2.  [receiver, sender]"""
        matrix = np.zeros((num_peers, num_peers), np.int64)
        matrix[self.receiver, self.sender] = self.merged
        return matrix


@dataclass(frozen=True, repr=False)
class History(Tabular):
    """All updates in order of virtual time, as columns of equal length."""

    time: Array
    """When the update was complete: virtual time, or round number (+ 0.5)."""
    peer: Array
    version: Array
    searching: Array
    """Whether early stopping did not apply yet: the first training and PENS step 1."""
    merged: Array
    train_loss: Array
    val_loss: Array
    val_accuracy: Array
    """The main metric of the task on validation data: accuracy in classification (`RunResult.metric` names it)."""
    received: Array | None = None
    """Models that the peer had received when the update began; None in records that are older than this column."""
    epochs: Array | None = None
    """Epochs of the training; 0 where the peer adopted the merged model. None in records that are older than this
    column."""

    @property
    def val_score(self) -> Array:
        """The column `val_accuracy`, whatever it measures."""
        return self.val_accuracy


@dataclass(frozen=True, repr=False)
class Comparisons(Tabular):
    """Step 1 of PENS round by round, as sparse columns: a row for each peer that was compared in a round."""

    receiver: Array
    round: Array
    """1, 2, …"""
    sender: Array
    sampled: Array
    """How often the receiver compared a model of the sender in that round."""
    selected: Array
    """How often the sender was among the top m."""


@dataclass(frozen=True)
class DataSizes:
    """The numbers of samples that each learner holds: each peer, or `central` alone.  [peer] each"""

    train: Array
    val: Array


@dataclass(frozen=True, repr=False)
class RunResult(Tabular, HasTestedModels):
    """The result of one method with one seed. As a table it has a row for each peer."""

    column_types = _PEER_COLUMNS

    method: MethodName
    seed: int
    score: Array
    """How good each peer's model is on test data of its own distribution, by the main metric of the task.  [peer]"""
    clusters: tuple[int, ...] | None
    """The cluster of each peer; None where it is not known, whichever way a record says so."""
    cluster_names: tuple[str, ...]
    agreement: Agreement | None
    """Precision and recall of the selected neighbours, where the method selects."""
    neighbours: Mapping[int, tuple[int, ...]]
    """The neighbours that each peer selected."""
    communication: Communication
    pairs: Pairs
    history: History
    models: PeerModels
    """The tested model of each peer: `models[peer]`, or of all {name: [peer, *shape]}; of a run that is on disk, read
    when asked for"""
    rounds: float
    """Virtual time at the end."""
    mean_batch: float
    """The number of updates computed at once, on average."""
    seconds: float
    """Wall-clock time without interruptions."""
    warnings: tuple[str, ...]
    device: str
    peak_memory_bytes: int
    """The peak memory of the tensors on a GPU during the run; on a CPU, that of the whole process until the end of the
    run."""
    comparisons: Comparisons | None = None
    """The comparisons of step 1; None where no peer compared models, and in records that are older than this field."""
    data_sizes: DataSizes | None = None
    step1_epochs: tuple[int, ...] | None = None
    """The epochs that each peer trains in a round of step 1, with `auto` resolved. None where there is no step 1, and
    in records that are older than this field."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of pens and of the libraries that computed the run; empty until it has been read from disk."""
    peer_names: tuple[str, ...] = ()
    """The names of real peers, and of peers whose record gave each a cluster of its own; empty where peers have
    numbers."""
    servers: Communication | None = None
    """What the method's servers sent, received and merged; None for a method without servers.  [server] each"""
    untested: tuple[int, ...] = ()
    """The real peers without test data: their score is the last one on their validation data."""
    attackers: tuple[int, ...] = ()
    """The peers of a simulation that attacked: means and the like are of the others."""
    trust: TrustRecord | None = None
    """What peers found that do not trust others' models; None where they do."""
    network: NetworkForm | None = None
    """Which network was trained, and on what inputs; None in records that are older than this."""
    preparation: Preparation | None = None
    """How the peers' inputs were prepared; None in records that are older than this."""
    metric: Measure = ACCURACY
    """What scores, and validation over time, are measured in: the main metric of the task."""
    further: Mapping[Measure, Array] = field(default_factory=dict)
    """The task's other metrics on test data.  [peer] each"""
    tested_forms: tuple[str, ...] = ()
    """Which form of its model each peer tested: merged, trained (fine-tuned) or alone (trained without others). Empty
    where peers do not choose between forms."""

    def __post_init__(self) -> None:
        clusters = self.clusters or ()
        if clusters_are_known(clusters, self.cluster_names):
            return
        if not self.peer_names and sorted(clusters) == list(range(len(self.cluster_names))):
            object.__setattr__(self, "peer_names", tuple(self.cluster_names[cluster] for cluster in clusters))
        for name, unknown in (("clusters", None), ("cluster_names", ()), ("agreement", None)):
            object.__setattr__(self, name, unknown)

    def __repr__(self) -> str:
        return as_text(self._title(), _cells([summarise((self,))]), self._notes())

    def _repr_html_(self) -> str:
        return as_html(self._title(), _cells([summarise((self,))]), self._notes())

    def _title(self) -> str:
        place = f"{self.seconds:,.1f} s on {self.device}"
        return f"RunResult: {self.method}, seed {self.seed}, {self.num_peers:,} peers, {place}"

    def _notes(self) -> list[str]:
        return [f"warning: {text}" for text in self.warnings[:3]] + (
            [f"… and {len(self.warnings) - 3} warnings more"] if len(self.warnings) > 3 else []
        )

    @property
    def num_peers(self) -> int:
        return len(self.score)

    @property
    def accuracy(self) -> Array:
        """The score, where that is an accuracy.  [peer]"""
        self._check_accuracy()
        return self.score

    @property
    def mean_accuracy(self) -> float:
        """The mean score, where that is an accuracy."""
        self._check_accuracy()
        return self.mean_score

    def _check_accuracy(self) -> None:
        if self.metric != ACCURACY:
            raise AttributeError(f"this run measured {self.metric.label()}, not accuracy: read `score`")

    @property
    def _of_honest(self) -> tuple[Array, tuple[int, ...] | None]:
        """The scores and clusters of the peers that did not attack."""
        if not self.attackers:
            return self.score, self.clusters
        honest = [peer for peer in range(self.num_peers) if peer not in self.attackers]
        return self.score[honest], self.clusters and tuple(self.clusters[peer] for peer in honest)

    @property
    def mean_score(self) -> float:
        """The mean over peers."""
        return float(self._of_honest[0].mean())

    @property
    def worst_tenth(self) -> float:
        """The mean score of the worst tenth of the peers, at least one."""
        return worst_tenth(self._of_honest[0], self.metric.higher_is_better)

    @property
    def cluster_scores(self) -> dict[str, float]:
        """The mean score of each cluster's peers, by the cluster's name; empty where clusters are not known."""
        return {self.cluster_names[of]: mean for of, mean in cluster_means(*self._of_honest).items()}

    @property
    def fairness(self) -> Fairness | None:
        """How evenly the clusters are served; None where they are not known."""
        return fairness(*self._of_honest, self.metric)

    @property
    def clusters_known(self) -> bool:
        return self.clusters is not None

    @property
    def cluster_sizes(self) -> dict[str, int]:
        """The number of peers of each cluster, in the order of clusters; empty where clusters are not known."""
        sizes = Counter(self.cluster_label(peer) for peer in range(self.num_peers))
        return {name: sizes[name] for name in self.cluster_names if sizes[name]}

    def columns(self) -> dict[str, Any]:
        """A row for each peer, with None for what is not known. A peer's neighbours are known where its method selects;
        what one learner for all did is not told as if each peer had done it."""
        peers = range(self.num_peers)
        chosen = [self.neighbours.get(peer) for peer in peers]
        sizes, traffic = self.data_sizes, self.communication
        return {
            "method": [self.method] * self.num_peers,
            "seed": [self.seed] * self.num_peers,
            "peer": list(peers),
            **({"name": list(self.peer_names)} if self.peer_names else {}),
            "cluster": [self.cluster_label(peer) or None for peer in peers],
            self.metric.name: self.score,
            **{measure.name: values for measure, values in self.further.items()},
            "neighbours": [None if own is None else len(own) for own in chosen],
            "neighbours_in_cluster": [
                None if own is None or not self.cluster_label(peer) else sum(map(self._same_cluster(peer), own))
                for peer, own in enumerate(chosen)
            ],
            "train_samples": self._of_peers(sizes.train if sizes else None),
            "val_samples": self._of_peers(sizes.val if sizes else None),
            **{name: self._of_peers(getattr(traffic, name)) for name in _COUNTS},
            **({"tested_form": list(self.tested_forms)} if self.tested_forms else {}),
            **({"attacker": [peer in self.attackers for peer in peers]} if self.attackers else {}),
            **({"tested": [peer not in self.untested for peer in peers]} if self.untested else {}),
        }

    def _same_cluster(self, peer: int) -> Callable[[int], bool]:
        """Whether another peer is of this peer's cluster."""
        return lambda other: self.cluster_label(other) == self.cluster_label(peer)

    def _of_peers(self, values: Array | None) -> list[Any]:
        """A column that each peer has a value of; unknown where one learner stands for all."""
        if values is None or len(values) != self.num_peers:
            return [None] * self.num_peers
        found: list[Any] = values.tolist()
        return found

    def cluster_label(self, peer: int) -> str:
        """The name of a peer's cluster; empty where it is not known."""
        if self.clusters is None or self.clusters[peer] == UNKNOWN:
            return ""
        return self.cluster_names[self.clusters[peer]]


@dataclass(frozen=True)
class Summary:
    """One row of the table: a method over all its seeds."""

    method: MethodName
    seeds: int
    score: Interval
    """The main metric of the task: accuracy in classification."""
    worst_tenth: Interval
    precision: Interval | None
    recall: Interval | None
    models_merged: float
    """Models merged per peer."""
    mean_batch: float
    seconds: float
    """The seconds of all seeds together."""
    models_received: float = 0.0
    """Models received per peer, merged or not."""
    bytes_received: float = 0.0
    """Bytes of models received per peer."""
    work: float | None = None
    """Forward passes of one sample per peer (`metrics.forward_passes`); None where the record does not tell."""
    further: tuple[Interval, ...] = ()
    """The task's other metrics."""
    worst_cluster: Interval | None = None
    """The mean score of the worst cluster of each run; None where clusters are not known, as for the next two."""
    gap: Interval | None = None
    """By how much the best cluster is better than the worst one."""
    fair: Interval | None = None
    """Fair accuracy (`fairness.fair_score`)."""

    @property
    def accuracy(self) -> Interval:
        """The score, where that is an accuracy."""
        if self.score.measure != ACCURACY:
            raise AttributeError(f"these runs measured {self.score.measure.label()}, not accuracy: read `score`")
        return self.score


class RunsByMethod:
    """Base class of results that hold runs of several methods, and find them by method."""

    runs: tuple[RunResult, ...]

    @property
    def methods(self) -> tuple[MethodName, ...]:
        """The methods of the runs, in the order in which they were run."""
        return tuple(dict.fromkeys(run.method for run in self.runs))

    def of(self, method: MethodName) -> tuple[RunResult, ...]:
        """The runs of a method, one per seed."""
        return tuple(run for run in self.runs if run.method == method)

    def by_method(self) -> list[tuple[RunResult, ...]]:
        """The runs of each method."""
        return [self.of(method) for method in self.methods]


@dataclass(frozen=True, repr=False)
class ExperimentResult(RunsByMethod, Tabular):
    """All runs of an experiment. As a table it has a row for each method, seed and peer."""

    column_types = _PEER_COLUMNS

    settings: Settings
    runs: tuple[RunResult, ...]
    folder: Path | None = None
    own_parts: tuple[str, ...] = ()
    """Parts that were Python objects of the user's own: "model", "data"."""
    missing: tuple[tuple[MethodName, int], ...] = ()
    """Runs, each by its method and seed, that are not complete."""

    def __repr__(self) -> str:
        return as_text(self._title(), _cells(self.table), self._notes())

    def _repr_html_(self) -> str:
        return as_html(self._title(), _cells(self.table), self._notes())

    def _title(self) -> str:
        """ExperimentResult: digits, two rotations, 20 peers, 4 seeds"""
        data = "own data" if "data" in self.own_parts else data_words(self.settings)
        peers = self.runs[0].num_peers if self.runs else self.settings.scenario.peers
        seeds = len({run.seed for run in self.runs})
        return f"ExperimentResult: {data}, {peers:,} peers, {seeds} seed{'' if seeds == 1 else 's'}"

    def _notes(self) -> list[str]:
        notes = [f"folder: {self.folder}"] if self.folder else []
        if self.missing:
            runs = ", ".join(f"{method} seed {seed}" for method, seed in self.missing)
            notes.insert(
                0, f"{len(self.missing)} of {len(self.missing) + len(self.runs)} runs are not complete: {runs}"
            )
        return notes

    def summary(self, method: MethodName) -> Summary:
        """Summarise a method over its seeds."""
        return summarise(self.of(method), self.settings)

    @property
    def table(self) -> tuple[Summary, ...]:
        """One row per method, in the order in which they were run."""
        return tuple(self.summary(method) for method in self.methods)

    @property
    def by_run(self) -> RunTable:
        """One row per method and seed: what each run reached and cost, the fairness between clusters included."""
        return RunTable(self.runs, self.settings)

    def run_of(self, method: MethodName | None = None, seed: int | None = None) -> RunResult:
        """The run of a method with a seed; neither need be given where there is only one."""
        found = [run for run in self.runs if method in (None, run.method) and seed in (None, run.seed)]
        if len(found) == 1:
            return found[0]
        wanted = f"{f' of {method}' if method else ''}{'' if seed is None else f' with seed {seed}'}"
        seeds = ", ".join(map(str, dict.fromkeys(run.seed for run in self.runs)))
        there = f"methods {', '.join(self.methods)}; seeds {seeds}" if self.runs else "none that is complete"
        raise ResultError(
            f"there are {len(found)} runs{wanted}: choose one by method= and seed=. There are {there}"
            if found
            else f"there is no run{wanted}: there are {there}"
        )

    @property
    def models(self) -> PeerModels:
        """The tested models of the only run there is; of one run of several, `run_of(method, seed).models`."""
        return self.run_of().models

    def scores(
        self,
        peer: int | str,
        x: Any,
        *,
        method: MethodName | None = None,
        seed: int | None = None,
        standardised: bool = False,
        model: Model | None = None,
        batch_size: int = BATCH,
    ) -> Array:
        """What a peer's tested model of one run returns for new samples.  x [sample, ...] → [sample, class]"""
        return self.run_of(method, seed).scores(peer, x, standardised=standardised, model=model, batch_size=batch_size)

    def predict(
        self,
        peer: int | str,
        x: Any,
        *,
        method: MethodName | None = None,
        seed: int | None = None,
        standardised: bool = False,
        model: Model | None = None,
        batch_size: int = BATCH,
    ) -> Array:
        """The class that a peer's tested model of one run gives each new sample.  x [sample, ...] → [sample]"""
        return self.run_of(method, seed).predict(peer, x, standardised=standardised, model=model, batch_size=batch_size)

    def export(
        self,
        peer: int | str,
        path: Path | str,
        *,
        format: str = "state_dict",
        method: MethodName | None = None,
        seed: int | None = None,
        standardised: bool = False,
        model: Model | None = None,
    ) -> Path:
        """Write a peer's tested model of one run to a file (`RunResult.export`)."""
        return self.run_of(method, seed).export(peer, path, format=format, standardised=standardised, model=model)

    def columns(self) -> dict[str, Any]:
        """The rows of all runs, each peer with its gain over training alone with the same seed, where that was run."""
        alone = {run.seed: run for run in self.runs if method_of(run.method).trains_alone}
        return joined([_with_gain(run, alone.get(run.seed)) for run in self.runs])


class RunTable(Tabular):
    """Runs as a table with a row for each."""

    column_types: ClassVar[Mapping[str, pa.DataType]] = {
        name: pa.float64() for name in ("worst_cluster", "gap", "fair", "forward_passes")
    }

    def __init__(self, runs: Sequence[RunResult], settings: Settings) -> None:
        self._rows = [run_row(run, spending(run, spec_of(run, settings))) for run in runs]

    def columns(self) -> Mapping[str, Any]:
        return joined([{name: [value] for name, value in row.items()} for row in self._rows])


def run_row(run: RunResult, spent: Spending) -> dict[str, Any]:
    """What one run reached and cost, as numbers by their names. None stands for what is not known."""
    evenly = run.fairness
    return {
        "method": run.method,
        "seed": run.seed,
        run.metric.name: run.mean_score,
        "worst_tenth": run.worst_tenth,
        "worst_cluster": evenly and evenly.worst,
        "gap": evenly and evenly.gap,
        "fair": evenly and evenly.fair,
        "models_received": spent.models_received,
        "bytes_received": spent.bytes_received,
        "forward_passes": spent.work,
        "seconds": run.seconds,
    }


def _cells(rows: Sequence[Summary]) -> dict[str, list[str]]:
    """The table of summaries as text, without columns of which nothing is known."""
    measure = rows[0].score.measure if rows else ACCURACY
    further = [of.measure.label() for of in rows[0].further] if rows else []
    columns = {
        "method": [row.method for row in rows],
        measure.label(): [percent(row.score) for row in rows],
        **{name: [percent(row.further[i]) for row in rows] for i, name in enumerate(further)},
        f"worst tenth {measure.unit}".rstrip(): [percent(row.worst_tenth) for row in rows],
        "precision %": [percent(row.precision) for row in rows],
        "recall %": [percent(row.recall) for row in rows],
        "models received": [f"{row.models_received:,.0f}" for row in rows],
        "work, k passes": ["–" if row.work is None else f"{row.work / 1e3:,.0f}" for row in rows],
    }
    return {heading: cells for heading, cells in columns.items() if set(cells) != {"–"}}


def _with_gain(run: RunResult, alone: RunResult | None) -> dict[str, Any]:
    """A run's columns, with what each peer gained over the run in which it trained alone."""
    columns = run.columns()
    can = alone is not None and alone.num_peers == run.num_peers
    gain = run.metric.goodness(1) * (run.score - alone.score) if alone is not None and can else None
    place = list(columns).index(run.metric.name) + 1
    items = list(columns.items())
    return dict([*items[:place], ("gain", run._of_peers(gain)), *items[place:]])


def summarise(runs: tuple[RunResult, ...], settings: Settings | None = None) -> Summary:
    """Summarise the runs of one method as a row of the table. Without the experiment's settings, work is None."""
    if not runs:
        raise KeyError("no run of that method")
    agreements = [run.agreement for run in runs if run.agreement]
    spent = [spending(run, spec_of(run, settings) if settings else None) for run in runs]
    return Summary(
        method=runs[0].method,
        seeds=len(runs),
        score=interval([run.mean_score for run in runs], runs[0].metric),
        worst_tenth=interval([run.worst_tenth for run in runs], runs[0].metric),
        precision=interval([a.precision for a in agreements]) if agreements else None,
        recall=interval([a.recall for a in agreements]) if agreements else None,
        models_merged=float(np.mean([run.communication.merged.mean() for run in runs])),
        mean_batch=float(np.mean([run.mean_batch for run in runs])),
        seconds=sum(run.seconds for run in runs),
        models_received=float(np.mean([each.models_received for each in spent])),
        bytes_received=float(np.mean([each.bytes_received for each in spent])),
        work=mean_or_none([each.work for each in spent]),
        further=_further(runs),
        **_evenness(runs),
    )


def _evenness(runs: Sequence[RunResult]) -> dict[str, Interval | None]:
    """The worst cluster, the gap between clusters and fair accuracy over seeds, as far as they are known."""
    evenly, measure = [of for run in runs if (of := run.fairness)], runs[0].metric
    if len(evenly) < len(runs):
        return {}
    fair = [of.fair for of in evenly if of.fair is not None]
    return {
        "worst_cluster": interval([of.worst for of in evenly], measure),
        "gap": interval([of.gap for of in evenly], measure),
        "fair": interval(fair, fair_measure(measure)) if fair else None,
    }


def _further(runs: Sequence[RunResult]) -> tuple[Interval, ...]:
    """The metrics beside the main one that all runs have, over seeds."""
    shared = [measure for measure in runs[0].further if all(measure in run.further for run in runs)]
    return tuple(interval([float(run.further[measure].mean()) for run in runs], measure) for measure in shared)


def mean_or_none(values: Sequence[float | None]) -> float | None:
    """The mean of values; None where any of them is None."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def spec_of(run: RunResult, settings: Settings) -> RunSpec:
    """The method and settings that decided a run of an experiment with these settings."""
    return RunSpec.of(method_of(run.method), settings, run.seed)


# --- what a run costs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spending:
    """The cost of a run per peer. The work of a learner that all peers share is divided among the peers whose data it
    trains on."""

    models_received: float
    bytes_received: float
    work: float | None
    """Forward passes of one sample; None where the record does not tell how many samples each peer holds."""


@dataclass(frozen=True)
class UpdateWork:
    """The work of each update of a run, in forward passes of one sample.  [update] each"""

    training: Array
    validation: Array


def spending(run: RunResult, spec: RunSpec | None) -> Spending:
    """The cost of a run per peer. Without `spec`, which decides the work, work is None."""
    peers, traffic = run.num_peers, run.communication
    work = work_of(run, spec) if spec else None
    return Spending(
        float(traffic.received.sum()) / peers,
        traffic.bytes_received / peers,
        None if work is None else sum(work),
    )


def work_of(run: RunResult, spec: RunSpec, sizes: DataSizes | None = None) -> tuple[float, float, float] | None:
    """Forward passes per peer for training, for validation and for scoring others' models (`metrics.forward_passes`);
    None where the record does not tell how many samples each peer holds, and `sizes` does not either."""
    sizes = sizes or run.data_sizes
    if sizes is None:
        return None
    updates = work_of_updates(run, spec, sizes)
    totals = updates.training.sum(), updates.validation.sum(), scoring_work(run, spec.settings, sizes).sum()
    training, validation, scoring = (float(total) / run.num_peers for total in totals)
    return training, validation, scoring


def work_of_updates(run: RunResult, spec: RunSpec, sizes: DataSizes) -> UpdateWork:
    """The work of training and of validation in each update."""
    peer = run.history.peer
    trained = epochs_of_updates(run, spec) * sizes.train[peer]
    return UpdateWork(forward_passes(1, 0, 0) * trained, forward_passes(0, 1, 0) * sizes.val[peer])


def epochs_of_updates(run: RunResult, spec: RunSpec) -> Array:
    """The epochs of each update, as recorded or, in older records, as the settings say.  [update]"""
    history, settings = run.history, spec.settings
    if history.epochs is not None:
        return history.epochs
    is_first_training = (history.version == 1) & settings.training.train_first
    in_step1 = history.searching & ~is_first_training & spec.method.selects
    step1 = np.array(run.step1_epochs)[history.peer] if run.step1_epochs else settings.step1_epochs
    return np.where(in_step1, step1, settings.training.epochs)


def samples_per_score(settings: RunSettings, sizes: DataSizes) -> Array:
    """The number of samples on which each peer scores one model in step 1; none where it compares models by how far
    they lie from its own.  [peer]"""
    return np.zeros_like(sizes.train) if settings.pens.score in get_args(Distance) else _asked_on(settings, sizes)


def _asked_on(settings: RunSettings, sizes: DataSizes) -> Array:
    """The number of samples on which each peer scores one model, where it does.  [peer]"""
    held = sizes.train if settings.pens.score_on == "train" else sizes.val
    return held if settings.pens.score_samples is None else np.minimum(held, settings.pens.score_samples)


def scoring_work(run: RunResult, settings: RunSettings, sizes: DataSizes) -> Array:
    """The forward passes for scoring other peers' models: in step 1 and, where strangers were scored after it, on
    validation data.  [peer]"""
    scored = run.communication.scored
    compared, samples = scored, _asked_on(settings, sizes)
    if run.comparisons is not None:
        compared = np.bincount(run.comparisons.receiver, run.comparisons.sampled, len(scored))
        samples = samples_per_score(settings, sizes)
    judged = np.maximum(0, scored - compared)
    passes: Array = forward_passes(0, 0, 1) * (compared * samples + judged * sizes.val)
    return passes

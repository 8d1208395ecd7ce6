# SPDX-License-Identifier: Apache-2.0
"""The records of peers as one run directory, which `pens show` and `pens report` read like that of a simulation.

    PEER/peer.json             the peer: name, settings, seed, sizes of its data, its cluster where it is known, and its
                               own parts: "model" and "data", if it brought them
    PEER/preparation.json      what its own inputs were standardised by, if they were and it shows that
    PEER/history.parquet       its updates: `results.History`; times are seconds since it first started
    PEER/pairs.json            {sender: {merged, selected, sampled}}
    PEER/comparisons.parquet   step 1 round by round, if it was recorded: round, sender, sampled, selected
    PEER/models.safetensors    the model that it keeps
    PEER/result.json           test accuracy, neighbours, counts; `final` once the peer exited cleanly

Peers know each other by name; `compose` numbers them 0, 1, … in the order of their names. A peer counts seconds since
its own start; `compose` converts all times to the clock of the first. No peer knows the clusters of all: whether the
neighbours are right is only told where the clusters of all peers are on record.

A peer that was killed is included with the records that it left, and a warning tells so. If it has no test accuracy,
the last accuracy on its validation data takes its place. A peer without a complete update is left out, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import safetensors
import torch
from torch import Tensor

from pens.data.own_sources import older_preparation
from pens.data.preparation import Preparation
from pens.data.samples import Array
from pens.errors import PensError, RunDirError
from pens.experiment.defaults import PAPERS_METHOD
from pens.inference.network_form import NetworkForm
from pens.inference.peer_models import PeerModels
from pens.measuring.metrics import neighbour_agreement
from pens.measuring.records import HISTORY_TYPES, PAIR_COUNTS
from pens.measuring.results import Communication, Comparisons, DataSizes, History, Pairs, RunResult
from pens.measuring.trust import Dropped, TrustRecord, summed
from pens.methods.names import recall
from pens.network.federation.foreign_files import read_json, read_model, read_table
from pens.partitions.partition import partition_of
from pens.parts import is_name
from pens.printable import printable
from pens.protocol.messages import PeerId
from pens.settings.reading import stored_settings
from pens.settings.tree import MethodName, Settings
from pens.storage.runlog import ExperimentDir, ExperimentRecord
from pens.tasks.metric import Measure
from pens.tasks.task import task_of

T = TypeVar("T")

COUNTS = ("sent", "received", "refused", "merged", "scored")
_OF_ONE_PEER = [name for name in HISTORY_TYPES if name != "peer"]
_LATER = ("epochs",)
"""Columns that older records lack."""


def compose(folders: Sequence[Path], out: Path) -> RunResult:
    """Write one run of all these peers, to a new run directory or to that of other methods or seeds."""
    readers = [_Reader(folder) for folder in folders]
    peers = sorted((peer for reader in readers if (peer := reader.read())), key=lambda peer: peer.name)
    notes = [text for reader in readers for text in reader.notes]
    if not peers:
        raise RunDirError("; ".join([f"there is no complete update of any peer in {len(folders)} folder(s)", *notes]))
    if len({peer.name for peer in peers}) < len(peers):
        raise RunDirError(
            f"two folders belong to one peer: {', '.join(peer.name for peer in peers)}: name each peer's folder once"
        )
    for peer in peers[1:]:
        if _decisive(peer.settings) != _decisive(peers[0].settings):
            notes.append(f"{peer.name}: its settings differ from those of {peers[0].name}, which are shown")
        ours, others = (of.preparation.columns if of.preparation else () for of in (peer, peers[0]))
        if ours and others and ours != others:
            notes.append(
                f"{peer.name}: its features are {', '.join(ours)}, but those of {peers[0].name} {', '.join(others)}: "
                "their models do not fit together; give all tables the same columns in the same order"
            )
    result = _run_result(peers, notes)
    _save(result, peers, ExperimentDir(out))
    return result


def _decisive(settings: Settings) -> dict[str, Any]:
    """The settings that all peers of a federation must share."""
    tree = settings.model_dump()
    del tree["engine"], tree["gossip"]["wire"]
    return tree


def _save(result: RunResult, peers: Sequence[PeerRecord], directory: ExperimentDir) -> None:
    settings = peers[0].settings.replace({"peers": max(2, len(peers))})
    own_parts = tuple(sorted({part for peer in peers for part in peer.own_parts}))
    references = {name: place for peer in peers for name, place in peer.references.items()}
    record = ExperimentRecord(
        settings, (result.method,), (result.seed,), own_parts, real_peers=True, references=references
    )
    if directory.exists():
        directory.add(record)
    else:
        directory.create(record)
    directory.run(result.method, result.seed).save(result)


# --- one peer ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeerRecord:
    """The records of one peer."""

    name: str
    settings: Settings
    metric: Measure
    method: MethodName
    seed: int
    cluster: str | None
    started: float
    """Seconds since 1970; 0 where it is not on record."""
    train_samples: int
    val_samples: int
    step1_epochs: int | None
    device: str
    own_parts: tuple[str, ...]
    history: Mapping[str, Array]
    pairs: Mapping[str, Mapping[str, int]]
    """How often models of each sender were merged, selected and sampled."""
    comparisons: Mapping[str, Array] | None
    model: Mapping[str, Tensor]
    accuracy: float
    """What the main metric of the task says; accuracy in classification."""
    tested: bool
    """Whether `accuracy` is that on test data; otherwise it is the last one on validation data."""
    further: Mapping[Measure, float]
    """The task's other metrics on test data, as far as they are on record."""
    neighbours: tuple[str, ...] | None
    counts: Mapping[str, int]
    bytes_sent: int
    seconds: float
    peak_memory_bytes: int
    references: Mapping[MethodName, str] = field(default_factory=dict)
    """The place of its method, if it was given by reference."""
    network: NetworkForm | None = None
    """Its network; None in records that are older than this."""
    preparation: Preparation | None = None
    """How its own inputs were prepared; likewise."""
    trust: TrustRecord | None = None
    """How others' models did, but for whom it dropped; None where it trusts them."""
    dropped: tuple[tuple[float, str], ...] = ()
    """When it dropped whom, on its own clock."""

    @property
    def num_updates(self) -> int:
        return len(self.history["version"])


@dataclass
class _Reader:
    """Reads one peer's folder, and notes what is missing or damaged."""

    folder: Path
    notes: list[str] = field(default_factory=list)

    def read(self) -> PeerRecord | None:
        """The records of the peer; None if it completed no update."""
        card, history = self._try("peer.json", read_json), self._try("history.parquet", _read_history)
        if card is None or history is None or not len(history["version"]):
            self.notes.append(f"{self.folder.name}: the peer completed no update, so it is not shown")
            return None
        result = self._try("result.json", read_json) or {}
        pairs = self._try("pairs.json", read_json) or {}
        model = self._try("models.safetensors", read_model) or {}
        compared = (self.folder / "comparisons.parquet").exists()
        comparisons = self._try("comparisons.parquet", read_table) if compared else None
        if (self.folder / "preparation.json").exists():
            card = {**card, "preparation": self._try("preparation.json", read_json) or card.get("preparation")}
        try:
            record = _record(card, history, result, pairs, comparisons, model)
        except (KeyError, TypeError, ValueError, AttributeError, PensError) as error:
            why = printable(repr(error), 300)
            raise RunDirError(
                f"{self.folder}: not the records of a peer of this version of pens: {why}. Leave this folder out"
            ) from None
        self._note_what_is_missing(record, result)
        return record

    def _note_what_is_missing(self, record: PeerRecord, result: Mapping[str, Any]) -> None:
        if not result.get("final", False):
            self.notes.append(f"{record.name}: exited uncleanly; shown as it was after {record.num_updates} updates")
        name = record.metric.name
        if not record.tested:
            self.notes.append(f"{record.name}: has no test {name}; its last {name} on validation data takes its place")
        self.notes += [f"{record.name}: {text}" for text in result.get("warnings", ())]

    def _try(self, name: str, read: Callable[[Path], T]) -> T | None:
        try:
            return read(self.folder / name)
        except FileNotFoundError:
            self.notes.append(f"{self.folder.name}: there is no {name}")
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException, safetensors.SafetensorError) as error:
            self.notes.append(f"{self.folder.name}: {name} cannot be read: {printable(error, 300)}")
        return None


def _record(
    card: Mapping[str, Any],
    history: Mapping[str, Array],
    result: Mapping[str, Any],
    pairs: Mapping[str, Mapping[str, int]],
    comparisons: Mapping[str, Array] | None,
    model: Mapping[str, Tensor],
) -> PeerRecord:
    recall(references := card.get("references", {}))  # before the settings, which may have sections of theirs
    settings = stored_settings(card["settings"])
    (metric, *others), neighbours = (of.measure for of in task_of(settings).metrics), result.get("neighbours")
    further = result.get("further", {})
    accuracy = result.get(metric.key("accuracy"))
    sizes = card.get("data_sizes") or {"train": 0, "val": 0}
    trust = result.get("trust")
    return PeerRecord(
        name=printable(card["name"]),
        settings=settings,
        metric=metric,
        method=_method_name(card),
        references=references,
        seed=int(card["seed"]),
        cluster=_cluster_of(card),
        started=float(card.get("started", 0.0)),
        train_samples=int(sizes["train"]),
        val_samples=int(sizes["val"]),
        step1_epochs=int(card["step1_epochs"]) if card.get("step1_epochs") else None,
        device=str(card.get("device", "cpu")),
        own_parts=_own_parts(card),
        history=history,
        pairs={
            printable(sender): {name: int(counts.get(name, 0)) for name in PAIR_COUNTS}
            for sender, counts in pairs.items()
        },
        comparisons=comparisons,
        model=model,
        accuracy=float(history["val_accuracy"][-1] if accuracy is None else accuracy),
        tested=accuracy is not None,
        further={measure: float(further[measure.name]) for measure in others if measure.name in further},
        neighbours=None if neighbours is None else tuple(map(printable, neighbours)),
        counts={name: int(result.get(name, 0)) for name in COUNTS},
        bytes_sent=int(result.get("bytes_sent", 0)),
        seconds=float(result.get("seconds", history["time"][-1])),
        peak_memory_bytes=int(result.get("peak_memory_bytes", 0)),
        network=NetworkForm.from_json(card["network"]) if "network" in card else None,
        preparation=Preparation.from_json(card["preparation"]) if "preparation" in card else None,
        trust=TrustRecord.of_json({**trust, "dropped": []}) if trust else None,
        dropped=tuple((float(time), str(other)) for time, other in trust["dropped"]) if trust else (),
    )


def _method_name(card: Mapping[str, Any]) -> MethodName:
    """The name of the peer's method, which need not be installed here. Older versions had one method, and no name."""
    name = card.get("method", PAPERS_METHOD)
    if not is_name(name):
        raise ValueError(f"its method is {name!r}, which cannot be a name")
    return str(name)


def _cluster_of(card: Mapping[str, Any]) -> str | None:
    """The name of a peer's cluster, where it is on record; older versions call it its kind."""
    name = card.get("cluster") or card.get("kind")
    return str(name) if name else None


def _own_parts(card: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts that a peer brought itself. Older versions do not record them; but a peer whose data are a share of the
    scenario's has its cluster on record, so that one without it brought its own data."""
    if "own_parts" in card:
        return tuple(map(str, card["own_parts"]))
    return () if _cluster_of(card) else ("data",)


def _read_history(path: Path) -> dict[str, Array]:
    """A peer's updates in the order of versions."""
    columns = read_table(path)
    order = np.argsort(columns["version"], kind="stable")
    names = [name for name in _OF_ONE_PEER if name in columns or name not in _LATER]
    return {name: columns[name].astype(HISTORY_TYPES[name])[order] for name in names}


# --- all peers --------------------------------------------------------------------------------------------------------


def _run_result(peers: Sequence[PeerRecord], notes: Sequence[str]) -> RunResult:
    numbers = {peer.name: number for number, peer in enumerate(peers)}
    names = [peer.cluster for peer in peers if peer.cluster is not None]
    known = len(names) == len(peers)
    cluster_names = _cluster_names(names, peers[0].settings) if known else ()
    clusters = tuple(cluster_names.index(name) for name in names) if known else None
    neighbours = {
        PeerId(numbers[peer.name]): tuple(PeerId(numbers[n]) for n in peer.neighbours if n in numbers)
        for peer in peers
        if peer.neighbours is not None
    }
    history = _history(peers)
    return RunResult(
        method=peers[0].method,
        seed=peers[0].seed,
        score=np.array([peer.accuracy for peer in peers]),
        metric=peers[0].metric,
        further={
            measure: np.array([peer.further[measure] for peer in peers])
            for measure in peers[0].further
            if all(measure in peer.further for peer in peers)
        },
        clusters=clusters,
        cluster_names=cluster_names,
        agreement=neighbour_agreement(neighbours, clusters),
        neighbours={int(peer): tuple(map(int, chosen)) for peer, chosen in neighbours.items()},
        communication=_communication(peers),
        pairs=_pairs(peers, numbers),
        history=history,
        models=PeerModels(_models(peers), [peer.name for peer in peers]),
        rounds=float(history.time.max()),
        mean_batch=1.0,
        seconds=max(peer.seconds for peer in peers),
        warnings=tuple(notes),
        device=", ".join(dict.fromkeys(peer.device for peer in peers)),
        peak_memory_bytes=max(peer.peak_memory_bytes for peer in peers),
        comparisons=_comparisons(peers, numbers),
        data_sizes=_data_sizes(peers),
        peer_names=tuple(peer.name for peer in peers),
        untested=tuple(number for number, peer in enumerate(peers) if not peer.tested),
        step1_epochs=_step1_epochs(peers),
        network=next((peer.network for peer in peers if peer.network), None),
        preparation=_preparation(peers),
        trust=_trust(peers, numbers),
    )


def _preparation(peers: Sequence[PeerRecord]) -> Preparation | None:
    """How the inputs of all peers were prepared; of those that do not record it, what their settings say of it.

    Features have names where all peers call them alike."""
    known = [peer.preparation or older_preparation(peer.settings, peer.own_parts) for peer in peers]
    if not any(known):
        return None
    standards = tuple(of.standard_of(0) if of else None for of in known)
    columns = {of.columns if of else () for of in known}
    return Preparation(
        columns.pop() if len(columns) == 1 else (),
        standards if any(standards) else (),
        any(of.lost for of in known if of),
    )


def _data_sizes(peers: Sequence[PeerRecord]) -> DataSizes | None:
    """The sizes of the peers' data; None if they are missing for one of them."""
    if not all(peer.train_samples for peer in peers):
        return None
    return DataSizes(np.array([peer.train_samples for peer in peers]), np.array([peer.val_samples for peer in peers]))


def _step1_epochs(peers: Sequence[PeerRecord]) -> tuple[int, ...] | None:
    epochs = tuple(peer.step1_epochs for peer in peers if peer.step1_epochs is not None)
    return epochs if len(epochs) == len(peers) else None


def _cluster_names(names: Sequence[str], settings: Settings) -> tuple[str, ...]:
    """Clusters in the order of the partition, otherwise in the order of the peers.  names [peer]"""
    listed = list(partition_of(settings).cluster_sizes(settings) or ())
    known = dict.fromkeys(names)
    return tuple(sorted(known, key=lambda cluster: listed.index(cluster) if cluster in listed else len(listed)))


def _communication(peers: Sequence[PeerRecord]) -> Communication:
    sent = sum(peer.counts["sent"] for peer in peers)
    numbers_bytes = 4 * sum(t.numel() for t in peers[0].model.values())
    weight = round(sum(peer.bytes_sent for peer in peers) / sent) if sent else numbers_bytes
    return Communication(
        **{name: np.array([peer.counts[name] for peer in peers]) for name in COUNTS}, model_bytes=weight
    )


def _trust(peers: Sequence[PeerRecord], numbers: Mapping[str, int]) -> TrustRecord | None:
    """How others' models did, and which of the peers that are shown dropped each other."""
    first = _first_start(peers)
    dropped = [
        Dropped(peer.started - first + time, numbers[peer.name], numbers[other])
        for peer in peers
        for time, other in peer.dropped
        if other in numbers
    ]
    return summed([peer.trust for peer in peers if peer.trust], dropped)


def _first_start(peers: Sequence[PeerRecord]) -> float:
    """When the common clock began, in seconds since 1970."""
    return min(peer.started for peer in peers)


def _history(peers: Sequence[PeerRecord]) -> History:
    """All updates in order of time, on the clock of the peer that started first."""
    first = _first_start(peers)
    names = [name for name in _OF_ONE_PEER if all(name in peer.history for peer in peers)]
    columns = {name: np.concatenate([peer.history[name] for peer in peers]) for name in names}
    columns["time"] += np.repeat([p.started - first for p in peers], [p.num_updates for p in peers])
    columns["peer"] = np.repeat(np.arange(len(peers)), [p.num_updates for p in peers])
    order = np.lexsort((columns["peer"], columns["time"]))
    return History(**{name: column[order] for name, column in columns.items()})


def _pairs(peers: Sequence[PeerRecord], numbers: Mapping[str, int]) -> Pairs:
    """Pairs of peers that are shown, in the order of receivers and senders."""
    rows = sorted(
        (receiver, numbers[sender], *(counts[name] for name in PAIR_COUNTS))
        for receiver, peer in enumerate(peers)
        for sender, counts in peer.pairs.items()
        if sender in numbers
    )
    table = np.array(rows, np.int64).reshape(-1, 5)
    return Pairs(*table.T)


def _comparisons(peers: Sequence[PeerRecord], numbers: Mapping[str, int]) -> Comparisons | None:
    """Comparisons among peers that are shown; None if a peer that compared did not record them."""
    if any(peer.counts["scored"] and peer.comparisons is None for peer in peers):
        return None
    rows = sorted(
        (receiver, int(round_), numbers[sender], int(sampled), int(selected))
        for receiver, peer in enumerate(peers)
        if peer.comparisons is not None
        for round_, sender, sampled, selected in zip(
            *(peer.comparisons[name] for name in ("round", "sender", "sampled", "selected")), strict=True
        )
        if sender in numbers
    )
    return Comparisons(*np.array(rows, np.int64).T) if rows else None


def _models(peers: Sequence[PeerRecord]) -> dict[str, Tensor]:
    """{name: [peer, *shape]}; NaN where a peer left no model, or one unlike most. A tensor that is the same of
    all peers, as what is frozen, is held once."""
    shapes = [_shapes(peer.model) for peer in peers if peer.model]
    usual = max(
        shapes, key=shapes.count, default=()
    )  # so that a file that differs makes no room for itself at all peers
    example = next(
        (peer.model for peer in peers if {(n, tuple(t.shape)) for n, t in peer.model.items()} == {*usual}), {}
    )
    models = {}
    for name, tensor in example.items():
        missing = torch.full_like(tensor, torch.nan) if tensor.is_floating_point() else torch.zeros_like(tensor)
        left = [peer.model.get(name, missing) for peer in peers]
        left = [t if t.shape == tensor.shape else missing for t in left]
        same = all(t.equal(tensor) for t in left)
        models[name] = tensor.expand(len(left), *tensor.shape) if same else torch.stack(left)
    return models


def _shapes(model: Mapping[str, Tensor]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(sorted((name, tuple(tensor.shape)) for name, tensor in model.items()))

# SPDX-License-Identifier: Apache-2.0
"""Run directories: what a run leaves on disk, and how it is continued.

    DIR/experiment.json             settings, methods, seeds: all that decides the results
    DIR/pens-seed0/                 one run
        checkpoint.safetensors      while it runs: the whole state, replaced at once
        history.parquet             every update: time, peer, losses, the main metric on validation data
        pairs.parquet               who merged, selected and compared whose models, and how often
        comparisons.parquet         step 1 of PENS round by round; only where peers compare
        models.safetensors          every peer's tested model, {name: [peer, ...]}
        result.json                 everything else; written last, so its presence means that the run is complete

Every file is written beside its place and then moved there, so that a stopped run leaves only whole files.
"""

from __future__ import annotations

import json
import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import save_file
from torch import Tensor

from pens.data.preparation import Preparation
from pens.errors import PensError, RunDirError
from pens.inference.network_form import NetworkForm
from pens.inference.peer_models import PeerModels
from pens.measuring.metrics import Agreement
from pens.measuring.results import Communication, Comparisons, DataSizes, ExperimentResult, History, Pairs, RunResult
from pens.measuring.trust import TrustRecord
from pens.methods.names import recall, with_sections
from pens.partitions.partition import data_words
from pens.parts import is_name
from pens.settings.reading import stored_settings
from pens.settings.tree import MethodName, Settings
from pens.storage.checkpoint import Checkpoint, encode_state, opened
from pens.storage.files import read_json, replace_file, write_json
from pens.tasks.metric import ACCURACY, Measure
from pens.version import VERSION

FORMAT = 1
RULES = 5
"""The version of what settings mean. It rises when equal settings come to give other results; runs with different rules
are not mixed."""


@dataclass(frozen=True)
class ExperimentRecord:
    """All that decides an experiment's results."""

    settings: Settings
    methods: tuple[MethodName, ...]
    seeds: tuple[int, ...]
    own_parts: tuple[str, ...] = ()
    """Parts that were given as Python objects and cannot be restored from disk: "model", "data"."""
    data_dir: str | None = None
    rules: int = RULES
    real_peers: bool = False
    """Whether the runs are composed from the records of real peers, each a process of its own: time is in seconds, and
    runs do not repeat to the last bit."""
    references: Mapping[MethodName, str] = field(default_factory=dict)
    """Where methods are that were given by reference, so that they are found again from another folder."""
    part_files: Mapping[str, str] = field(default_factory=dict)
    """For each part that others wrote, "method mine", what tells whether its file has changed."""

    def __post_init__(self) -> None:
        """All that the methods' sections say is on record: a default may be another one when the run goes on."""
        object.__setattr__(self, "settings", with_sections(self.settings, self.methods))

    @property
    def data_name(self) -> str:
        """The data in words: the data set and which peer holds what of it, or that users brought their own."""
        return "own data" if "data" in self.own_parts else data_words(self.settings)

    def result(self, runs: Sequence[RunResult], folder: Path | None) -> ExperimentResult:
        """The experiment's result, as far as its runs are complete. They stand in the record's order."""
        done = {(run.method, run.seed): run for run in runs}
        planned = [(method, seed) for method in self.methods for seed in self.seeds]
        return ExperimentResult(
            self.settings,
            tuple(done[run] for run in planned if run in done),
            folder,
            self.own_parts,
            tuple(run for run in planned if run not in done),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "rules": self.rules,
            "settings": self.settings.model_dump(mode="json"),
            "methods": list(self.methods),
            "seeds": list(self.seeds),
            "own_parts": list(self.own_parts),
            "data_dir": self.data_dir,
            "real_peers": self.real_peers,
            **({"references": dict(self.references)} if self.references else {}),
            **({"part_files": dict(self.part_files)} if self.part_files else {}),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ExperimentRecord:
        if data["format"] != FORMAT:
            raise RunDirError(f"its format is {data['format']}, not {FORMAT}")
        recall(references := data.get("references", {}))  # before the settings, which may have these methods' sections
        return ExperimentRecord(
            stored_settings(data["settings"]),
            tuple(map(_method_name, data["methods"])),
            tuple(data["seeds"]),
            tuple(data["own_parts"]),
            data["data_dir"],
            data.get("rules", 1),
            data.get("real_peers", False),
            references,
            data.get("part_files", {}),
        )


def _method_name(name: Any) -> MethodName:
    """Check the name of a method. The method need not be installed, because a finished run is read without it."""
    if not is_name(name):
        raise RunDirError(f"method {name!r}: not a name of a method")
    return str(name)


class ExperimentDir:
    """The folder of an experiment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def _record_file(self) -> Path:
        return self.folder / "experiment.json"

    def exists(self) -> bool:
        """Whether there is an experiment in the folder."""
        return self._record_file.is_file()

    def create(self, record: ExperimentRecord) -> None:
        """Make the experiment in a new or empty folder."""
        if self.folder.is_dir() and any(self.folder.iterdir()):
            what = "already holds a run" if self._record_file.exists() else "is not empty"
            remedy = (
                f", or continue that run with --resume {shlex.quote(str(self.folder))}"
                if self._record_file.exists()
                else ""
            )
            raise RunDirError(f"{self.folder} {what}: choose another --out{remedy}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self._record_file, record.to_json())
        except OSError as error:
            raise RunDirError(f"{self.folder}: cannot be written: {error.strerror or error}") from None

    def add(self, record: ExperimentRecord) -> None:
        """Add methods or seeds of the same setting; complete runs stay complete."""
        old = self.read()
        methods = tuple(dict.fromkeys((*old.methods, *record.methods)))
        seeds = tuple(dict.fromkeys((*old.seeds, *record.seeds)))
        joined = replace(
            record,
            methods=methods,
            seeds=seeds,
            references={**old.references, **record.references},
            part_files={**record.part_files, **old.part_files},
        )
        write_json(self._record_file, joined.to_json())

    def read(self) -> ExperimentRecord:
        """Read the record of the folder's experiment."""
        if not self.folder.is_dir():
            raise RunDirError(f"there is no folder {self.folder}")
        if not self._record_file.is_file():
            raise RunDirError(f"{self.folder} holds no run: there is no {self._record_file.name} in it")
        data = read_json(self._record_file, _anew(self._record_file))
        try:
            return ExperimentRecord.from_json(data)
        except (KeyError, TypeError, PensError) as error:
            raise RunDirError(
                f"{self._record_file}: not the record of a run of this version of pens: {error}"
            ) from None

    def run(self, method: MethodName, seed: int) -> RunDir:
        return RunDir(self.folder / f"{method}-seed{seed}")

    def results(self) -> list[RunResult]:
        """All runs that are complete, in the experiment's order."""
        record = self.read()
        runs = [self.run(method, seed) for method in record.methods for seed in record.seeds]
        return [run.read() for run in runs if run.is_complete()]


class RunDir:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def _checkpoint(self) -> Checkpoint:
        path = self.folder / "checkpoint.safetensors"
        return Checkpoint(path, _anew(path))

    @property
    def _comparisons(self) -> Path:
        return self.folder / "comparisons.parquet"

    def is_complete(self) -> bool:
        return (self.folder / "result.json").is_file()

    # --- while it runs ------------------------------------------------------------------------------------------------

    def save_checkpoint(self, data: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Replace the checkpoint atomically, as one file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._checkpoint.save(encode_state(data), tensors)

    def load_checkpoint(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The state of a run that was stopped; None without a checkpoint."""
        return self._checkpoint.load()

    def seconds_spent(self) -> float:
        """The seconds of computing until the checkpoint; 0 without a checkpoint."""
        return self._checkpoint.seconds_spent()

    # --- when it is complete ------------------------------------------------------------------------------------------

    def save(self, result: RunResult) -> None:
        """Write a complete run, then delete its checkpoint."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _write_table(self.folder / "history.parquet", result.history)
        _write_table(self.folder / "pairs.parquet", result.pairs)
        if result.comparisons:
            _write_table(self._comparisons, result.comparisons)
        shared = {name: len(t) for name, t in result.models.items() if len(t) > 1 and t.stride(0) == 0}
        models = {n: (t[:1] if n in shared else t).detach().cpu().contiguous() for n, t in result.models.items()}
        about = {"shared": json.dumps(shared)} if shared else None
        replace_file(self.folder / "models.safetensors", lambda path: save_file(models, path, about))
        write_json(self.folder / "result.json", _result_json(result))
        self.forget_checkpoint()

    def forget_checkpoint(self) -> None:
        """Delete the checkpoint of a run that is complete."""
        self._checkpoint.forget()

    def seconds_and_device(self) -> tuple[float, str]:
        """The seconds and the device of a complete run, without reading the rest."""
        data = read_json(self.folder / "result.json", _anew(self.folder / "result.json"))
        try:
            return float(data["seconds"]), str(data["device"])
        except (KeyError, TypeError, ValueError) as error:
            path = self.folder / "result.json"
            raise RunDirError(f"{path}: not a run of this version of pens ({error!r}){_anew(path)}") from None

    def models(self, peer_names: Sequence[str] = ()) -> PeerModels:
        """The tested models of a complete run."""
        return PeerModels(StoredTensors(self.folder / "models.safetensors"), peer_names)

    def read(self) -> RunResult:
        """Read a complete run."""
        data = read_json(self.folder / "result.json", _anew(self.folder / "result.json"))
        try:
            return RunResult(
                method=_method_name(data["method"]),
                seed=data["seed"],
                score=np.array(data["score"] if "score" in data else data["accuracy"]),
                metric=_measure(data.get("metric")),
                further={_measure(one): np.array(one["values"]) for one in data.get("further", ())},
                clusters=_clusters(_either(data, "clusters", "kinds")),
                cluster_names=tuple(_either(data, "cluster_names", "kind_names")),
                agreement=Agreement(**data["agreement"]) if data["agreement"] else None,
                neighbours={int(p): tuple(n) for p, n in data["neighbours"].items()},
                communication=_communication(data["communication"]),
                pairs=Pairs(**_read_table(self.folder / "pairs.parquet")),
                history=History(**_read_table(self.folder / "history.parquet")),
                models=self.models(data.get("peer_names", ())),
                rounds=data["rounds"],
                mean_batch=data["mean_batch"],
                seconds=data["seconds"],
                warnings=tuple(data["warnings"]),
                device=data["device"],
                peak_memory_bytes=data["peak_memory_bytes"],
                comparisons=Comparisons(**_read_table(self._comparisons)) if self._comparisons.is_file() else None,
                data_sizes=_data_sizes(data.get("data_sizes")),
                step1_epochs=tuple(data["step1_epochs"]) if data.get("step1_epochs") else None,
                versions=data.get("versions", {}),
                peer_names=tuple(data.get("peer_names", ())),
                untested=tuple(data.get("untested", ())),
                attackers=tuple(data.get("attackers", ())),
                trust=TrustRecord.of_json(data.get("trust")),
                tested_forms=tuple(data.get("tested_forms", ())),
                servers=_communication(data["servers"]) if data.get("servers") else None,
                network=NetworkForm.from_json(data["network"]) if data.get("network") else None,
                preparation=Preparation.from_json(data["preparation"]) if "preparation" in data else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunDirError(
                f"{self.folder}: not a run of this version of pens ({error!r}): "
                "delete that folder and resume, and this run starts anew"
            ) from None


class StoredTensors(Mapping[str, Tensor]):
    """Tensors in a file, each read on access, so that a table of ten runs needs none of their models in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _opened(path) as file:
            self._names = list(file.keys())
            self._shared: dict[str, int] = json.loads((file.metadata() or {}).get("shared", "{}"))
            """Tensors that are the same for all peers, and how many peers there are. The file holds them once."""

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        with _opened(self._path) as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor.expand(self._shared.get(name, len(tensor)), *tensor.shape[1:])

    def row(self, name: str, index: int) -> Tensor:
        """One row of a tensor, without reading the others."""
        with _opened(self._path) as file:
            held = 0 if name in self._shared else index
            rows: Tensor = file.get_slice(name)[held : held + 1]
        return rows[0]

    def num_rows(self) -> int:
        """The length of the tensors' first axis."""
        with _opened(self._path) as file:
            held = int(file.get_slice(self._names[0]).get_shape()[0])
        return self._shared.get(self._names[0], held)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _result_json(result: RunResult) -> dict[str, Any]:
    name = "accuracy" if result.metric == ACCURACY else "score"
    return {
        "format": FORMAT,
        "method": result.method,
        "seed": result.seed,
        "metric": vars(result.metric),
        f"mean_{name}": result.mean_score,
        "worst_tenth": result.worst_tenth,
        "agreement": asdict(result.agreement) if result.agreement else None,
        name: result.score.tolist(),
        "further": [{**vars(measure), "values": values.tolist()} for measure, values in result.further.items()],
        "clusters": None if result.clusters is None else list(result.clusters),
        "cluster_names": list(result.cluster_names),
        "peer_names": list(result.peer_names),
        "untested": list(result.untested),
        **({"attackers": list(result.attackers)} if result.attackers else {}),
        **({"trust": result.trust.to_json()} if result.trust else {}),
        "tested_forms": list(result.tested_forms),
        "neighbours": {str(peer): list(n) for peer, n in result.neighbours.items()},
        "communication": _communication_json(result.communication),
        "servers": _communication_json(result.servers) if result.servers else None,
        "bytes_sent": result.communication.bytes_sent,
        "bytes_received": result.communication.bytes_received,
        "rounds": result.rounds,
        "mean_batch": result.mean_batch,
        "seconds": result.seconds,
        "warnings": list(result.warnings),
        "device": result.device,
        "peak_memory_bytes": result.peak_memory_bytes,
        "data_sizes": {k: v.tolist() for k, v in vars(result.data_sizes).items()} if result.data_sizes else None,
        "step1_epochs": result.step1_epochs,
        "network": result.network.to_json() if result.network else None,
        **({} if result.preparation is None else {"preparation": result.preparation.to_json()}),
        "versions": {
            "pens": VERSION,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
    }


def _measure(stored: Mapping[str, Any] | None) -> Measure:
    """What a run measured; where an older version does not say, accuracy."""
    if stored is None:
        return ACCURACY
    return Measure(str(stored["name"]), str(stored["unit"]), bool(stored["higher_is_better"]))


def _anew(path: Path) -> str:
    """The remedy for a damaged file of a run, as the end of a message."""
    if path.name == "experiment.json":
        return ""
    return f"\nDelete the folder {path.parent} and resume, and this run starts anew."


def _either(data: Mapping[str, Any], name: str, older: str) -> Any:
    """The value of a file under a name, or under the name that it had in older versions."""
    return data[name] if name in data else data[older]


def _clusters(stored: list[int] | None) -> tuple[int, ...] | None:
    return None if stored is None else tuple(stored)


def _communication_json(communication: Communication) -> dict[str, Any]:
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in asdict(communication).items()}


def _communication(data: Mapping[str, Any]) -> Communication:
    columns: dict[str, Any] = {k: np.array(v) if isinstance(v, list) else v for k, v in data.items()}
    return Communication(**columns)


def _data_sizes(data: Mapping[str, Any] | None) -> DataSizes | None:
    return DataSizes(np.array(data["train"]), np.array(data["val"])) if data else None


def _write_table(path: Path, columns: History | Pairs | Comparisons) -> None:
    table = pa.table({name: pa.array(values) for name, values in vars(columns).items() if values is not None})
    # The path is absolute, because a relative one such as a:b would be read as a URI.
    replace_file(path, lambda p: pq.write_table(table, p.absolute(), compression="zstd"))


def _read_table(path: Path) -> dict[str, Any]:
    try:
        table = pq.read_table(path.absolute())
    except (OSError, pa.ArrowException) as error:
        raise RunDirError(f"{path}: cannot be read: {error}{_anew(path)}") from None
    return {name: table[name].to_numpy() for name in table.column_names}


def _opened(path: Path) -> AbstractContextManager[Any]:
    """A file of tensors of a run, to be read."""
    return opened(path, _anew(path))

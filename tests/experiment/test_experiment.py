# SPDX-License-Identifier: Apache-2.0
"""pens.run and pens.resume, from settings to typed results and a run directory."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import pens
from pens import rng
from pens.data.scenarios import PeerData
from pens.engine.optimizers import Recipe
from pens.engine.training import Engine, Evaluation
from pens.errors import DataError, Interrupted, ModelError, NotEnoughData, RunDirError, SettingsError
from pens.experiment import execution, wiring, workplace
from pens.experiment.execution import Experiment
from pens.experiment.holdings import Holdings
from pens.experiment.observer import Observer
from pens.experiment.outcome import _all_warnings, _data_sizes
from pens.experiment.presets import resolve_settings
from pens.experiment.wiring import build_simulator, first_models, new_executor, reached
from pens.learning.executor import Evaluate, Executor
from pens.learning.learners import Learners
from pens.learning.rules import LearningRules
from pens.measuring.results import RunResult, epochs_of_updates
from pens.methods.names import find_method
from pens.partitions.rotation import rotated_federation
from pens.processors import CpuShare
from pens.protocol.messages import ModelRef, PeerId, Update
from pens.protocol.plan import Plan, Search
from pens.protocol.policies import SelectionRule
from pens.report.sections.settings import settings_section
from pens.report.study import read_studies
from pens.settings.tree import MethodName, Settings
from pens.simulation.links import Links
from pens.simulation.simulator import Schedule
from pens.storage.runlog import ExperimentDir, ExperimentRecord
from tests.byhand import CountingEngine, models_of
from tests.byhand import federation as federation_by_hand
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.engine.networks import IMAGE_NETWORKS
from tests.fakes import fake_simulation
from tests.methods.specs import ALL, ANY_NETWORK, IN_STEP, SELECTING, made_of, spec_of


class StopAfter(Observer):
    """An observer that asks for a stop after some windows."""

    def __init__(self, windows: int) -> None:
        self.left = windows

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        assert 0 <= fraction <= 1
        self.left -= 1
        if self.left <= 0:
            raise Interrupted("stopped")


def tiny_run(**arguments: object) -> pens.ExperimentResult:
    defaults: dict[str, object] = {"model": TinyNet, "data": tiny_dataset(), "methods": "local,random,pens,oracle"}
    return pens.run(TINY, **{**defaults, **arguments})  # type: ignore[arg-type]


def same_result(a: RunResult, b: RunResult) -> None:
    assert (a.method, a.seed, a.clusters, a.cluster_names) == (b.method, b.seed, b.clusters, b.cluster_names)
    assert a.agreement == b.agreement
    assert a.neighbours == b.neighbours
    assert (a.rounds, a.mean_batch, a.warnings) == (b.rounds, b.mean_batch, b.warnings)
    np.testing.assert_array_equal(a.accuracy, b.accuracy)
    assert (a.comparisons is None) == (b.comparisons is None)
    tables = [(a.communication, b.communication), (a.pairs, b.pairs), (a.history, b.history)]
    for one, two in (*tables, (a.data_sizes, b.data_sizes), (a.comparisons or a.pairs, b.comparisons or b.pairs)):
        for name, column in vars(one).items():
            np.testing.assert_array_equal(column, vars(two)[name], err_msg=name)
    for name, tensor in a.models.items():
        assert torch.equal(tensor, b.models[name])


def test_every_method_gives_typed_results() -> None:
    result = tiny_run(methods=ANY_NETWORK, seeds=3)
    assert [row.method for row in result.table] == list(ANY_NETWORK)
    for row in result.table:
        assert row.seeds == 3
        assert 0 <= row.accuracy.mean <= 1
        assert row.accuracy.half_width is not None
        assert row.worst_tenth.mean <= row.accuracy.mean
        assert (row.precision is not None) == (row.method in (*SELECTING, "ifca"))
    run = result.of("pens")[0]
    assert run.accuracy.shape == (6,)
    assert run.communication.model_bytes == 4 * sum(p.numel() for p in TinyNet().parameters())
    assert run.communication.bytes_sent == run.communication.bytes_received > 0
    matrix = run.pairs.merge_matrix(6)
    np.testing.assert_array_equal(matrix.sum(1), run.communication.merged)
    assert not matrix.diagonal().any()
    local = result.of("local")[0]
    assert local.communication.sent.sum() == local.communication.merged.sum() == 0


def test_a_tested_model_loads_into_the_users_module() -> None:
    run = tiny_run(methods="local").runs[0]
    federation = rotated_federation(tiny_dataset(), resolve_settings(TINY).scenario, 0)
    net = TinyNet()
    net.load_state_dict(run.state_dict(4))
    test = federation.tests[federation.tested_on[4]]
    with torch.no_grad():
        accuracy = (net(torch.from_numpy(test.x)).argmax(1).numpy() == test.y).mean()
    assert accuracy == pytest.approx(run.accuracy[4])


def test_central_is_tested_on_each_peers_distribution() -> None:
    run = tiny_run(methods="central").runs[0]
    assert run.accuracy.shape == (6,)
    assert len(set(run.accuracy[:3])) == len(set(run.accuracy[3:])) == 1
    assert next(iter(run.models.values())).shape[0] == 1


def test_a_users_own_federation_runs_with_unequal_peers() -> None:
    dataset = tiny_dataset()
    sizes = [5, 9, 14, 7]
    starts = np.cumsum([0, *sizes])
    peers = tuple(
        pens.PeerData(dataset.train.take(slice(s, s + n - 2)), dataset.train.take(slice(s + n - 2, s + n)))
        for s, n in zip(starts, sizes, strict=False)
    )
    federation = pens.Federation(peers, (0, 0, 1, 1), (dataset.test, dataset.test), ("a", "b"))
    result = tiny_run(data=federation, overrides={"n_peers": 2, "n_sampled": 2, "m": 1}, methods=ANY_NETWORK)
    assert all(run.accuracy.shape == (4,) for run in result.runs)
    with pytest.raises(SettingsError, match="n_sampled = 5, but each peer can hear at most 3"):
        tiny_run(data=federation, overrides={"n_sampled": 5})


def test_the_run_directory_gives_back_what_was_found(tmp_path: Path) -> None:
    result = tiny_run(out=tmp_path / "run", seeds=2)
    directory = ExperimentDir(tmp_path / "run")
    read = directory.results()
    assert len(read) == 8
    for a, b in zip(result.runs, read, strict=True):
        same_result(a, b)
    names = {path.name for path in (tmp_path / "run" / "pens-seed1").iterdir()}
    assert names == {"history.parquet", "pairs.parquet", "comparisons.parquet", "models.safetensors", "result.json"}
    record = json.loads((tmp_path / "run" / "experiment.json").read_text())
    assert record["settings"]["scenario"]["peers"] == 6


@pytest.mark.parametrize("windows", [1, 4, 9, 12])
@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_a_stopped_experiment_resumes_to_the_same_result(tmp_path: Path, windows: int, schedule: str) -> None:
    arguments: dict[str, object] = {"overrides": {"schedule": schedule}, "methods": "random,pens"}
    unbroken = tiny_run(**arguments)
    with pytest.raises(Interrupted):
        tiny_run(**arguments, out=tmp_path / "run", observer=StopAfter(windows))
    resumed = pens.resume(tmp_path / "run", model=TinyNet, data=tiny_dataset())
    for a, b in zip(unbroken.runs, resumed.runs, strict=True):
        same_result(a, b)
    again = pens.resume(tmp_path / "run", model=TinyNet, data=tiny_dataset())
    for a, b in zip(unbroken.runs, again.runs, strict=True):
        same_result(a, b)


def of_schedule(schedule: str) -> tuple[str, ...]:
    """All methods that have this schedule."""
    return tuple(method for method in ANY_NETWORK if schedule == "rounds" or method not in IN_STEP)


@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_seeds_that_are_computed_together_give_the_results_of_each_alone(tmp_path: Path, schedule: str) -> None:
    arguments: dict[str, object] = {"methods": of_schedule(schedule), "seeds": 3}
    alone = tiny_run(**arguments, overrides={"schedule": schedule, "seeds_at_once": 1})
    settings = {"schedule": schedule, "seeds_at_once": 2, "rounds": 5}
    together = tiny_run(**arguments, overrides=settings, out=tmp_path / "run")
    for a, b in zip(alone.runs, together.runs, strict=True):
        same_result(a, b)
    assert not list((tmp_path / "run").rglob("checkpoint*"))


@pytest.mark.parametrize("windows", [1, 5, 14])
def test_an_interruption_saves_all_seeds_that_are_computed_together(tmp_path: Path, windows: int) -> None:
    arguments: dict[str, object] = {"overrides": {"seeds_at_once": 3}, "methods": "pens", "seeds": 3}
    unbroken = tiny_run(**arguments)
    with pytest.raises(Interrupted):
        tiny_run(**arguments, out=tmp_path / "run", observer=StopAfter(windows))
    assert len(list((tmp_path / "run").rglob("checkpoint.safetensors"))) == 3
    resumed = pens.resume(tmp_path / "run", model=TinyNet, data=tiny_dataset())
    for a, b in zip(unbroken.runs, resumed.runs, strict=True):
        same_result(a, b)


def test_an_own_federation_is_brought_to_the_device_once_for_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = rotated_federation(tiny_dataset(), resolve_settings(TINY).scenario, 0)
    built: list[int] = []
    new_executor = wiring.new_executor

    def count(engine: Engine, data: Sequence[PeerData], *about: object) -> Executor:
        built.append(len(data))
        return new_executor(engine, data, *about)  # type: ignore[arg-type]

    monkeypatch.setattr(workplace, "new_executor", count)
    alone, together = (
        tiny_run(data=federation, methods="local,random", seeds=2, overrides={"seeds_at_once": n}) for n in (1, 2)
    )
    for a, b in zip(alone.runs, together.runs, strict=True):
        same_result(a, b)
    assert built == [6, 6, 6]  # one per seed, then one for both; never one per method


def test_a_crash_between_checkpoints_loses_only_what_came_after(tmp_path: Path) -> None:
    class Crash(StopAfter):
        def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
            self.left -= 1
            if self.left <= 0:
                raise OSError("the power went out")

    arguments: dict[str, object] = {"overrides": {"checkpoint_every_s": 0}, "methods": "pens"}
    with pytest.raises(OSError, match="power"):
        tiny_run(**arguments, out=tmp_path / "run", observer=Crash(6))
    assert (tmp_path / "run" / "pens-seed0" / "checkpoint.safetensors").exists()
    resumed = pens.resume(tmp_path / "run", model=TinyNet, data=tiny_dataset())
    same_result(tiny_run(**arguments).runs[0], resumed.runs[0])


def test_a_relative_folder_may_have_a_colon_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are not taken for files behind a URI."""
    monkeypatch.chdir(tmp_path)
    found = pens.run(TINY, methods="random", model=TinyNet, data=tiny_dataset(), out="mine.py:Mine")
    same_result(ExperimentDir(Path("mine.py:Mine")).results()[0], found.runs[0])


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    tiny_run(out=tmp_path / "run", methods="local")
    with pytest.raises(RunDirError, match=r"already holds a run: choose another --out, or continue .*--resume"):
        tiny_run(out=tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    with pytest.raises(RunDirError, match="not empty"):
        tiny_run(out=tmp_path / "other")
    with pytest.raises(RunDirError, match="holds no run"):
        pens.resume(tmp_path / "other")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirError, match="cannot be written"):
        tiny_run(out=tmp_path / "file" / "run")


def test_damaged_run_directories_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        tiny_run(out=folder, methods="local,random", observer=StopAfter(9))
    checkpoint = folder / "random-seed0" / "checkpoint.safetensors"
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunDirError, match=r"checkpoint\.safetensors: cannot be read"):
        pens.resume(folder, model=TinyNet, data=tiny_dataset())
    for name in ("history.parquet", "models.safetensors", "result.json"):
        path = folder / "local-seed0" / name
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(RunDirError, match=name):
            ExperimentDir(folder).results()
        path.write_bytes(whole)
    (folder / "experiment.json").write_text("{}")
    with pytest.raises(RunDirError, match=r"experiment\.json"):
        pens.resume(folder)


def test_own_parts_must_come_back_to_resume(tmp_path: Path) -> None:
    tiny_run(out=tmp_path / "run", methods="local")
    with pytest.raises(RunDirError, match="your own model: resume it from Python"):
        pens.resume(tmp_path / "run")


def test_nothing_is_written_when_the_settings_cannot_work(tmp_path: Path) -> None:
    out = tmp_path / "run"
    for error, arguments in (
        (SettingsError, {"overrides": {"n_sampled": 6}}),
        (SettingsError, {"seeds": 0}),
        (SettingsError, {"seeds": [1, 1]}),
        (SettingsError, {"model": TinyNet()}),
        (pens.PensError, {"device": "cuda:99"}),
        (pens.PensError, {"device": "tpu"}),
        (NotEnoughData, {"overrides": {"train_per_peer": 400}}),
        (ModelError, {"model": lambda: nn.Linear(3, 3)}),
    ):
        with pytest.raises(error):
            tiny_run(out=out, **arguments)
    assert not out.exists()


@pytest.mark.parametrize("backend", ["stack", "loop"])
def test_inputs_without_a_value_are_refused_before_anything_is_computed(backend: str, tmp_path: Path) -> None:
    data = tiny_dataset()
    data.train.x[[7, 12], 0, 1] = np.nan
    with pytest.raises(DataError, match=r"^the training inputs of tiny: 2 of 160 samples .* sample 7, .* nan"):
        tiny_run(data=data, overrides={"backend": backend}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_gets_little_of_a_core_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(0, 20)  # passes by 20 at every look
    monkeypatch.setattr(execution, "CpuShare", lambda: CpuShare(lambda: next(seconds), lambda: 0.0))
    told: list[tuple[str, str]] = []

    class Listener(Observer):
        def warned(self, method: MethodName, seed: int, message: str) -> None:
            told.append((method, message))

    hindered = tiny_run(methods="local,random", observer=Listener(), device="cpu")
    ((method, message),) = told
    assert method == "local"
    assert "other processes keep the cores busy" in message
    monkeypatch.undo()
    for one, other in zip(hindered.runs, tiny_run(methods="local,random", device="cpu").runs, strict=True):
        same_result(one, other)


def test_setbacks_are_told_and_kept() -> None:
    told: list[str] = []

    class Listener(Observer):
        def warned(self, method: MethodName, seed: int, message: str) -> None:
            told.append(message)

    result = tiny_run(methods="random", overrides={"lr": 1e30, "optimizer": "sgd"}, observer=Listener())
    assert len(told) == 6
    assert "the peer keeps its last good model" in told[0]
    assert len(result.runs[0].warnings) == 6


ALL_ALONE = {"schedule": "async", "latency": 9.0, "give_up": 0.05, "step1_rounds": 1, "step1_samplings": 1}


@pytest.mark.parametrize(
    ("admit", "words"),
    [
        (True, "heard too few others in step 1 to compare them, so began step 2 without neighbours, and "),
        (False, "heard nobody in step 1, so trained alone"),
    ],
)
def test_each_peer_whose_step_one_failed_is_told_of_once_and_truly(admit: bool, words: str) -> None:
    values = {**ALL_ALONE, "admit": admit, "rounds": 20, "patience": 99, "admission_trials": 1}
    (run,) = tiny_run(methods="pens", overrides=values).runs
    assert len(run.warnings) == 6
    assert [text.partition(": ")[0] for text in run.warnings] == [f"peer {p}" for p in range(6)]
    for peer, text in enumerate(run.warnings):
        told = text.partition(": ")[2]
        assert told.startswith(words)
        number = len(run.neighbours[peer])
        assert told.removeprefix(words) == (
            (f"has admitted {number}" if number else "admitted nobody") if admit else ""
        )
    assert any(run.neighbours.values()) == admit


def test_settings_come_from_presets_files_and_mappings(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('preset = "digits"\npeers = 8\n[pens]\nm = 1\n')
    settings = resolve_settings(file)
    assert (settings.scenario.peers, settings.pens.m) == (8, 1)
    assert settings.gossip == resolve_settings("digits").gossip
    assert resolve_settings(settings) is settings
    assert resolve_settings({"peers": 4}).scenario.peers == 4
    with pytest.raises(SettingsError, match="unknown preset 'digit'"):
        resolve_settings("digit")


def test_both_initialisations_are_what_they_say() -> None:
    arguments: dict[str, object] = {"methods": "local"}
    settings = {"rounds": 1, "epochs": 1, "lr": 1e-12, "optimizer": "sgd"}
    models = {}
    for init in ("common", "independent"):
        run = tiny_run(**arguments, overrides={**settings, "init": init}).runs[0]
        models[init] = run.models["out.weight"]
    assert torch.equal(models["common"][0], models["common"][5])
    assert not torch.equal(models["independent"][0], models["independent"][5])


def test_seeds_may_be_listed() -> None:
    result = tiny_run(methods="local", seeds=[3, 7])
    assert [run.seed for run in result.runs] == [3, 7]


@pytest.mark.parametrize("name", ["tied", "residual", "running scale"])
def test_every_tested_model_loads_strictly(name: str) -> None:
    generator = np.random.default_rng(0)
    part = pens.Samples(generator.normal(size=(60, 1, 8, 8)).astype(np.float32), generator.integers(0, 10, 60))
    result = pens.run(
        {**TINY, "rounds": 1}, model=IMAGE_NETWORKS[name], data=pens.Dataset("noise", part, part), methods="local",
        overrides={"peers": 2, "train_per_peer": 5},
    )  # fmt: skip
    net = IMAGE_NETWORKS[name]()
    net.load_state_dict(result.runs[0].state_dict(1))
    for key, tensor in net.state_dict().items():
        assert torch.equal(tensor, result.runs[0].models[key][1])


def samples(count: int, shape: tuple[int, ...] = (1, 4, 4), dtype: type = np.float32) -> pens.Samples:
    return pens.Samples(np.zeros((count, *shape), dtype), np.arange(count) % 3)


def test_data_that_cannot_work_are_refused_in_words() -> None:
    with pytest.raises(pens.PensError, match=r"pass a pens\.Dataset"):
        tiny_run(data=(np.zeros(3), np.zeros(3)))
    with pytest.raises(pens.PensError, match=r"training data have inputs of shape \(1, 4, 4\) .*\(1, 5, 5\)"):
        pens.Dataset("odd", samples(9), samples(9, (1, 5, 5)))
    with pytest.raises(pens.PensError, match=r"of real numbers per sample, but the test data .* of whole numbers"):
        pens.Dataset("odd", samples(9), samples(9, dtype=np.int64))
    odd = pens.Samples(samples(200).x, np.where(np.arange(200) == 7, -3, 1))
    reason = "the training targets do not suit the task classification: label -3 is negative: number the classes from 0"
    with pytest.raises(pens.PensError, match=reason):
        tiny_run(data=pens.Dataset("odd", odd, samples(9)))
    mine, real = samples(4), pens.Samples(samples(4).x, np.zeros(4))
    peers = pens.PeerData(mine, mine), pens.PeerData(mine, real)
    with pytest.raises(pens.PensError, match=r"peer 1's validation targets .* expected one integer class per sample"):
        tiny_run(data=pens.Federation(peers, (0, 0), (mine,), ("a",)))
    with pytest.raises(pens.PensError, match="expected real or whole numbers"):
        pens.Samples(np.array(["a", "b"]), np.array([1, 0]))
    with pytest.raises(NotEnoughData, match="1 test samples, but 2 rotations"):
        tiny_run(data=pens.Dataset("few", samples(200), samples(1)))
    peer = pens.PeerData(samples(4), samples(2))
    with pytest.raises(pens.PensError, match="test set of cluster b is empty"):
        pens.Federation((peer, peer), (0, 1), (samples(3), samples(0)), ("a", "b"))
    with pytest.raises(pens.PensError, match="at least one peer"):
        pens.Federation((), (), (samples(3),), ("a",))
    assert len(pens.Samples([[0.5], [1.5]], [0, 1])) == 2  # type: ignore[arg-type]


def test_networks_that_cannot_work_are_refused_in_words() -> None:
    class Pair(TinyNet):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (super().forward(x), x)  # type: ignore[return-value]

    for model, reason in (
        (nn.Linear, "cannot be made: TypeError.* needs no others"),
        (lambda: 3, "makes a value of type int: pass an nn.Module class"),
        (Pair, "returns a tuple"),
        (lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "lazy layers"),
    ):
        with pytest.raises(ModelError, match=reason):
            tiny_run(model=model)


def unequal_federation() -> pens.Federation:
    """The tiny federation, with peers 1 and 4 holding a third of their training samples."""
    whole = rotated_federation(tiny_dataset(), resolve_settings(TINY).scenario, seed=0)
    peers = [
        PeerData(peer.train.take(slice(3)), peer.val) if p in (1, 4) else peer for p, peer in enumerate(whole.peers)
    ]
    return pens.Federation(tuple(peers), whole.clusters, whole.tests, whole.cluster_names)


def test_epochs_of_step_one_follow_the_samples_that_each_peer_holds(tmp_path: Path) -> None:
    auto = {"step1_epochs": "auto", "step1_rounds": 1, "rounds": 1}
    many, few = 1250 // (3 + 5) + 1, 1250 // (9 + 5) + 1
    result = tiny_run(methods="pens,random", data=unequal_federation(), overrides=auto, out=tmp_path / "run")
    assert [run.step1_epochs for run in result.runs] == [(few, many, few, few, many, few), None]
    assert [run.step1_epochs for run in ExperimentDir(tmp_path / "run").results()] == [
        result.runs[0].step1_epochs,
        None,
    ]
    (study,) = read_studies([tmp_path / "run"])
    history = study.runs[0].history
    epochs = epochs_of_updates(study.runs[0], study.spec(study.runs[0]))
    assert set(zip(history.peer[history.version == 2], epochs[history.version == 2], strict=True)) == set(
        enumerate((few, many, few, few, many, few))
    )
    assert f"step1_epochs = auto resolved to {few} to {many}, by the number of samples" in str(
        settings_section(study).notes
    )


def test_every_peer_trains_the_epochs_that_are_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []
    record_update = Learners.record_update

    def listening(self: Learners, peer: PeerId, own: ModelRef, action: Update, time: float) -> ModelRef:
        if action.top_m is not None:
            trained.append(action.epochs)
        return record_update(self, peer, own, action, time)

    monkeypatch.setattr(Learners, "record_update", listening)
    overrides = {"step1_epochs": "auto", "step1_rounds": 1, "rounds": 1, "max_batch": 1}
    (run,) = tiny_run(methods="pens", data=unequal_federation(), overrides=overrides).runs
    assert sorted(trained) == sorted(run.step1_epochs or ())


def test_a_batch_may_be_larger_than_the_data() -> None:
    small, large = (tiny_run(methods="local", overrides={"batch_size": size}).runs[0] for size in (9, 10**12))
    same_result(small, large)


def test_an_experiment_from_before_a_setting_had_its_name_is_shown(tmp_path: Path) -> None:
    """Rules 3 had `fresh`, and step 1's epochs did not count validation samples."""
    tiny_run(out=tmp_path / "run", methods="pens", overrides={"step1_epochs": "auto", "step1_samplings": 2})
    file = tmp_path / "run" / "experiment.json"
    record = {**json.loads(file.read_text()), "rules": 3}
    del record["settings"]["pens"]["step2_model"]
    for fresh, step2_model in ((True, "first"), (False, "last")):
        record["settings"]["pens"]["fresh"] = fresh
        file.write_text(json.dumps(record))
        settings = ExperimentDir(tmp_path / "run").read().settings
        assert settings.pens.step2_model == step2_model
        assert settings.pens.step1_epochs == 1250 // settings.scenario.train_per_peer + 1


def test_a_run_of_an_older_version_calls_clusters_kinds(tmp_path: Path) -> None:
    now = tiny_run(methods="pens", out=tmp_path / "run").runs[0]
    path = tmp_path / "run" / "pens-seed0" / "result.json"
    written = path.read_text()
    path.write_text(written.replace('"clusters"', '"kinds"').replace('"cluster_names"', '"kind_names"'))
    assert path.read_text() != written
    before = ExperimentDir(tmp_path / "run").results()[0]
    assert (before.clusters, before.cluster_names) == (now.clusters, now.cluster_names)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        tiny_run(out=folder, methods="random", observer=StopAfter(3))
    record = json.loads((folder / "experiment.json").read_text())
    record["settings"]["scenario"]["peers"] = 4
    (folder / "experiment.json").write_text(json.dumps(record))
    with pytest.raises(RunDirError, match="delete that folder and resume"):
        pens.resume(folder, model=TinyNet, data=tiny_dataset())
    (folder / "experiment.json").write_text(json.dumps({**record, "rules": 1}))
    with pytest.raises(RunDirError, match="other rules"):
        pens.resume(folder, model=TinyNet, data=tiny_dataset())
    record["format"] = 9
    (folder / "experiment.json").write_text(json.dumps(record))
    with pytest.raises(RunDirError, match="its format is 9"):
        pens.resume(folder, model=TinyNet, data=tiny_dataset())


@pytest.mark.parametrize(("method", "values"), [("pens+", {}), ("random", {"validated": "merged"})])
def test_the_last_average_cannot_be_tested(method: str, values: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"tests the best .*merged.*: set tested = best"):
        tiny_run(methods=method, overrides={**values, "tested": "last"})


@pytest.mark.parametrize("seeds", [1.5, "3", [], [1, "a"], -1])
def test_seeds_that_are_none_are_refused(seeds: object) -> None:
    with pytest.raises(SettingsError, match="seeds = "):
        tiny_run(seeds=seeds)


@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_every_comparison_and_every_model_received_is_on_record(schedule: str) -> None:
    for run in tiny_run(methods=of_schedule(schedule), overrides={"schedule": schedule, "accept": "anyone"}).runs:
        assert run.data_sizes
        assert run.history.received is not None
        total = run.communication.received
        for peer in np.unique(run.history.peer):
            received = run.history.received[run.history.peer == peer]
            # where servers' models are the first to be trained
            assert received[0] == (len(run.servers.sent) if run.servers else 0)
            assert (np.diff(received) >= 0).all()
            assert received[-1] <= total[peer]
            if schedule == "rounds" and run.method != "el":  # there, others go on sending to a peer that has stopped
                assert received[-1] == total[peer]
        if run.method not in SELECTING:
            assert run.comparisons is None
            continue
        counts = run.comparisons
        assert counts
        assert set(counts.round) <= {1, 2, 3}
        assert (np.bincount(counts.receiver, counts.sampled, 6) == run.communication.scored).all()
        for column in ("sampled", "selected"):
            by_pair = np.zeros((6, 6))
            np.add.at(by_pair, (counts.receiver, counts.sender), getattr(counts, column))
            at_the_end = np.zeros((6, 6))
            at_the_end[run.pairs.receiver, run.pairs.sender] = getattr(run.pairs, column)
            np.testing.assert_array_equal(by_pair, at_the_end)


def test_a_run_directory_without_the_later_records_still_reads(tmp_path: Path) -> None:
    tiny_run(out=tmp_path / "run", methods="pens")
    folder = tmp_path / "run" / "pens-seed0"
    (folder / "comparisons.parquet").unlink()
    result = json.loads((folder / "result.json").read_text())
    del result["data_sizes"]
    (folder / "result.json").write_text(json.dumps(result))
    history = pq.read_table(folder / "history.parquet").drop_columns(["received"])
    pq.write_table(history, folder / "history.parquet")
    (run,) = ExperimentDir(tmp_path / "run").results()
    assert not any((run.comparisons, run.data_sizes, run.history.received))
    assert run.versions["pens"] == pens.__version__


@pytest.mark.parametrize("score_on", ["train", "val"])
def test_models_are_compared_on_the_data_that_were_asked_for(score_on: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    evaluate = Executor._evaluate

    def look(self: Executor, calls: list[Evaluate]) -> list[Evaluation]:
        seen.update(call.on for call in calls if len(set(call.slots)) < len(call.slots))  # several models for a peer
        return evaluate(self, calls)

    monkeypatch.setattr(Executor, "_evaluate", look)
    tiny_run(methods="pens", overrides={"score_on": score_on, "neighbours_by": "groups"})
    assert seen == {score_on}


# --- wiring, by hand --------------------------------------------------------------------------------------------------


def settings_of(**values: object) -> Settings:
    return Settings().replace({**TINY, **values})


def test_whom_each_method_lets_a_peer_reach() -> None:
    """Section 5.3. Clusters {0, 2, 3} and {1, 4}, neither of them in one piece."""
    clusters = (0, 1, 0, 0, 1)
    federation = federation_by_hand(clusters, [[0.0] * 5] * 5)

    def whom(method: MethodName) -> list[list[int]]:
        return [list(reached(find_method(method), federation)(PeerId(peer))) for peer in range(5)]

    assert whom("oracle") == whom("oracle+") == [[2, 3], [4], [0, 3], [0, 2], [1]]
    unknown = replace(federation, clusters=None, cluster_names=(), tested_on=clusters)
    assert list(reached(find_method("oracle"), unknown)(PeerId(0))) == []
    assert list(reached(find_method("random"), unknown)(PeerId(0))) == [1, 2, 3, 4]
    for method in ("random", "random+", "pens", "pens+"):
        assert whom(method) == [[1, 2, 3, 4], [0, 2, 3, 4], [0, 1, 3, 4], [0, 1, 2, 4], [0, 1, 2, 3]]
    for method in ("local", "central"):
        assert whom(method) == [[]] * 5


def test_every_peer_begins_with_a_model_of_its_own_or_with_the_same_one() -> None:
    """Table 1. Independent: a key for each seed and peer; common: one for each seed."""
    keys: dict[str, list[list[int]]] = {}
    for init in ("independent", "common"):
        for seed in (3, 4):
            engine = CountingEngine(2)
            engine.network.new_row = lambda key: torch.tensor([float(key % 1009), float(key % 2003)])
            rows = first_models(engine, made_of(settings_of(init=init), "random"), seed, 3)
            keys.setdefault(init, []).append(rows[:, 0].int().tolist())
            names = [(seed, "init", peer) if init == "independent" else (seed, "init") for peer in range(3)]
            expected = [rng.key(*name) for name in names]
            assert rows.tolist() == [[key % 1009, key % 2003] for key in expected]
    assert len({key for row in keys["independent"] for key in row}) == 6
    assert len({key for row in keys["common"] for key in row}) == 2
    for init, made in (("independent", 3), ("common", 1)):
        engine = CountingEngine(2)
        first_models(engine, made_of(settings_of(init=init), "random"), 3, 3)
        assert len(engine.keys) == made


@pytest.mark.parametrize("init", ["independent", "common"])
def test_all_methods_of_a_seed_begin_with_the_same_models(init: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`central` has the first peer's; and a peer has the same one alone and beside others."""
    engine = CountingEngine(3)
    engine.network.new_row = lambda key: torch.tensor([float(key % 1009), 0.0, 0.0])
    data = federation_by_hand((0, 0, 0), [[0.0] * 3] * 3)
    monkeypatch.setattr("pens.experiment.wiring.new_engine", lambda *_: engine)
    values = {**TINY, "n_peers": 2, "init": init, "rounds": 1, "central_rounds": 1}
    for seed, methods, learners in (
        (0, "central,local,random", (1, 3, 3)),
        (3, "local,central", (3, 1)),
        (5, "random", (3,)),
    ):
        engine.trainings = []
        pens.run(values, methods=methods, data=data, model=nn.Identity, seeds=[seed])
        names = [(seed, "init", peer) if init == "independent" else (seed, "init") for peer in range(3)]
        first = [[rng.key(*name) % 1009, 0, 0] for name in names]
        place = 0
        for count in learners:
            assert [t.before for t in engine.trainings[place : place + count]] == first[:count]
            place += 2 * count
        assert place == len(engine.trainings)


def test_what_each_method_tells_its_peers_to_do() -> None:
    """Sections 4.1, 4.2 and 5.3."""
    settings = settings_of(
        rounds=7, n_peers=4, epochs=3, n_sampled=5, m=2, step1_rounds=6, step1_samplings=9, step1_epochs=8,
        central_rounds=11, central_epochs=12, interval=1.5, jitter=0.25, give_up=2.5,
    )  # fmt: skip
    gossip = Plan(
        pace="pull", rounds=7, n_peers=4, epochs=3, search=None, interval=1.5, jitter=0.25, give_up=2.5,
        accept_anyone=False, admit=False, train_first=True,
    )  # fmt: skip
    for method in ("random", "random+", "oracle", "oracle+", "local"):
        assert spec_of(method, settings).plan(9, 5, 6) == gossip
    assert spec_of("central", settings).plan(9, 5, 6) == replace(gossip, rounds=11, epochs=12)
    rule = spec_of("pens", settings).selection(6)
    assert rule
    search = Search(n_sampled=5, m=2, rounds=6, samplings_per_round=9, epochs=8, rule=rule)
    assert spec_of("pens", settings).plan(9, 5, 6) == replace(gossip, search=search)
    begins_with_first = spec_of("pens", settings.replace({"step2_model": "first"})).plan(9, 5, 6)
    assert begins_with_first == replace(gossip, search=search, keep="first")
    for how, epochs in (("auto", 1250 // 14 + 1), ("authors", 1250 // 9 + 1)):
        by_rule = spec_of("pens", settings.replace({"step1_epochs": how})).plan(9, 5, 6)
        assert by_rule.search == replace(search, epochs=epochs)
    assert not spec_of("random", settings.replace({"train_first": False})).plan(9, 5, 6).train_first
    pushed = settings.replace({"schedule": "async", "accept": "anyone", "admit": True})
    assert spec_of("random", pushed).plan(9, 5, 6) == replace(gossip, pace="push", accept_anyone=True)
    by_received = spec_of("pens", pushed).selection(6)
    assert by_received
    by_push = replace(gossip, pace="push", accept_anyone=True, search=replace(search, rule=by_received), admit=True)
    assert spec_of("pens", pushed).plan(9, 5, 6) == by_push
    assert not spec_of("pens", settings.replace({"admit": True})).plan(9, 5, 6).admit


def test_how_each_method_learns() -> None:
    settings = settings_of(
        optimizer="sgd", lr=0.5, momentum=0.25, weight_decay=0.125, batch_size=6, own_in_merge=False, score_on="val",
        score="accuracy", score_samples=3, max_batch=4, wire="fp16", step2_model="first", window=7, patience=8,
        stop_on="loss", central_batch_size=9, central_window=2, central_patience=3,
    )  # fmt: skip
    recipe = Recipe("sgd", 0.5, 0.25, 0.125, 6)
    pens_rules = LearningRules(
        recipe=recipe, stopping=settings.stopping, own_in_merge=False, seed=5, score_on="val", score="accuracy",
        score_samples=3, max_batch=4, optimizer_remembers=False, wire="fp16", counts_heights=False,
    )  # fmt: skip
    assert (settings.stopping.window, settings.stopping.patience, settings.stopping.stop_on) == (7, 8, "loss")
    assert spec_of("pens", settings, 5).learning() == pens_rules
    by_levels = settings.replace({"neighbours_by": "levels"})
    assert spec_of("pens", by_levels, 5).learning() == replace(pens_rules, counts_heights=True)
    near = settings.replace({"score": "l2", "init": "common"})
    expected = replace(pens_rules, score="l2", scores=False, common_start=True)
    assert spec_of("pens", near, 5).learning() == expected
    assert spec_of("pens", near.replace({"admit": True}), 5).learning() == replace(expected, scores=True)
    unscored = replace(pens_rules, scores=False)
    assert spec_of("random", settings, 5).learning() == spec_of("oracle", settings, 5).learning() == unscored
    assert spec_of("local", settings, 5).learning() == replace(unscored, optimizer_remembers=True)
    stopping = settings.stopping.model_copy(update={"window": 2, "patience": 3})
    of_central = Recipe("sgd", 0.5, 0.25, 0.125, 9)
    central = replace(unscored, optimizer_remembers=True, recipe=of_central, stopping=stopping)
    assert spec_of("central", settings, 5).learning() == central


def test_what_makes_a_neighbour_in_each_schedule() -> None:
    """k − 1 = 7 others; uniform in rounds, by what was received in async, unless the settings say otherwise."""
    rounds, pushed = settings_of(n_sampled=5, m=2), settings_of(n_sampled=5, m=2, schedule="async")
    uniform = SelectionRule(m=2, n_sampled=5, num_others=7, expected="uniform", by="expected")
    assert spec_of("pens", rounds).selection(8) == uniform
    assert spec_of("pens", pushed).selection(8) == replace(uniform, expected="received")
    authors = rounds.replace({"expected_offset": -1, "nobody_found": "alone"})
    assert spec_of("pens", authors).selection(8) == replace(uniform, offset=-1, nobody_found="alone")
    received, uniformly = rounds.replace({"expected": "received"}), pushed.replace({"expected": "uniform"})
    assert spec_of("pens", received).selection(8) == replace(uniform, expected="received")
    assert spec_of("pens", uniformly).selection(8) == uniform
    assert spec_of("pens+", rounds).selection(8) == replace(uniform, by="levels")
    assert all(spec_of(method, rounds).selection(8) is None for method in ALL if method not in SELECTING)


def test_a_simulation_has_the_rules_of_its_method() -> None:
    """Ten peers, of whom nine are others; `random` selects nobody; virtual time by the links' settings."""
    settings = settings_of(peers=10, schedule="async", latency=0.5, training_time=2.5, epochs=3, admission_trials=5)
    simulator, _ = fake_simulation(settings, "pens")
    rule = spec_of("pens", settings).selection(10)
    assert all(peer.plan.search.rule == rule for peer in simulator.peers if peer.plan.search)
    assert simulator._schedule == Schedule(metronome=False, links=Links(0.5, 2.5, 3))
    assert {peer.plan.admission_trials for peer in simulator.peers} == {5}
    assert [peer.me for peer in simulator.peers] == list(range(10))
    other, _ = fake_simulation(settings.replace({"schedule": "rounds"}), "random")
    assert all(peer.plan.search is None for peer in other.peers)
    assert other._schedule == Schedule(metronome=True, links=Links(0.5, 2.5, 3), in_turn=False)
    for schedule, in_turn in (("rounds", True), ("async", False)):
        turns, _ = fake_simulation(settings.replace({"schedule": schedule, "pull_from": "latest"}), "random")
        assert turns._schedule.in_turn == in_turn
    plus, _ = fake_simulation(settings, "pens+")
    assert [peer.plan.search.rule.by for peer in plus.peers if peer.plan.search] == ["levels"] * 10
    assert {peer.plan.search.alone_rounds for peer in plus.peers if peer.plan.search} == {20}
    assert plus.learners.rules.stopping.validated == "either"
    assert [peer.plan.keep for peer in plus.peers] == ["best"] * 10


def test_step_one_of_each_peer_takes_the_epochs_of_its_own_samples() -> None:
    """1250 // n + 1 epochs: by the authors' rule n counts training samples, 4 and 9 of them; by ours validation samples
    too, so that both peers have n = 10."""
    part, tested = samples(20), samples(5)
    peers = tuple(PeerData(part.take(slice(n)), part.take(slice(n, 10))) for n in (4, 9))
    federation = pens.Federation(peers, (0, 1), (tested, tested), ("a", "b"))
    engine = CountingEngine(2)
    for rule, epochs in (("authors", [1250 // 4 + 1, 1250 // 9 + 1]), ("auto", [126, 126])):
        settings = settings_of(step1_epochs=rule)
        executor = new_executor(engine, peers, torch.device("cpu"))
        simulator = build_simulator(spec_of("pens", settings), federation, executor, torch.zeros(2, 2))
        searches = [peer.plan.search for peer in simulator.peers]
        assert [search.epochs for search in searches if search] == epochs


def run_of_three_peers(
    monkeypatch: pytest.MonkeyPatch, methods: tuple[MethodName, ...]
) -> tuple[Experiment, CountingEngine, list[list[float]]]:
    """An experiment of three peers that is done, and what the last method's models are."""
    engine = CountingEngine(3)
    monkeypatch.setattr("pens.experiment.wiring.new_engine", lambda *_: engine)
    settings = settings_of(rounds=1, central_rounds=1, epochs=1, central_epochs=1, tested="last", n_sampled=2)
    record = ExperimentRecord(settings, methods, (0,), own_parts=("model", "data"))
    this = Experiment(
        record,
        Holdings(record.settings, federation_by_hand((0, 0, 0), [[0.0] * 3] * 3)),
        device="cpu",
        model=nn.Identity,
    )
    this.prepare()
    return this, engine, models_of(this.run(None, Observer()).runs[-1])


def test_central_has_everybodys_data_whichever_method_comes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first training and a round of one epoch each, on one sample of each of three classes; alone on the own one."""
    for methods in (("central",), ("local", "central")):
        assert run_of_three_peers(monkeypatch, methods)[2] == [[2, 2, 2]]
    assert run_of_three_peers(monkeypatch, ("central", "local"))[2] == [[2, 0, 0], [0, 2, 0], [0, 0, 2]]


def test_first_models_are_made_once_and_kept_only_for_another_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three peers' models; `central` needs one, and the others are made when they are needed, the first one anew."""
    for methods, made, kept in (
        (("local",), 3, 0),
        (("local", "random"), 3, 3),
        (("local", "random", "pens"), 3, 3),
        (("local", "central"), 3, 3),
        (("central", "local"), 1 + 3, 3),
    ):
        this, engine, _ = run_of_three_peers(monkeypatch, methods)
        assert (len(engine.keys), sum(map(len, this.workplace.untrained.values()))) == (made, kept)


def test_the_mean_batch_counts_updates_by_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three peers alone, without a first training: one round is one call of three updates, or two calls of at most two;
    four rounds are four calls of three."""
    data = federation_by_hand((0, 0, 0), [[0.0] * 3] * 3)
    monkeypatch.setattr("pens.experiment.wiring.new_engine", lambda *_: CountingEngine(3))
    for rounds, max_batch, mean in ((1, 0, 3.0), (1, 2, 1.5), (4, 0, 3.0)):
        values = {**TINY, "rounds": rounds, "max_batch": max_batch, "train_first": False, "patience": 50}
        (run,) = pens.run(values, methods="local", data=data, model=nn.Identity).runs
        assert run.mean_batch == mean


def test_warnings_say_who_found_nobody_and_whose_updates_were_undone() -> None:
    """In order of their numbers, in which a set of 8 and less does not list them."""
    simulator, _ = fake_simulation(settings_of(peers=10), "pens")
    simulator.learners.setbacks.update({PeerId(4): 2, PeerId(1): 1})
    simulator.fallbacks |= {PeerId(8), PeerId(3), PeerId(2)}
    simulator.selections.update({PeerId(3): (PeerId(1),), PeerId(2): (), PeerId(8): ()})
    for peer in (PeerId(3), PeerId(8)):
        simulator.learners.by_peer[peer].tally.add([PeerId(1)], [PeerId(1)])
    assert _all_warnings(simulator) == [
        "peer 1: 1 update(s) undone, the loss was not a finite number",
        "peer 4: 2 update(s) undone, the loss was not a finite number",
        "peer 2: heard nobody in step 1, so trained alone",
        "peer 3: selected nobody more often than expected, so took those selected most often",
        "peer 8: selected nobody more often than expected, so trained alone",
    ]


def test_data_sizes_are_each_learners_own() -> None:
    part = samples(20)
    peers = tuple(pens.PeerData(part.take(slice(n)), part.take(slice(v))) for n, v in ((5, 2), (9, 1), (7, 3)))
    federation = pens.Federation(peers, (0, 0, 1), (part, part), ("a", "b"))
    each = _data_sizes(spec_of("pens", settings_of()), federation)
    assert (each.train.tolist(), each.val.tolist()) == ([5, 9, 7], [2, 1, 3])
    together = _data_sizes(spec_of("central", settings_of()), federation)
    assert (together.train.tolist(), together.val.tolist()) == ([21], [6])
    share = _data_sizes(spec_of("central", settings_of(central_val_share=0.5)), federation)
    assert (share.train.tolist(), share.val.tolist()) == ([3 + 5 + 5], [4 + 5 + 5])  # 3.5 is rounded to 4


def test_samples_of_training_and_validation_are_kept_apart() -> None:
    """Whoever asks for training data gets them, and validation data likewise; room for three models a peer and run."""
    part = samples(6)
    held = [pens.PeerData(part.take(slice(4)), part.take(slice(4, 6))), pens.PeerData(part.take(slice(3)), part)]
    executor = new_executor(CountingEngine(3), held, torch.device("cpu"), runs=2)
    assert executor._samples["train"].counts == [4, 3]
    assert executor._samples["val"].counts == [2, 6]
    assert len(executor.models._rows) == 3 * 2 * 2


def test_every_seed_shares_out_the_data_anew() -> None:
    dataset, settings = tiny_dataset(), settings_of()
    record = ExperimentRecord(settings, ("local",), (0, 4), own_parts=("model", "data"))
    this = Experiment(record, Holdings(record.settings, dataset), device="cpu", model=TinyNet)
    this.prepare()
    for seed in (4, 0):
        expected = rotated_federation(dataset, settings.scenario, seed)
        for mine, theirs in zip(this.federation(seed).peers, expected.peers, strict=True):
            np.testing.assert_array_equal(mine.train.x, theirs.train.x)
            np.testing.assert_array_equal(mine.val.x, theirs.val.x)
    assert not np.array_equal(this.federation(0).peers[0].train.x, this.federation(4).peers[0].train.x)

# SPDX-License-Identifier: Apache-2.0
"""Tested models in use: taken out, evaluated on new samples, written to files that give the same outputs."""

from __future__ import annotations

import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import pens
from pens.data.preparation import Preparation, Standard
from pens.errors import DataError, MissingPackage, ModelError, ResultError
from pens.inference.exporting import write_program
from pens.inference.network_form import NetworkForm, module_of
from pens.inference.peer_models import PeerModels
from pens.inference.predicting import said
from pens.partitions.rotation import rotated_federation
from pens.settings.tree import Settings
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.experiment.test_experiment import tiny_run

X = np.random.default_rng(0).normal(size=(7, 1, 4, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def run() -> pens.RunResult:
    return tiny_run(methods="pens").runs[0]


def digits(**arguments: object) -> pens.ExperimentResult:
    few = {"rounds": 1, "step1_rounds": 1, "central_rounds": 1, "peers": 4, "n_sampled": 2, "m": 1, "n_peers": 2}
    return pens.run("digits", overrides=few, **{"methods": "pens", **arguments})  # type: ignore[arg-type]


def test_models_are_reached_by_peer_and_by_name() -> None:
    stacked = {"a": torch.arange(6.0).view(3, 2), "b": torch.zeros(3)}
    models = PeerModels(stacked)
    assert models[1]["a"].tolist() == [2, 3]
    assert list(models[2]) == list(models) == ["a", "b"]
    assert models["a"].equal(stacked["a"])
    assert ("a" in models, "c" in models) == (True, False)
    assert (len(models), models.num_models) == (2, 3)
    assert repr(models) == "PeerModels(3 models: a, b)"
    for wrong in (3, -1):
        with pytest.raises(ResultError, match=f"no peer {wrong}: the run has models of peers 0 to 2"):
            models[wrong]
    with pytest.raises(KeyError):
        models["c"]
    assert PeerModels({"a": torch.ones(1, 2)})[5]["a"].tolist() == [1, 1]
    with pytest.raises(ResultError):
        PeerModels({})[0]


def test_predictions_are_those_that_were_tested(run: pens.RunResult) -> None:
    federation = rotated_federation(tiny_dataset(), Settings().replace(TINY).scenario, 0)
    for peer in range(run.num_peers):
        test = federation.tests[federation.tested_on[peer]]
        right = run.predict(peer, test.x) == test.y
        assert right.mean() == pytest.approx(run.accuracy[peer])


def test_scores_are_what_the_network_returns_whatever_the_batch(run: pens.RunResult) -> None:
    net = TinyNet()
    net.load_state_dict(run.state_dict(2))
    with torch.no_grad():
        expected = net(torch.from_numpy(X)).numpy()
    for batch_size in (1, 3, 100):
        np.testing.assert_allclose(run.scores(2, X, batch_size=batch_size), expected, rtol=1e-5)
    np.testing.assert_allclose(run.scores(2, torch.from_numpy(X).double()), expected, rtol=1e-5)
    assert run.predict(2, X.tolist()).tolist() == expected.argmax(1).tolist()


@pytest.mark.parametrize(
    ("task", "names", "outputs", "expected"),
    [
        ("classification", (), [[0.0, 2.0], [3.0, 1.0]], [1, 0]),
        ("classification", ("ill", "well"), [[0.0, 2.0], [3.0, 1.0]], ["well", "ill"]),
        ("positions", ("a", "b"), [[[0.0, 3.0], [1.0, 2.0]]], [["b", "a"]]),
        ("regression", (), [[0.5], [-2.0]], [0.5, -2.0]),
        ("regression", (), [[0.5, 1.0], [-2.0, 3.0]], [[0.5, 1.0], [-2.0, 3.0]]),
        ("multi-label", (), [[0.5, -1.0, 0.0]], [[1, 0, 0]]),
    ],
)
def test_predictions_have_the_form_of_targets(task: str, names: tuple[str, ...], outputs: Any, expected: Any) -> None:
    form = NetworkForm("mlp", "", (2,), 2, task=task, class_names=names)
    assert said(np.array(outputs), NetworkForm.from_json(form.to_json())).tolist() == expected


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (X[0], r"shape \(1, 4, 4\), that of one sample: pass several, or x\[None\]"),
        (X[:, 0], r"shape \(7, 4, 4\), but the network was trained on \[sample, 1, 4, 4\]"),
        (X.astype(np.int64), "whole numbers .int64., but the network was trained on real ones"),
        (X * np.nan, "7 of 7 samples hold NaN"),
        (X[:0], "0 inputs: give at least one sample"),
        (np.array(["a"]), "expected numbers in an array"),
        (3.0, "expected numbers in an array"),
    ],
)
def test_inputs_of_another_form_are_refused(run: pens.RunResult, x: object, words: str) -> None:
    with pytest.raises(DataError, match=words):
        run.predict(0, x)


def test_tokens_are_whole_numbers() -> None:
    form = NetworkForm("", "own", (5,), 2, whole=True)
    assert form.inputs(np.ones((3, 5), np.uint8)).dtype == np.int64
    assert form.example(4).dtype == torch.int64
    with pytest.raises(DataError, match=r"real numbers .float64., but the network was trained on whole ones"):
        form.inputs(np.ones((3, 5)))


def test_encoders_predict_what_was_tested_at_padded_positions() -> None:
    def make() -> nn.Module:
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1)

    module = module_of(NetworkForm("", "own", (3, 4), 2, factory=make), make().state_dict(), None, "peer 0")
    padded = torch.tensor([[False, False, True]])
    with torch.no_grad():
        assert module(torch.ones(1, 3, 4), src_key_padding_mask=padded)[0, 2].abs().sum() > 0


def test_peers_that_are_not_there_and_other_networks_are_refused(run: pens.RunResult) -> None:
    for peer in (6, -1, "6"):
        with pytest.raises(ResultError, match=f"no peer {peer}: this run has peers 0 to 5"):
            run.predict(peer, X)
    with pytest.raises(ModelError, match="Linear is not the network of which peer 0 of pens seed 0 has a model"):
        run.predict(0, X, model=lambda: nn.Linear(2, 3))
    with pytest.raises(ModelError, match="model is a TinyNet: pass the class"):
        run.predict(0, X, model=TinyNet())
    with pytest.raises(ModelError, match="model makes a str"):
        run.predict(0, X, model=lambda: "x")  # type: ignore[arg-type, return-value]
    with pytest.raises(DataError, match="batch_size = 0"):
        run.predict(0, X, batch_size=0)


def test_real_peers_are_reached_by_name_and_may_have_left_no_model(run: pens.RunResult) -> None:
    named = replace(run, peer_names=tuple("abcdef"))
    assert named.predict("c", X).tolist() == run.predict(2, X).tolist()
    with pytest.raises(ResultError, match=r"no peer z: .* by name: a, b, c"):
        named.state_dict("z")
    left = {name: tensor.clone() for name, tensor in run.models.items()}
    left["out.bias"][2] = torch.nan
    with pytest.raises(ModelError, match="c of pens seed 0 has no model of finite numbers"):
        replace(named, models=PeerModels(left)).predict("c", X)


def test_one_learner_for_all_predicts_for_every_peer() -> None:
    central = tiny_run(methods="central").runs[0]
    assert central.models.num_models == 1
    assert central.predict(5, X).tolist() == central.predict(0, X).tolist()


def test_a_result_finds_the_run_that_is_meant() -> None:
    result = tiny_run(methods="local,pens", seeds=2)
    assert result.predict(1, X, method="pens", seed=1).tolist() == result.of("pens")[1].predict(1, X).tolist()
    assert result.scores(1, X, method="local", seed=0).shape == (7, 3)
    with pytest.raises(ResultError, match="there are 2 runs of pens: choose one by method= and seed="):
        result.predict(1, X, method="pens")
    with pytest.raises(ResultError, match="no run of oracle: there are methods local, pens; seeds 0, 1"):
        result.predict(1, X, method="oracle")
    with pytest.raises(ResultError, match="no run: there are none that is complete"):
        replace(result, runs=()).predict(1, X)


def test_own_networks_are_remembered_here_and_asked_for_elsewhere(tmp_path: Path) -> None:
    result = tiny_run(methods="local", out=tmp_path / "run")
    here = result.predict(3, X)
    loaded = pens.load(tmp_path / "run")
    assert loaded.predict(3, X, model=TinyNet).tolist() == here.tolist()
    for elsewhere in (loaded, pickle.loads(pickle.dumps(result))):
        with pytest.raises(ModelError, match="is the user's own: pass model="):
            elsewhere.predict(3, X)
    again = pens.resume(tmp_path / "run", model=TinyNet, data=tiny_dataset())
    assert again.predict(3, X).tolist() == here.tolist()


def test_built_in_networks_are_built_again(tmp_path: Path) -> None:
    result = digits(out=tmp_path / "run")
    x = np.random.default_rng(1).random((4, 1, 8, 8))
    np.testing.assert_array_equal(pens.load(tmp_path / "run").scores(2, x), result.scores(2, x))


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.safetensors", "model.pt", "model.pth"])
def test_a_state_dict_is_the_same_again(run: pens.RunResult, name: str, tmp_path: Path) -> None:
    path = run.export(4, tmp_path / name)
    assert path == tmp_path / name
    found = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
    assert {key: value.tolist() for key, value in found.items()} == {k: v.tolist() for k, v in run.models[4].items()}
    assert path.stat().st_size < 4000  # one model, not all
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_gives_the_same_outputs(run: pens.RunResult, tmp_path: Path) -> None:
    path = run.export(4, str(tmp_path / "model.pt"), format="torchscript")
    program = torch.jit.load(path)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(program(torch.from_numpy(X)).numpy(), run.scores(4, X), rtol=1e-5)


def test_onnx_gives_the_same_outputs_and_standardises_first(tmp_path: Path) -> None:
    reference = pytest.importorskip("onnx.reference")
    pytest.importorskip("onnxscript")
    digits(methods="pens", out=tmp_path / "run")
    loaded = pens.load(tmp_path / "run").runs[0]
    run = replace(loaded, preparation=Preparation((), (Standard(np.array(0.5), np.array(0.25)),)))
    path = run.export(1, tmp_path / "model.onnx", format="onnx")
    x = np.random.default_rng(1).random((5, 1, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(run.scores(1, x), loaded.scores(1, 4 * x - 2), rtol=1e-4, atol=1e-5)
    (scores,) = reference.ReferenceEvaluator(str(path)).run(None, {"x": x})
    np.testing.assert_allclose(scores, run.scores(1, x), rtol=1e-4, atol=1e-5)


def test_without_onnx_a_sentence_says_what_to_install(
    run: pens.RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingPackage, match=r"needs onnx and onnxscript, .* pip install 'pens-fl\[onnx\]'"):
        run.export(0, tmp_path / "model.onnx", format="onnx")


@pytest.mark.parametrize(
    ("name", "format", "words"),
    [
        ("m.bin", "state_dict", r"ends in \.safetensors or \.pt"),
        ("m.pt", "onnx", r"ends in \.onnx"),
        ("m.pt", "torchscrip", "did you mean 'torchscript'"),
        ("no/m.pt", "state_dict", "there is no folder"),
    ],
)
def test_files_that_cannot_be_are_refused(
    run: pens.RunResult, name: str, format: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ResultError, match=words):
        run.export(0, tmp_path / name, format=format)
    assert not any(tmp_path.iterdir())


class CountsItsBatch(nn.Module):
    """A network whose program would be another for another number of samples."""

    def forward(self, x: Tensor) -> Tensor:
        return x + len(x) if len(x) > 2 else x


class Refuses(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError("not on paper")


def test_a_program_that_would_be_wrong_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"CountsItsBatch cannot be written as torchscript: .* other outputs"):
        write_program(tmp_path / "m.pt", CountsItsBatch(), torch.ones(3, 2), "torchscript")
    with pytest.raises(ModelError, match="Refuses cannot be written as torchscript: NotImplementedError: not on paper"):
        write_program(tmp_path / "m.pt", Refuses(), torch.ones(3, 2), "torchscript")
    assert not any(tmp_path.iterdir())


def test_where_the_shape_is_not_on_record_an_example_is_asked_for(run: pens.RunResult, tmp_path: Path) -> None:
    older = replace(run, network=None)
    with pytest.raises(ModelError, match="the network of this run is not on record: pass model="):
        older.predict(0, X)
    assert older.predict(0, X, model=TinyNet).tolist() == run.predict(0, X).tolist()
    with pytest.raises(ModelError, match="TinyNet cannot be run on inputs of shape"):
        older.predict(0, X[:, :, 1:], model=TinyNet)
    with pytest.raises(ResultError, match="pass example="):
        older.export(0, tmp_path / "m.pt", format="torchscript", model=TinyNet)
    with pytest.raises(ResultError, match="give at least 3"):
        older.export(0, tmp_path / "m.pt", format="torchscript", model=TinyNet, example=X[:2])
    assert older.export(0, tmp_path / "m.pt", format="torchscript", model=TinyNet, example=X).is_file()

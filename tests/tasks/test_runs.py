# SPDX-License-Identifier: Apache-2.0
"""Whole runs of other tasks: from Python and from the command line, stopped and resumed, shown and reported."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import pens
from pens.command_line.main import main
from pens.errors import DataError, Interrupted, SettingsError
from pens.experiment.observer import Observer
from pens.measuring.results import RunResult
from pens.parts import TASKS
from pens.report.study import read_studies
from pens.storage.runlog import ExperimentDir
from pens.tasks.metric import ACCURACY, Measure
from tests.byhand import CountingEngine, federation, run_by_hand
from tests.conftest import TINY

RMSE = Measure("RMSE", "kWh", higher_is_better=False)
VALUES: dict[str, Any] = {**TINY, "task": "regression", "unit": "kWh", "n_sampled": 2, "m": 1}


@pytest.fixture(autouse=True)
def _forget_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that a test gives are known to it alone."""
    for name in ("_found", "_references", "_given"):
        monkeypatch.setattr(TASKS, name, {})


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(x)
        return scores


def houses(sign: float, count: int, seed: int) -> pens.Samples:
    """What each uses depends on three things, in one cluster by the opposite of the other."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, 3)).astype(np.float32)
    return pens.Samples(x, sign * (x @ np.array([1.0, -2.0, 0.5])) + generator.normal(0, 0.1, count))


def energy() -> pens.Federation:
    """Six peers of two clusters, with unequal numbers of samples."""
    clusters = (0, 0, 0, 1, 1, 1)
    peers = tuple(
        pens.PeerData(houses(1 - 2 * c, 8 + p, p), houses(1 - 2 * c, 6, 10 + p)) for p, c in enumerate(clusters)
    )
    return pens.Federation(peers, clusters, (houses(1, 40, 20), houses(-1, 40, 21)), ("plus", "minus"))


def run(**more: Any) -> pens.ExperimentResult:
    given: dict[str, Any] = {"model": Line, "data": energy(), "methods": "local,random,oracle,pens", "device": "cpu"}
    return pens.run({**VALUES, "rounds": 12, "lr": 0.05, **more.pop("values", {})}, **{**given, **more})


class StopAfter(Observer):
    """Stops a run after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def progressed(self, method: str, seed: int, fraction: float) -> None:
        self.left -= 1
        if not self.left:
            raise Interrupted("enough")


def same(a: RunResult, b: RunResult) -> None:
    assert (a.method, a.seed, a.metric, list(a.further)) == (b.method, b.seed, b.metric, list(b.further))
    np.testing.assert_array_equal(a.score, b.score)
    np.testing.assert_array_equal(a.history.val_accuracy, b.history.val_accuracy)
    for measure, values in a.further.items():
        np.testing.assert_array_equal(values, b.further[measure])


def test_a_regression_is_run_resumed_and_read_again(tmp_path: Path) -> None:
    whole = run()
    with pytest.raises(Interrupted):
        run(out=tmp_path / "r", values={"checkpoint_every_s": 0}, observer=StopAfter(9))
    resumed = pens.resume(tmp_path / "r", model=Line, data=energy(), device="cpu")
    again = ExperimentDir(tmp_path / "r").results()
    for a, b, c in zip(whole.runs, resumed.runs, again, strict=True):
        same(a, b)
        same(a, c)
    one = whole.runs[0]
    assert one.metric == RMSE
    assert [measure.name for measure in one.further] == ["MAE", "R²"]
    assert one.worst_tenth == one.score.max()  # high errors are bad
    assert whole.summary("oracle").score.mean < whole.summary("random").score.mean
    assert [one.measure.name for one in whole.summary("pens").further] == ["MAE", "R²"]
    for result in (one, whole.table[0]):
        with pytest.raises(AttributeError, match="measured RMSE kWh, not accuracy: read `score`"):
            result.accuracy  # noqa: B018
    written = json.loads((tmp_path / "r" / "local-seed0" / "result.json").read_text(encoding="utf-8"))
    assert written["metric"] == {"name": "RMSE", "unit": "kWh", "higher_is_better": False}
    assert written["score"] == one.score.tolist()
    assert "accuracy" not in written


def test_the_tested_numbers_are_those_of_the_tested_models() -> None:
    """R² and RMSE of each peer, computed once more with NumPy alone."""
    data, result = energy(), run(methods="random").runs[0]
    for peer in range(6):
        module, test = Line(), data.tests[data.clusters[peer]]  # type: ignore[index]
        module.load_state_dict(result.state_dict(peer))
        error = module(torch.from_numpy(test.x)).detach().numpy()[:, 0] - test.y
        assert result.score[peer] == pytest.approx(math.sqrt((error**2).mean()), rel=1e-4)
        mae, r2 = (values[peer] for values in result.further.values())
        assert mae == pytest.approx(np.abs(error).mean(), rel=1e-4)
        assert r2 == pytest.approx(1 - (error**2).sum() / ((test.y - test.y.mean()) ** 2).sum(), rel=1e-3)


def test_a_stack_runs_as_one_model_after_the_other() -> None:
    a, b = (run(values={"backend": backend}, methods="pens").runs[0] for backend in ("stack", "loop"))
    np.testing.assert_allclose(a.score, b.score, rtol=1e-2)
    assert a.neighbours == b.neighbours


def test_a_regression_is_shown_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(seeds=3, out=tmp_path / "r")
    for command in (["show", str(tmp_path / "r")], ["report", str(tmp_path / "r"), "--out", str(tmp_path / "p.html")]):
        with pytest.raises(SystemExit) as end:
            main(command)
        assert end.value.code in (0, None)
    printed = capsys.readouterr().out
    assert "RMSE" in printed
    assert "lower is better" in printed
    assert "accuracy" not in printed
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "How good is each method?" in page
    assert "test RMSE kWh" in page
    assert "validation RMSE, kWh" in page
    words = re.sub(r"(?s)<(style|script).*?</\1>|<[^>]*>", " ", page)
    assert re.findall(r"\S+\s+accura\S*", words) == ["stop_on  accuracy"]  # the name of a setting's value
    (study,) = read_studies([tmp_path / "r"])
    best = min(study.methods, key=lambda method: np.mean([of.score.mean() for of in study.of(method)]))
    assert best in ("oracle", "pens")
    assert (tmp_path / "p_files" / "r-score.csv").is_file()


def test_the_command_line_runs_a_regression(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digits as numbers: how far a peer is from the digit."""
    monkeypatch.chdir(tmp_path)
    words = "run digits --methods local,random --out r --device cpu --set task=regression peers=4 rounds=2 n_peers=1"
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code in (0, None)
    printed = capsys.readouterr().out
    assert "RMSE" in printed
    assert not re.search(r"\d % in \d", printed)
    assert ExperimentDir(tmp_path / "r").read().settings.model.task == "regression"
    with pytest.raises(SystemExit) as end:
        main(["run", "digits", "--out", "s", "--set", "task=multi-label"])
    assert end.value.code
    assert "do not suit the task multi-label" in " ".join(capsys.readouterr().err.split())


def test_partitions_by_label_refuse_other_tasks() -> None:
    for partition in ("dirichlet", "shards"):
        with pytest.raises(
            SettingsError, match=f"partition = '{partition}' shares samples out by their class, but with"
        ):
            pens.run("digits", overrides={"task": "regression", "partition": partition})
    with pytest.raises(DataError, match=r"targets have shape \(3, 2\) .* no labels to count"):
        pens.count_labels(pens.Samples(np.zeros((3, 1)), np.zeros((3, 2))), 2)


def test_pixels_are_turned_with_their_image() -> None:
    """Two clusters, of which one is turned by 90 degrees; the label of a pixel is whether it is bright."""
    x = np.random.default_rng(0).normal(size=(120, 1, 4, 4)).astype(np.float32)
    samples = pens.Samples(x, (x[:, 0] > 0).astype(np.int64))
    values = {**TINY, "task": "positions", "rotations": [0, 90], "epochs": 8, "lr": 0.1, "rounds": 3}
    data = pens.Dataset("bright", samples, samples)
    result = pens.run(values, data=data, model=lambda: nn.Conv2d(1, 2, 1), methods="random", device="cpu").runs[0]
    assert result.metric == Measure("accuracy per position", "%")
    assert result.score.min() > 0.9


# --- the direction, by hand -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "best", "updates"), [("classification", [1.5, 0.5], 3), ("regression", [2.5, 1.5], 4)]
)
def test_early_stopping_and_the_best_model_follow_the_direction(
    monkeypatch: pytest.MonkeyPatch, task: str, best: list[float], updates: int
) -> None:
    """Two peers average in every round and then add 1 to their own class: peer 0 has [1, 0], which does not count yet,
    [1.5, 0.5], [2, 1] and [2.5, 1.5]. What is measured is the share of its class: 3/4, 2/3 and 5/8. As accuracies they
    fall, so that the first is the best and the next update the last; as errors they get better and better."""
    data = federation((0, 0), [[1.0, 1.0], [1.0, 1.0]])
    values = {"task": task, "rounds": 3, "n_peers": 1, "peers": 2, "stop_on": "metric", "patience": 1}
    (found,), _ = run_by_hand(monkeypatch, data, "random", values, engine=CountingEngine(2))
    mine = found.history.val_score[found.history.peer == 0]
    np.testing.assert_allclose(mine, [1, 3 / 4, 2 / 3, 5 / 8][:updates])
    assert found.models["epochs"][0].tolist() == best


# --- own tasks --------------------------------------------------------------------------------------------------------


class Pinball(pens.Task):
    """What is exceeded once in ten times."""

    name = "pinball"
    about = "the ninth of ten"
    metrics = (pens.Metric("pinball loss", lambda outputs, targets: pinball(outputs, targets), higher_is_better=False),)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return pinball(outputs, targets)


def pinball(outputs: Tensor, targets: Tensor) -> Tensor:
    error = targets - outputs[:, 0]
    return torch.maximum(0.9 * error, -0.1 * error)


@pytest.mark.parametrize("given", [Pinball, Pinball(), f"{__name__}:Pinball"])
def test_a_task_of_ones_own(given: object, tmp_path: Path) -> None:
    result = run(methods="random", values={"task": given, "unit": ""}, out=tmp_path / "r")
    assert result.runs[0].metric == Measure("pinball loss", "", higher_is_better=False)
    assert result.settings.model.task == "pinball" if isinstance(given, Pinball) else f"{__file__}:Pinball"
    assert TASKS.find(result.settings.model.task).name == "pinball"
    assert ExperimentDir(tmp_path / "r").read().settings == result.settings


class OfTheBatch(Pinball):
    name = "of-the-batch"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[:, 0] - outputs.mean() * 3


class ByAnother(Pinball):
    """The first three samples are not enough to notice it."""

    name = "by-another"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().losses(outputs, targets) * (2 if len(targets) > 5 else 1)


class Drawn(Pinball):
    name = "drawn"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().losses(outputs, targets) * (torch.rand(len(targets)) > 1e-9)


class InPlace(Pinball):
    name = "in-place"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().losses(outputs, targets.mul_(2))


class InPlaceOutputs(Pinball):
    name = "in-place-outputs"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().losses(outputs.mul_(2), targets)


class Centred(Pinball):
    name = "centred"
    metrics = (pens.Metric("centred", lambda outputs, targets: outputs[:, 0] - outputs.mean()),)


class OneNumber(Pinball):
    name = "one-number"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().losses(outputs, targets).mean()


class Broken(Pinball):
    name = "broken"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        raise ZeroDivisionError("oh")


class OfChance(Pinball):
    name = "of-chance"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return pinball(outputs + torch.rand_like(outputs), targets)


class Unmeasured(Pinball):
    name = "unmeasured"
    metrics = ()  # type: ignore[assignment]


class NoTuple(Pinball):
    name = "no-tuple"
    metrics = pens.Metric("mean", pinball)  # type: ignore[assignment]


class ValueFails(Pinball):
    name = "value-fails"
    metrics = (pens.Metric("mean", pinball, lambda sums, count: count / 0),)


class NoNumber(Pinball):
    name = "no-number"
    metrics = (pens.Metric("mean", pinball, lambda sums, count: math.nan),)


class Detached(Pinball):
    name = "detached"

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().losses(outputs, targets).detach()


class Wide(Pinball):
    name = "wide"
    metrics = (pens.Metric("wide", lambda outputs, targets: outputs.repeat(1, 2)),)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (OfTheBatch, "the loss of a sample depends on the other samples of its batch"),
        (OneNumber, r"losses returns shape \(\) for 8 samples: expected one row for each sample"),
        (
            Broken,
            r"losses fails: ZeroDivisionError: oh .*test_runs\.py, line .* outputs of shape \(8, 1\), as the task's",
        ),
        (OfChance, "losses draws random numbers, so that no run could be repeated"),
        (Unmeasured, r"its metrics are \(\): give a tuple of pens\.Metric with at least one"),
        (NoTuple, r"its metrics are Metric\(name='mean'.*: give a tuple of pens\.Metric"),
        (ValueFails, "the `value` of mean fails: ZeroDivisionError.* an array of 1 numbers, and the number of samples"),
        (NoNumber, "mean is nan for 8 samples, and peers may hold so few: return a finite number"),
        (ByAnother, "the loss of a sample depends on the other samples of its batch"),
        (InPlace, "losses changes its targets in place: make new tensors, clamp in place of clamp_"),
        (InPlaceOutputs, "losses changes its outputs in place"),
        (Centred, "what a sample adds to centred depends on the other samples of its batch"),
        (Detached, "has no gradient: expected one real number for each sample"),
        (Wide, r"statistics of wide have shape \(8, 2\) .* beside a `value`"),
        (Line, "task = "),
    ],
)
def test_a_task_that_cannot_work_is_refused_in_words(task: type, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        run(methods="local", values={"task": task, "unit": ""})


@pytest.mark.parametrize(
    ("function", "says", "reason"),
    [
        ("num_outputs", lambda self, targets: targets.max(), "its num_outputs failed: AttributeError"),
        ("num_outputs", lambda self, targets: None, "its num_outputs returned None: return a whole number"),
        ("output_shape", lambda self, num_outputs, target_shape: num_outputs, "its output_shape failed: TypeError"),
        ("check", lambda self, targets: targets.oh, "its check failed: AttributeError"),
    ],
)
def test_what_a_task_says_of_targets_is_checked(
    function: str, says: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pinball, function, says)
    with pytest.raises(SettingsError, match=f"task pinball: {reason}"):
        run(methods="local", values={"task": Pinball, "unit": ""})


class Smoothed(pens.ClassTask):
    """Classes, with another loss than the cross-entropy."""

    name = "smoothed"
    about = "label smoothing"
    metrics = (pens.Metric("hits", lambda outputs, targets: outputs.argmax(1) == targets, unit="%"),)

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.2)


class Claims(Smoothed):
    name = "claims"
    is_cross_entropy = True


def test_classes_with_another_loss_are_shared_out_by_their_labels() -> None:
    values = {"partition": "dirichlet", "peers": 4, "rounds": 1, "n_peers": 2}
    found = pens.run("digits", methods="local", overrides={"task": Smoothed, **values}, device="cpu")
    assert found.table[0].score.measure.name == "hits"
    with pytest.raises(SettingsError, match=r"task claims: it says is_cross_entropy = True.* set is_cross_entropy = F"):
        pens.run("digits", methods="local", overrides={"task": Claims, **values}, device="cpu")


def test_records_without_a_task_are_of_accuracies(tmp_path: Path) -> None:
    """Run directories of older versions."""
    run(methods="local", values={"task": "regression"}, out=tmp_path / "r")
    path = tmp_path / "r" / "local-seed0" / "result.json"
    written = json.loads(path.read_text(encoding="utf-8"))
    older = {name: value for name, value in written.items() if name not in ("metric", "further", "score")}
    path.write_text(json.dumps({**older, "accuracy": [0.5] * 6}), encoding="utf-8")
    record = json.loads((tmp_path / "r" / "experiment.json").read_text(encoding="utf-8"))
    del record["settings"]["model"]["task"], record["settings"]["regression"]
    (tmp_path / "r" / "experiment.json").write_text(json.dumps(record), encoding="utf-8")
    directory = ExperimentDir(tmp_path / "r")
    assert directory.read().settings.model.task == "classification"
    (found,) = directory.results()
    assert found.metric == ACCURACY
    assert found.accuracy.tolist() == [0.5] * 6
    assert not found.further

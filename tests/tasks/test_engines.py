# SPDX-License-Identifier: Apache-2.0
"""Laws 1 and 3 for every task: a stack computes what its models would compute alone, however the work is cut.

Holders have unequal numbers of samples, and the last batches are short.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pens.data.samples import Array, Samples
from pens.engine import training
from pens.engine.batches import SampleStack, Subset
from pens.engine.functional import StackedNetwork
from pens.engine.optimizers import Recipe
from pens.engine.stack import ModelStack
from pens.engine.training import LoopEngine, StackEngine, Trained, new_engine
from pens.errors import ModelError
from pens.nets import NetFactory
from pens.settings.schema import EngineSettings
from pens.settings.tree import Settings
from pens.tasks.task import Outputs, Task, outputs_of, task_of

CPU = torch.device("cpu")
COUNTS = (10, 3, 7)
RECIPE = Recipe("adam", 3e-3, 0.0, 1e-2, 4)


class Tagger(nn.Module):
    """A score for each of three classes at each position of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(9, 6), nn.Linear(6, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        """[batch, length] → [batch, class, length]"""
        scores: Tensor = self.out(self.embed(tokens))
        return scores.transpose(1, 2)


def dense(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, outputs))


def segmenter() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))


def with_holes(generator: np.random.Generator, labels: Array) -> Array:
    return np.where(generator.random(labels.shape) < 0.3, -100, labels)


@dataclass(frozen=True)
class Case:
    factory: NetFactory
    inputs: Any
    targets: Any
    task: str
    options: tuple[tuple[str, object], ...] = ()


def real(generator: np.random.Generator, n: int) -> Array:
    return generator.normal(size=(n, 4)).astype(np.float32)


CASES = {
    "balanced": Case(
        lambda: dense(3), real, lambda g, n: g.integers(0, 3, n), "classification", (("class_weights", "balanced"),)
    ),
    "given weights": Case(
        lambda: dense(3), real, lambda g, n: g.integers(0, 3, n), "classification", (("class_weights", (1, 5, 0.5)),)
    ),
    "regression": Case(lambda: dense(1), real, lambda g, n: g.normal(size=n), "regression"),
    "regression of two": Case(lambda: dense(2), real, lambda g, n: g.normal(size=(n, 2)), "regression"),
    "multi-label": Case(lambda: dense(3), real, lambda g, n: g.integers(0, 2, (n, 3)), "multi-label"),
    "tagging": Case(
        Tagger, lambda g, n: g.integers(0, 9, (n, 5)), lambda g, n: with_holes(g, g.integers(0, 3, (n, 5))), "positions"
    ),
    "segmentation": Case(
        segmenter,
        lambda g, n: g.normal(size=(n, 1, 4, 6)).astype(np.float32),
        lambda g, n: with_holes(g, g.integers(0, 3, (n, 4, 6))),
        "positions",
    ),
}


def task_in(case: Case) -> Task:
    return task_of(Settings().replace({"task": case.task, **dict(case.options)}))


def held_in(case: Case) -> list[Samples]:
    generator = np.random.default_rng(0)
    return [Samples(case.inputs(generator, n), case.targets(generator, n)) for n in COUNTS]


def outputs(case: Case) -> Outputs:
    task, held = task_in(case), held_in(case)
    return outputs_of(task, task.num_outputs([one.y for one in held]), held[0].y.shape[1:])


def stack_of(case: Case, device: torch.device = CPU) -> SampleStack:
    weights = [task_in(case).sample_weights(one.y) for one in held_in(case)]
    return SampleStack(held_in(case), device, None if weights[0] is None else weights)  # type: ignore[arg-type]


def engines(case: Case, memory: int = 1 << 30) -> tuple[StackEngine, LoopEngine]:
    task, example = task_in(case), stack_of(case).x[0, :3]
    return (
        StackEngine(StackedNetwork(case.factory, example, outputs(case)), memory, task=task),
        LoopEngine(StackedNetwork(case.factory, example, outputs(case), stacked=False), task),
    )


def trained_by(engine: StackEngine | LoopEngine, data: SampleStack) -> Trained:
    rows = torch.stack([engine.network.new_row(seed) for seed in range(3)]).to(data.device)
    return engine.train(rows, data, [0, 1, 2], [100, 101, 102], 2, RECIPE)


@pytest.mark.parametrize("name", CASES)
def test_a_stack_trains_and_measures_like_its_models_one_by_one(name: str) -> None:
    case, data = CASES[name], stack_of(CASES[name])
    stack, loop = engines(case)
    together, alone = trained_by(stack, data), trained_by(loop, data)
    torch.testing.assert_close(together.rows, alone.rows, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(together.loss, alone.loss, rtol=1e-3, atol=1e-4)
    models = ModelStack(stack.network.size, CPU)
    rows = models.add(together.rows)
    for subset in (None, Subset(4, [5, 6, 7])):
        a, b = (e.evaluate(models, rows, data, [0, 1, 2], subset, further=True) for e in (stack, loop))
        np.testing.assert_allclose(a.loss, b.loss, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(a.score, b.score, rtol=1e-4, atol=1e-5)
        assert list(a.further) == list(b.further) == [metric.name for metric in task_in(case).metrics[1:]]
        for metric, values in a.further.items():
            np.testing.assert_allclose(values, b.further[metric], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_no_bit_depends_on_how_the_work_is_cut(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 3: chunks of models, and chunks of samples in an evaluation."""
    case, data = CASES[name], stack_of(CASES[name])
    whole, cut = engines(case)[0], engines(case, memory=1)[0]
    rows = trained_by(whole, data).rows
    assert torch.equal(rows, trained_by(cut, data).rows)
    models = ModelStack(whole.network.size, CPU)
    kept = models.add(rows)
    before = whole.evaluate(models, kept, data, [0, 1, 2], further=True)
    after = cut.evaluate(models, kept, data, [0, 1, 2], further=True)
    assert before.score.tolist() == after.score.tolist()
    monkeypatch.setattr(training, "_SAMPLES_AT_ONCE", {"cpu": 4})
    pieces = whole.evaluate(models, kept, data, [0, 1, 2], further=True)
    np.testing.assert_allclose(pieces.loss, before.loss, rtol=1e-6)
    np.testing.assert_allclose(pieces.score, before.score, rtol=1e-6)
    for metric, values in before.further.items():
        assert values.tolist() == after.further[metric].tolist()
        np.testing.assert_allclose(pieces.further[metric], values, rtol=1e-6)


@pytest.mark.parametrize("stacked", [True, False])
def test_a_step_of_regression_by_hand(stacked: bool) -> None:
    """One weight w = 0 without bias, samples x = 1 with y = 1 and x = 2 with y = 4. Squared errors 1 and 16, their mean
    8.5. The gradient is the mean of 2 (w x − y) x, −2 and −16: −9; a step of size 0.1 gives w = 0.9. Then the errors
    are 0.1 and 2.2: the RMSE is √((0.01 + 4.84) / 2), the MAE 1.15. Around their mean 2.5 the targets have 4.5."""
    task = task_of(Settings().replace({"task": "regression"}))
    own = Samples(np.array([[1.0], [2.0]]), np.array([1, 4]))  # whole numbers are numbers, too
    others = Samples(np.zeros((3, 1)), np.full(3, 99.5))
    data = SampleStack([others, own], CPU)
    network = StackedNetwork(lambda: nn.Linear(1, 1, bias=False), data.x[0, :3], outputs_of(task, 1, ()), stacked)
    engine = StackEngine(network, 1 << 28, task=task) if stacked else LoopEngine(network, task)
    trained = engine.train(torch.zeros(1, 1), data, [1], [5], 1, Recipe("sgd", 0.1, 0.0, 0.0, 2))
    assert trained.loss.tolist() == pytest.approx([8.5])
    assert trained.rows.tolist() == [[pytest.approx(0.9)]]
    models = ModelStack(1, CPU)
    found = engine.evaluate(models, models.add(trained.rows), data, [1], further=True)
    assert found.loss.tolist() == pytest.approx([4.85 / 2])
    assert found.score.tolist() == pytest.approx([math.sqrt(4.85 / 2)])
    assert found.further["MAE"].tolist() == pytest.approx([1.15])
    assert found.further["R²"].tolist() == pytest.approx([1 - 4.85 / 4.5])


@pytest.mark.parametrize("stacked", [True, False])
def test_a_step_with_class_weights_by_hand(stacked: bool) -> None:
    """As in `test_a_step_of_training_and_an_evaluation_by_hand`, but the first sample counts 3 and the second 0: the
    mean loss is 1.5 ln 2, and the gradient that of the first sample alone, three times."""
    task = task_of(Settings().replace({"class_weights": (3, 1e-9)}))
    own = Samples(np.array([[1, 0], [0, 2]], np.float32), np.array([0, 1]))
    weights = task.sample_weights(own.y)
    assert weights is not None
    data = SampleStack([own, own], CPU, [weights, weights])
    network = StackedNetwork(lambda: nn.Linear(2, 2, bias=False), data.x[0, :2], 2, stacked)
    engine = StackEngine(network, 1 << 28, task=task) if stacked else LoopEngine(network, task)
    trained = engine.train(torch.zeros(1, network.size), data, [1], [5], 1, Recipe("sgd", 1.0, 0.0, 0.0, 2))
    assert trained.loss.tolist() == pytest.approx([1.5 * math.log(2)])
    torch.testing.assert_close(network.tensors(trained.rows[0])["weight"], torch.tensor([[0.75, 0], [-0.75, 0]]))
    models = ModelStack(network.size, CPU)
    losses = (math.log(1 + math.exp(-1.5)), math.log(2))  # without weights: they count in training alone
    assert engine.evaluate(models, models.add(trained.rows), data, [1]).loss.tolist() == pytest.approx(
        [sum(losses) / 2]
    )


@pytest.mark.parametrize(
    ("name", "factory", "reason"),
    [
        ("regression", lambda: dense(2), r"returns shape \(3, 2\) .*: expected \[batch, 1\], the outputs that"),
        ("regression", lambda: nn.Sequential(dense(1), nn.Flatten(0)), r"returns shape \(3,\) .*expected \[batch, 1\]"),
        ("multi-label", lambda: dense(4), r"expected \[batch, 3\]"),
        ("tagging", lambda: nn.Sequential(Tagger(), nn.Flatten()), r"expected \[batch, 3, 5\], with at least 3"),
        ("balanced", lambda: dense(2), "expected one row of at least 3 class scores per sample, since the data have"),
    ],
)  # fmt: skip
def test_a_network_that_does_not_fit_the_task_is_refused(name: str, factory: NetFactory, reason: str) -> None:
    case = CASES[name]
    with pytest.raises(ModelError, match=reason):
        new_engine(factory, stack_of(case).x[0, :3], outputs(case), EngineSettings(), 1, task_in(case))


def test_more_classes_than_the_data_have_are_no_fault() -> None:
    case = CASES["tagging"]
    wide = Outputs((2, 5), "")
    assert wide.fits((3, 5))
    assert not wide.fits((1, 5))
    assert not wide.fits((3, 6))
    for backend in ("stack", "loop"):
        settings = EngineSettings(backend=backend)
        assert new_engine(Tagger, stack_of(case).x[0, :3], wide, settings, 1, task_in(case)).network.num_outputs == 3

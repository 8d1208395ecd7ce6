# SPDX-License-Identifier: Apache-2.0
"""Each built-in loss and metric, with numbers that a reader can check."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pens.errors import DataError, SettingsError
from pens.parts import TASKS
from pens.settings.tree import Settings
from pens.tasks.metric import ACCURACY, Measure, Metric
from pens.tasks.task import Task, task_of

BUILT_IN = ("classification", "regression", "multi-label", "positions")
WEIGHTED = {"class_weights": "balanced"}


def task(name: str, **options: Any) -> Task:
    return task_of(Settings().replace({"task": name, **options}))


def measured(metric: Metric, outputs: Tensor, targets: Tensor) -> float:
    """In one piece, and sample by sample, which must not matter."""
    together = metric.statistics(outputs, targets).double().view(len(targets), -1).sum(0)
    single = [metric.statistics(outputs[i : i + 1], targets[i : i + 1]).double() for i in range(len(targets))]
    torch.testing.assert_close(torch.stack(single).view(len(targets), -1).sum(0), together)
    return metric.of_sums(together.numpy(), len(targets))


def all_of(name: str, outputs: Tensor, targets: Tensor, **options: Any) -> dict[str, float]:
    found = task(name, **options)
    return {metric.name: measured(metric, outputs, targets) for metric in found.metrics}


# --- classification ---------------------------------------------------------------------------------------------------


def test_cross_entropy_and_accuracy_by_hand() -> None:
    """Scores ln 1 and ln 3 are chances of 1/4 and 3/4."""
    outputs, targets = torch.tensor([[0.0, math.log(3)], [0.0, math.log(3)], [0.0, 0.0]]), torch.tensor([1, 0, 0])
    expected = [-math.log(3 / 4), -math.log(1 / 4), math.log(2)]
    assert task("classification").losses(outputs, targets).tolist() == pytest.approx(expected)
    assert all_of("classification", outputs, targets) == {"accuracy": pytest.approx(2 / 3)}  # of a tie, the first
    assert task("classification").measure == ACCURACY


def test_balanced_accuracy_and_macro_f1_by_hand() -> None:
    """Labels 0 0 0 1, taken for 0 0 1 1: recall 2/3 and 1; F1 4/5 and 2/3. Class 2 does not occur."""
    outputs = torch.eye(3)[[0, 0, 1, 1]]
    assert all_of("classification", outputs, torch.tensor([0, 0, 0, 1]), **WEIGHTED) == {
        "accuracy": 0.75,
        "balanced accuracy": pytest.approx((2 / 3 + 1) / 2),
        "macro F1": pytest.approx((4 / 5 + 2 / 3) / 2),
    }


def test_class_weights_by_hand() -> None:
    """Three samples of class 0, one of class 2, and class 1 is not there: 4 / (2 · 3) and 4 / (2 · 1)."""
    labels = np.array([0, 0, 2, 0])
    assert task("classification").sample_weights(labels) is None
    balanced = task("classification", **WEIGHTED).sample_weights(labels)
    assert balanced is not None
    assert balanced.tolist() == pytest.approx([2 / 3, 2 / 3, 2, 2 / 3])
    assert balanced.mean() == pytest.approx(1)
    given = task("classification", class_weights=[1, 5, 3]).sample_weights(labels)
    assert given is not None
    assert given.tolist() == [1, 1, 3, 1]
    assert task("classification", class_weights="1,5").options.class_weights == (1.0, 5.0)
    with pytest.raises(DataError, match="class_weights has 2 weights, but there is a label 2: give one for each class"):
        task("classification", class_weights=[1, 5]).check(labels)
    with pytest.raises(SettingsError, match="class_weights = 'some'"):
        task("classification", class_weights="some")


# --- regression -------------------------------------------------------------------------------------------------------


def test_regression_by_hand() -> None:
    """Targets 1 2 3 4, predicted 1 2 3 2: one error of 2. Squares 4 in all, their mean 1; squared distances from the
    mean 2.5 are 2.25 + 0.25 + 0.25 + 2.25 = 5."""
    outputs, targets = torch.tensor([[1.0], [2.0], [3.0], [2.0]]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert task("regression").losses(outputs, targets).tolist() == [0, 0, 0, 4]
    assert all_of("regression", outputs, targets) == {
        "RMSE": 1.0,
        "MAE": 0.5,
        "R²": pytest.approx(1 - 4 / 5),
    }
    assert task("regression", unit="kWh").measure == Measure("RMSE", "kWh", higher_is_better=False)


def test_regression_of_two_numbers_by_hand() -> None:
    """Errors 1 and 3 of the first sample, none of the second: squares (1 + 9) / 2 = 5. The R² of the first number is
    1 − 1/2, that of the second 1 − 9/4.5."""
    outputs, targets = torch.tensor([[1.0, 3.0], [2.0, 3.0]]), torch.tensor([[0.0, 0.0], [2.0, 3.0]])
    assert task("regression").losses(outputs, targets).tolist() == [5, 0]
    found = all_of("regression", outputs, targets)
    assert found["RMSE"] == pytest.approx(math.sqrt(5 / 2))
    assert found["MAE"] == 1.0
    assert found["R²"] == pytest.approx((1 - 1 / 2 + 1 - 9 / 4.5) / 2)


def test_r_squared_of_what_never_changes_and_of_what_is_far_from_zero() -> None:
    """One that is always the same is met or not. Large numbers with a small spread keep their digits."""
    same, (metric,) = torch.full((3,), 7.0), task("regression").metrics[2:]
    assert measured(metric, same[:, None], same) == 1
    assert measured(metric, same[:, None] + 1, same) == 0
    far = torch.tensor([1e4, 1e4 + 1, 1e4 + 2])
    assert measured(metric, far.mean().expand(3, 1), far) == pytest.approx(0, abs=1e-6)


# --- several labels ---------------------------------------------------------------------------------------------------


def test_multi_label_by_hand() -> None:
    """Outputs 0 and ln 3 say 1/2 and 3/4. Of the second label TP = 1, FP = 1, FN = 0; of the first TP = 0, FN = 1."""
    outputs, targets = torch.tensor([[0.0, math.log(3)], [-1.0, 1.0]]), torch.tensor([[1, 1], [0, 0]])
    losses = task("multi-label").losses(outputs, targets).tolist()
    assert losses[0] == pytest.approx((math.log(2) - math.log(3 / 4)) / 2)
    assert losses[1] == pytest.approx((math.log(1 + math.exp(-1)) + math.log(1 + math.e)) / 2)
    far = torch.tensor([[1e4, -1e4]])
    assert task("multi-label").losses(far, torch.tensor([[1, 1]])).tolist() == [5e3]
    numbers, labels = torch.tensor([[0.0, 2.0, -3.0]], requires_grad=True), torch.tensor([[1, 0, 1]])
    (slopes,) = torch.autograd.grad(task("multi-label").losses(numbers, labels).sum(), numbers)
    torch.testing.assert_close(slopes, (numbers.sigmoid() - labels) / 3)
    assert all_of("multi-label", outputs, targets.double()) == {
        "macro F1": pytest.approx((0 + 2 / 3) / 2),
        "label accuracy": 0.5,
        "exact match": 0.0,
    }


# --- positions --------------------------------------------------------------------------------------------------------


def test_tagging_by_hand() -> None:
    """Two sequences of three; the first has two labelled positions, the second none. Of the first, one is right."""
    scores = torch.tensor([[0.0, 0.0, 0.0], [math.log(3)] * 3])  # [class, length]: class 1 with 3/4 everywhere
    outputs, targets = torch.stack([scores, scores]), torch.tensor([[1, 0, -100], [-100, -100, -100]])
    losses = task("positions").losses(outputs, targets).tolist()
    assert losses == pytest.approx([(-math.log(3 / 4) - math.log(1 / 4)) / 2, 0])
    found = all_of("positions", outputs, targets)
    assert found["accuracy per position"] == 0.5
    assert found["mean IoU"] == pytest.approx((0 / 1 + 1 / 2) / 2)  # class 0: one, never said; class 1: one of two


def test_segmentation_by_hand() -> None:
    """One image of 2 × 2, all but one pixel labelled: 3 pixels, 2 right. Class 1: of 2 pixels 1 is found."""
    said, targets = torch.tensor([[[0, 1], [0, 1]]]), torch.tensor([[[0, 1], [1, -100]]])
    outputs = torch.nn.functional.one_hot(said, 3).permute(0, 3, 1, 2).float()  # [batch, class, height, width]
    found = all_of("positions", outputs, targets)
    assert found["accuracy per position"] == pytest.approx(2 / 3)
    assert found["mean IoU"] == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert task("positions").losses(outputs, targets).shape == (1,)


# --- what all have in common ------------------------------------------------------------------------------------------

EXAMPLES: dict[str, tuple[tuple[int, ...], Tensor]] = {
    "classification": ((4, 3), torch.tensor([0, 2, 1, 1])),
    "regression": ((4, 2), torch.randn(4, 2)),
    "multi-label": ((4, 2), torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0]])),
    "positions": ((4, 3, 5), torch.tensor([[0, 1, 2, 1, -100]] * 4)),
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_loss_is_one_number_for_each_sample_alone_and_in_a_stack(name: str) -> None:
    shape, targets = EXAMPLES[name]
    outputs = torch.randn(2, *shape)
    found = task(name)
    alone = torch.stack([found.losses(of, targets) for of in outputs])
    assert alone.shape == (2, 4)
    stacked = torch.func.vmap(found.losses, in_dims=(0, None))(outputs, targets)
    torch.testing.assert_close(stacked, alone)
    each = torch.cat([found.losses(outputs[0, i : i + 1], targets[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(each, alone[0])


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_a_network_has_to_return(name: str) -> None:
    shape, targets = EXAMPLES[name]
    found, held = task(name), targets.numpy()
    found.check(held)
    number = found.num_outputs([held, held[:1]])
    assert found.output_shape(number, held.shape[1:]) == shape[1:]


@pytest.mark.parametrize(
    ("name", "targets", "reason"),
    [
        ("classification", np.zeros(3), r"shape \(3,\) and type float64: expected one integer class per sample"),
        ("classification", np.array([0, -1]), "label -1 is negative: number the classes from 0"),
        ("classification", np.zeros((3, 1), int), r"shape \(3, 1\)"),
        ("regression", np.zeros((3, 2, 2)), r"shape \(3, 2, 2\) .* expected numbers, \[sample\] or \[sample, number\]"),
        ("regression", np.zeros((3, 0)), r"shape \(3, 0\)"),
        ("regression", np.zeros(3, bool), "type bool"),
        ("regression", np.array([0, math.nan, math.inf]), "2 of them are not finite numbers: remove these samples"),
        ("multi-label", np.zeros(3), r"shape \(3,\) .* expected 0 or 1 for each label, \[sample, label\]"),
        ("multi-label", np.array([[0, 2]]), "there is a 2: expected 0 or 1"),
        ("multi-label", np.array([[0, math.nan]]), "there is a nan: expected 0 or 1"),
        ("positions", np.zeros(3, int), r"expected an integer class per position, \[sample, length\] or"),
        ("positions", np.zeros((3, 2)), "type float64"),
        ("positions", np.array([[0, -1]]), "label -1 is negative: number the classes from 0, or write -100"),
    ],
)  # fmt: skip
def test_targets_of_another_task_are_refused(name: str, targets: np.ndarray[Any, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        task(name).check(targets)


def test_numbers_with_their_unit() -> None:
    assert ACCURACY.words(0.8531) == "85.3 %"
    error = Measure("RMSE", "kWh", higher_is_better=False)
    told = [error.words(value) for value in (0.41234, 12.345, 1234.5, 0.0, math.inf)]
    assert told == ["0.412 kWh", "12.3 kWh", "1234 kWh", "0.00 kWh", "inf kWh"]
    assert error.number(0.05, like=12.3) == "0.1"
    assert [error.label(), error.label("test", comma=True), Measure("R²").label("test")] == [
        "RMSE kWh",
        "test RMSE, kWh",
        "test R²",
    ]
    assert [ACCURACY.gap_unit, error.gap_unit, Measure("R²").gap_unit] == ["points", "kWh", "of R²"]
    assert [ACCURACY.goodness(0.5), error.goodness(0.5)] == [0.5, -0.5]


def test_every_built_in_task_is_found_and_explained() -> None:
    assert TASKS.built_in == BUILT_IN
    assert all(TASKS.find(name).about for name in BUILT_IN)
    with pytest.raises(SettingsError, match="unknown task 'regresion', did you mean 'regression'"):
        task("regresion")

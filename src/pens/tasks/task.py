# SPDX-License-Identifier: Apache-2.0
"""A task says what networks learn: the loss of a sample, the metrics, and what a target looks like.

It knows nothing of networks. Write your own as a subclass of `Task` in a file, and name it in the settings: `task =
"mine.py:Mine"`. It is found, checked, stored, resumed and reported as those of this package are.

Where nothing else is said here, targets are real numbers: one, or k of them, for each sample.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pens.data.samples import Array, Dataset, Samples
from pens.data.scenarios import Federation, PeerData
from pens.errors import DataError
from pens.hooks import calling, refuse_result
from pens.parts import TASKS
from pens.settings.schema import SettingsTree
from pens.settings.section import Section
from pens.tasks.metric import Measure, Metric

if TYPE_CHECKING:
    from torch import Tensor


class Task(ABC):
    """What is learned: a loss for each sample, and metrics."""

    name: ClassVar[str]
    """What `model.task` calls it: small letters, digits, + and -."""
    about: ClassVar[str]
    """What it is, in one sentence."""
    section: ClassVar[type[Section] | None] = None
    """Its own section of the settings; `self.options` has what is set."""
    has_classes: ClassVar[bool] = False
    """Whether targets are numbers of classes. Then the network needs an output for each class that any peer has."""
    has_one_class: ClassVar[bool] = False
    """Whether each sample is of one class, so that partitions can share samples out by their classes."""
    is_cross_entropy: ClassVar[bool] = False
    """Whether the loss is the cross-entropy of [batch, class] scores, for which engines have code of their own."""
    options: Any = None
    """The values of its section."""

    @property
    @abstractmethod
    def metrics(self) -> Sequence[Metric]:
        """How good a model is. The first metric is the main one: it is validated, shown and compared."""

    @abstractmethod
    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What training makes small, for each sample by itself.  [batch, ...], [batch, ...] → [batch]"""

    def check(self, targets: Array) -> None:
        """Raise `DataError` for targets of another form.  targets [sample, ...]"""
        check_real(targets)

    def num_outputs(self, targets: Sequence[Array]) -> int:
        """How many numbers a network has to give, for a sample or at each position. `targets`: of all data, checked."""
        return int(np.prod(targets[0].shape[1:], dtype=int))

    def output_shape(self, num_outputs: int, target_shape: Sequence[int]) -> tuple[int, ...]:
        """What a network has to return for a sample whose target has this shape. More classes are allowed."""
        return (num_outputs,)

    def sample_weights(self, targets: Array) -> Array | None:
        """How much each of a peer's training samples counts in training, made of that peer's own targets; None: all
        the same. They are 1 on average, or the step size changes.  [sample, ...] → [sample]"""
        return None

    def predict(self, outputs: Array) -> Array:
        """What a network's outputs say, in the form of targets: the class with the highest score, or the numbers
        themselves.  [sample, output, ...] → [sample, ...]"""
        found: Array = outputs.argmax(1) if self.has_classes else outputs
        return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 and not self.has_classes else found

    @property
    def measure(self) -> Measure:
        """What the main metric's numbers say."""
        return self.metrics[0].measure


@dataclass(frozen=True)
class Outputs:
    """What a network has to return for each sample."""

    shape: tuple[int, ...]
    expected: str
    """In words, for a network that returns something else."""
    more_classes: bool = True
    """Whether there may be more along the first axis."""

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a sample's output may have this shape."""
        first, *others = self.shape
        enough = len(shape) > 0 and (shape[0] >= first if self.more_classes else shape[0] == first)
        return enough and tuple(shape[1:]) == tuple(others)


def class_scores(num_classes: int) -> Outputs:
    """A score for each class, or more."""
    return Outputs(
        (num_classes,),
        f"expected one row of at least {num_classes} class scores per sample, since the data have classes 0 to "
        f"{num_classes - 1}",
    )


def outputs_of(task: Task, num_outputs: int, target_shape: Sequence[int]) -> Outputs:
    """What a network has to return for targets of this shape."""
    with calling(f"task {task.name}", task, "output_shape"):
        shape = tuple(task.output_shape(num_outputs, target_shape))
    if task.has_classes and len(shape) == 1:
        return class_scores(num_outputs)
    axes = ", ".join(map(str, ("batch", *shape)))
    if task.has_classes:
        why = f"at least {num_outputs} class scores per position, since the data have classes 0 to {num_outputs - 1}"
        return Outputs(shape, f"expected [{axes}], with {why}")
    return Outputs(shape, f"expected [{axes}], the outputs that the task {task.name} needs for these targets", False)


def task_of(settings: SettingsTree) -> Task:
    """The task that these settings name, with its options."""
    task: Task = copy.copy(TASKS.find(settings.model.task))
    if task.section is not None:
        task.options = settings.section(task.section)
    return task


def check_real(targets: Array, kinds: str = "fiu") -> None:
    """Refuse targets that are not finite numbers, one or some for each sample."""
    if targets.ndim not in (1, 2) or targets.dtype.kind not in kinds or not targets[:1].size:
        raise DataError(
            f"they have shape {targets.shape} and type {targets.dtype}: expected numbers, [sample] or [sample, number]"
        )
    wrong = ~(np.abs(targets) <= np.finfo(np.float32).max)
    if wrong.any():
        raise DataError(f"{wrong.sum():,} of them are not finite numbers: remove these samples, or replace the values")


def check_whole(targets: Array, shape: str, axes: Sequence[int], what: str) -> None:
    """Refuse targets that are not whole numbers, or of another number of axes. `shape`: the right one, in words."""
    if targets.ndim not in axes or (len(targets) and targets.dtype.kind not in "iu"):
        raise DataError(
            f"labels have shape {targets.shape} and type {targets.dtype}: expected {what}, {shape}. One-hot labels "
            "become classes by y.argmax(1)"
        )


def check_targets(task: Task, parts: Iterable[tuple[str, Samples]]) -> None:
    """Refuse samples whose targets are none of this task. Each part comes with its name for an error message."""
    for name, samples in parts:
        try:
            with calling(f"task {task.name}", task, "check"):
                task.check(samples.y)
        except DataError as error:
            raise DataError(f"the {name} targets do not suit the task {task.name}: {error}") from None


def check_data(task: Task, data: Dataset | Federation) -> None:
    """Refuse a data set or federation whose targets are none of this task."""
    if isinstance(data, Dataset):
        check_targets(task, [("training", data.train), ("test", data.test)])
        return
    for number, peer in enumerate(data.peers):
        check_targets(task, parts_of(f"peer {data.name_of(number)}'s", peer))
    check_targets(task, ((f"{data.test_name(number)} test", test) for number, test in enumerate(data.tests)))


def parts_of(whose: str, data: PeerData, test: Samples | None = None) -> list[tuple[str, Samples]]:
    """A peer's samples, with their names for error messages."""
    parts = [("training", data.train), ("validation", data.val), *([("test", test)] if test else [])]
    return [(f"{whose} {part}", samples) for part, samples in parts]


def all_targets(data: Dataset | Federation) -> list[Array]:
    """The targets of all samples there are."""
    if isinstance(data, Dataset):
        return [data.train.y, data.test.y]
    held = [part.y for peer in data.peers for part in (peer.train, peer.val)]
    return [*held, *(test.y for test in data.tests)]


def num_outputs(task: Task, data: Dataset | Federation) -> int:
    """How many numbers a network has to give for these data: where classes were declared, one for each of them."""
    if task.has_classes and isinstance(data, Federation) and (data.declared_classes or data.class_names):
        return data.num_classes
    return outputs_for(task, all_targets(data))


def outputs_for(task: Task, targets: Sequence[Array]) -> int:
    """What the task itself says of these targets, checked."""
    with calling(f"task {task.name}", task, "num_outputs"):
        found: object = task.num_outputs(targets)
    if not isinstance(found, int | np.integer) or found < 1:
        refuse_result(f"task {task.name}", "num_outputs", found, "return a whole number of at least 1")
    return int(found)


def num_classes(targets: Sequence[Array]) -> int:
    """Classes are numbered from 0; the highest label says how many there are."""
    return 1 + max(int(labels.max(initial=0)) for labels in targets)

# SPDX-License-Identifier: Apache-2.0
"""Finds the cells of the paper's tables and figures that belong to a run's settings.

Settings belong to a cell if data set, partition, rotations, peers, training samples per peer and initialisation are
those of the cell. Where a table varies n_sampled and m, these must match, too. The settings of cells come from
`pens.paper.exhibits`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from pens.experiment.defaults import PAPERS_METHOD
from pens.measuring.metrics import Interval
from pens.paper.exhibits import EXHIBITS, Column, Quantity
from pens.settings.tree import MethodName, Settings

PAPER_PARTITION = "rotation"
"""Section 3: the distributions of the paper's peers differ only by rotation."""


@dataclass(frozen=True)
class PaperValue:
    """One number of the paper: mean and half the 95 % interval over four seeds, as fractions."""

    where: str
    """The table or figure, and the column."""
    value: Interval


class _Scene(NamedTuple):
    """The settings that identify a cell."""

    dataset: str
    partition: str
    rotations: tuple[int, ...]
    peers: int
    train_per_peer: int
    init: str

    @staticmethod
    def of(settings: Settings) -> _Scene:
        scenario = settings.scenario
        rotations = tuple(sorted(angle % 360 for angle in scenario.rotations))
        samples = scenario.train_per_peer
        init, source = settings.model.init, settings.data.source
        return _Scene(source, scenario.partition, rotations, scenario.peers, samples, init)


class _Place(NamedTuple):
    """A column of a table or figure, and the settings that identify it."""

    where: str
    column: Column
    scene: _Scene
    sampling: tuple[int, int] | None
    """n_sampled and m; None where the table does not vary them."""

    def fits(self, settings: Settings) -> bool:
        sampling = settings.pens.n_sampled, settings.pens.m
        return self.scene == _Scene.of(settings) and self.sampling in (None, sampling)

    def value(self, method: MethodName, quantity: Quantity) -> PaperValue | None:
        """The paper's number; None where the column has none."""
        cells = (cell.paper for cell in self.column.cells if (cell.method, cell.quantity) == (method, quantity))
        return next((PaperValue(self.where, number) for number in cells if number), None)


def paper_accuracy(settings: Settings, method: MethodName) -> PaperValue | None:
    """The paper's accuracy for these settings, if it reports one. Tables are searched before figures."""
    return _value(settings, method, "accuracy")


def paper_agreement(settings: Settings, method: MethodName = PAPERS_METHOD) -> tuple[PaperValue, PaperValue] | None:
    """The paper's precision and recall for these settings, if it reports them for the method."""
    precision, recall = (_value(settings, method, quantity) for quantity in ("precision", "recall"))
    return (precision, recall) if precision and recall else None


def paper_preset(settings: Settings) -> Settings | None:
    """The settings with which pens reproduces the cell that these settings belong to; None without a cell."""
    place = next((place for place in _places() if place.fits(settings)), None)
    return place.column.settings({"rotations": settings.scenario.rotations}) if place else None


def _value(settings: Settings, method: MethodName, quantity: Quantity) -> PaperValue | None:
    fitting = (place.value(method, quantity) for place in _places() if place.fits(settings))
    return next((value for value in fitting if value), None)


@cache
def _places() -> tuple[_Place, ...]:
    """All columns, with those of tables before those of figures."""
    exhibits = sorted(EXHIBITS.values(), key=lambda exhibit: (bool(exhibit.x_title), exhibit.name))
    return tuple(_place(exhibit.where(column), column) for exhibit in exhibits for column in exhibit.columns)


def _place(where: str, column: Column) -> _Place:
    settings = column.settings()
    varies = {"n_sampled", "m"} & column.changes.keys()
    return _Place(where, column, _Scene.of(settings), (settings.pens.n_sampled, settings.pens.m) if varies else None)

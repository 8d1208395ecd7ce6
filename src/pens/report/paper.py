"""The paper's numbers, and which of them a run can be compared with.

A setting is that of a cell if data set, rotations, peers, training samples per peer and initialisation are the cell's.
Everything else that the paper fixes and a run changed is listed as a departure, so that a comparison says what it
compares.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from scipy.special import stdtrit

from pens.config import METHODS, Method, Settings
from pens.metrics import Interval

PAPER_SEEDS = 4
"""Section 5.4: 4 experiments for each algorithm."""
_HALF_TURN, _QUARTER_TURNS = (0, 180), (0, 90, 180, 270)


@dataclass(frozen=True)
class Cell:
    """One number of the paper: mean and half the 95 % interval over four seeds, as fractions."""

    where: str
    """The table or figure, and the column."""
    value: Interval


@dataclass(frozen=True)
class _Scene:
    """What makes a setting that of a cell."""

    dataset: str
    rotations: tuple[int, ...]
    peers: int
    train_per_peer: int
    init: str = "independent"

    @staticmethod
    def of(settings: Settings) -> _Scene:
        scenario = settings.scenario
        rotations = tuple(sorted(angle % 360 for angle in scenario.rotations))
        return _Scene(scenario.dataset, rotations, scenario.peers, scenario.train_per_peer, settings.model.init)


@cache
def tables() -> Mapping[str, Any]:
    """All numbers of the paper."""
    text = resources.files("pens.report").joinpath("paper_tables.json").read_text(encoding="utf-8")
    numbers: Mapping[str, Any] = json.loads(text)
    return numbers


def paper_accuracy(settings: Settings, method: Method) -> Cell | None:
    """The paper's accuracy for these settings, if it reports one; tables before figures."""
    scene, sampling = _Scene.of(settings), (settings.pens.n_sampled, settings.pens.m)
    for known, for_sampling, name, cell in _accuracies():
        if (known, name) == (scene, method) and for_sampling in (None, sampling):
            return cell
    return None


def paper_agreement(settings: Settings) -> tuple[Cell, Cell] | None:
    """Precision and recall of table 5, if these settings are one of its rows."""
    scene = _Scene.of(settings)
    for size, precision, recall in tables()["table5_precision_recall"]["rows_train_size_precision_recall"]:
        if scene == _Scene("cifar-10", _HALF_TURN, 100, size):
            return Cell("table 5", _interval(precision)), Cell("table 5", _interval(recall))
    return None


def less_paper(ours: Interval, seeds: int, paper: Interval) -> Interval:
    """Ours less the paper's, with Welch's 95 % interval; without one where ours is a single seed."""
    mean = ours.mean - paper.mean
    if ours.half_width is None or paper.half_width is None:
        return Interval(mean, None)
    sides = [(ours.half_width, seeds - 1), (paper.half_width, PAPER_SEEDS - 1)]
    variances = [(half / stdtrit(freedom, 0.975)) ** 2 for half, freedom in sides]
    if not (variance := sum(variances)):
        return Interval(mean, 0.0)
    freedom = variance**2 / sum(each**2 / n for each, (_, n) in zip(variances, sides, strict=True))
    return Interval(mean, float(stdtrit(freedom, 0.975)) * math.sqrt(variance))


def departures(settings: Settings) -> tuple[str, ...]:
    """What the paper fixes for all its experiments (section 5) and these settings have otherwise, in words."""
    scenario, pens = settings.scenario, settings.pens
    fixed = (
        ("val_per_peer", scenario.val_per_peer, 100),
        ("n_peers", settings.gossip.n_peers, 20),
        ("rounds", settings.gossip.rounds, 333),
        ("n_sampled", pens.n_sampled, 10),
        ("m", pens.m, 2),
        ("samplings of step 1", pens.step1_rounds * pens.step1_samplings, 200),
        ("net", settings.model.net, "auto"),
        ("test", scenario.test, "partitioned"),
        ("test_samples", scenario.test_samples, None),
        ("half_turn", scenario.half_turn, "rotation"),
        ("validated", settings.stopping.validated, "trained"),
        ("tested", settings.stopping.tested, "best"),
        ("neighbours_by", pens.neighbours_by, "expected"),
        ("step2_model", pens.step2_model, "last"),
    )
    return tuple(f"{name} = {value} (paper: {paper})" for name, value, paper in fixed if value != paper)


def _accuracies() -> Iterator[tuple[_Scene, tuple[int, int] | None, Method, Cell]]:
    """Scene, n_sampled and m where they matter, method, number."""
    numbers = tables()
    for init in ("independent", "common"):
        scene = _Scene("cifar-10", _HALF_TURN, 100, 400, init)
        yield from _column(scene, f"table 1, {init} initialisation", numbers["table1_cifar10_init"][init])
    four = numbers["table2_cifar10_four_rotations"]["independent"]
    yield from _column(_Scene("cifar-10", _QUARTER_TURNS, 100, 400), "table 2", four)
    for size in (100, 500):
        column = numbers["table3_fashion_mnist"][str(size)]
        yield from _column(_Scene("fashion-mnist", _HALF_TURN, 100, size), f"table 3, {size} samples", column)
    for n_sampled, m, *value in numbers["table4_sampled_and_top_m"]["rows_n_sampled_m_accuracy"]:
        cell = Cell(f"table 4, n_sampled = {n_sampled}, m = {m}", _interval(value))
        yield _Scene("cifar-10", _HALF_TURN, 100, 150), (n_sampled, m), "pens", cell
    for samples in (200, 300, 400, 500):  # 100 of them are for validation
        column = numbers["figure1a_train_size"][str(samples)]
        yield from _column(_Scene("cifar-10", _HALF_TURN, 100, samples - 100, "common"), "figure 1a", column)
    for peers in (50, 100, 200):
        column = numbers["figure1b_number_of_peers"][str(peers)]
        yield from _column(_Scene("cifar-10", _HALF_TURN, peers, 150), "figure 1b", column)


def _column(
    scene: _Scene, where: str, column: Mapping[str, Any]
) -> Iterator[tuple[_Scene, tuple[int, int] | None, Method, Cell]]:
    for method in (m for m in METHODS if m in column):
        yield scene, None, method, Cell(where, _interval(column[method]))


def _interval(percent: list[float]) -> Interval:
    mean, half = percent
    return Interval(mean / 100, half / 100)

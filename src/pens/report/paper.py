# SPDX-License-Identifier: Apache-2.0
"""The paper's numbers, which of them a run can be compared with, and the one rule by which it is.

The paper's peers differ by rotation: other partitions have no cell, and are a departure.
A setting is that of a cell if data set, rotations, peers, training samples per peer and initialisation are the cell's.
Every other setting that decides results and is not that of the paper's preset is listed as a departure, so that a
comparison says what it compares.

`compare_with_paper` is the rule, for tables, files, pictures and reports alike: a Welch test of two means at 5 %, from
mean, half-width and number of seeds on both sides. Not to differ is not to be equal, so every verdict comes with the
half width of the difference's interval: a smaller difference could not have been seen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from scipy.special import stdtrit

from pens.experiment.presets import PAPERS_METHOD, PRESETS
from pens.measuring.metrics import FEWEST_SEEDS, Interval
from pens.methods.names import in_order, selecting, settings_without_effect
from pens.parts import METHODS
from pens.settings.keys import flat_values
from pens.settings.schema import EngineSettings, TimingSettings
from pens.settings.tree import MethodName, Settings

PAPER_SEEDS = 4
"""Section 5.4: 4 experiments for each algorithm."""
PAPER_PARTITION = "rotation"
"""Section 3: the distributions of the paper's peers differ by rotation, and by nothing else."""
_HALF_TURN, _QUARTER_TURNS = (0, 180), (0, 90, 180, 270)


@dataclass(frozen=True)
class PaperValue:
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
    partition: str = PAPER_PARTITION

    @staticmethod
    def of(settings: Settings) -> _Scene:
        scenario = settings.scenario
        rotations = tuple(sorted(angle % 360 for angle in scenario.rotations))
        return _Scene(
            scenario.dataset,
            rotations,
            scenario.peers,
            scenario.train_per_peer,
            settings.model.init,
            scenario.partition,
        )


@cache
def tables() -> Mapping[str, Any]:
    """All numbers of the paper."""
    text = resources.files("pens.report").joinpath("paper_tables.json").read_text(encoding="utf-8")
    numbers: Mapping[str, Any] = json.loads(text)
    return numbers


def paper_accuracy(settings: Settings, method: MethodName) -> PaperValue | None:
    """The paper's accuracy for these settings, if it reports one; tables before figures."""
    scene, sampling = _Scene.of(settings), (settings.pens.n_sampled, settings.pens.m)
    for known, for_sampling, name, cell in _accuracies():
        if (known, name) == (scene, method) and for_sampling in (None, sampling):
            return cell
    return None


def paper_agreement(settings: Settings, method: MethodName = PAPERS_METHOD) -> tuple[PaperValue, PaperValue] | None:
    """Precision and recall of table 5, if these settings are one of its rows, and the method is that of the table."""
    scene = _Scene.of(settings)
    rows = {PAPERS_METHOD: tables()["table5_precision_recall"]["rows_train_size_precision_recall"]}
    for size, precision, recall in rows.get(method, ()):
        if scene == _Scene("cifar-10", _HALF_TURN, 100, size):
            return PaperValue("table 5", _interval(precision)), PaperValue("table 5", _interval(recall))
    return None


# --- the rule ---------------------------------------------------------------------------------------------------------

Outcome = Literal["not run", "not in the paper", "too few seeds", "does not differ", "above", "below"]


@dataclass(frozen=True)
class PaperVerdict:
    """A mean of ours beside one of the paper's."""

    outcome: Outcome
    difference: Interval | None = None
    """Ours less the paper's, with Welch's 95 % interval where there are seeds enough."""

    @property
    def agrees(self) -> bool:
        """Whether the test, which was possible, sees no difference."""
        return self.outcome == "does not differ"

    @property
    def detectable(self) -> float | None:
        """The smallest difference of the means that the test would have called one; None where there is no test."""
        return self.difference.half_width if self.difference else None

    def __str__(self) -> str:
        """does not differ, above by 0.9, too few seeds, …"""
        if self.outcome == "not in the paper":
            return "–"
        if self.outcome in ("above", "below") and self.difference:
            return f"{self.outcome} by {100 * abs(self.difference.mean):.1f}"
        return self.outcome


RULE = (
    "Verdicts are Welch tests of the two means at 5 %, from the spread over seeds on both sides. Not differing is not "
    "the same as being equal: a difference smaller than half its 95 % interval could not have been seen. With fewer "
    f"than {FEWEST_SEEDS} seeds there is no interval and no test. Of many cells about one in twenty differs by chance."
)


def compare_with_paper(ours: Interval | None, seeds: int, paper: Interval | None) -> PaperVerdict:
    """The rule by which a number agrees with the paper's or does not, for everything that tells so."""
    if ours is None or not seeds:
        return PaperVerdict("not run")
    if paper is None:
        return PaperVerdict("not in the paper")
    apart = less_paper(ours, seeds, paper)
    if apart.half_width is None:
        return PaperVerdict("too few seeds", apart)
    if abs(apart.mean) <= apart.half_width:
        return PaperVerdict("does not differ", apart)
    return PaperVerdict("above" if apart.mean > 0 else "below", apart)


def less_paper(ours: Interval, seeds: int, paper: Interval) -> Interval:
    """Ours less the paper's, with Welch's 95 % interval; without one where ours has fewer than `FEWEST_SEEDS`."""
    mean = ours.mean - paper.mean
    if seeds < FEWEST_SEEDS or ours.half_width is None or paper.half_width is None:
        return Interval(mean, None)
    sides = [(ours.half_width, seeds - 1), (paper.half_width, PAPER_SEEDS - 1)]
    variances = [(half / stdtrit(freedom, 0.975)) ** 2 for half, freedom in sides]
    if not (variance := sum(variances)):
        return Interval(mean, 0.0)
    freedom = variance**2 / sum(each**2 / n for each, (_, n) in zip(variances, sides, strict=True))
    return Interval(mean, float(stdtrit(freedom, 0.975)) * math.sqrt(variance))


# --- what a run has otherwise than the paper --------------------------------------------------------------------------

_OF_A_CELL = ("dataset", "rotations", "peers", "train_per_peer", "init")
"""By which a setting is known to be that of a cell."""
_PAPER_GIVES = ("val_per_peer", "n_peers", "rounds", "n_sampled", "m")
"""Section 5; of the other settings the paper says nothing, or what does not learn (docs/reproduction.md)."""
_STEP1 = ("step1_rounds", "step1_samplings")


def departures(settings: Settings, methods: Iterable[MethodName] | None = None) -> tuple[str, ...]:
    """Every setting that decides the results of these methods (None: of all of ours) and is not the one with which pens
    repeats the paper's cell, in words. Empty where there is no such cell, unless that is because of the partition."""
    methods = METHODS.built_in if methods is None else tuple(methods)
    if (partition := settings.scenario.partition) != PAPER_PARTITION:
        return (f"partition = {partition} (paper: {PAPER_PARTITION})",)
    if (preset := paper_preset(settings)) is None:
        return ()
    ours, theirs = flat_values(settings), flat_values(preset)
    ours_resolved, theirs_resolved = flat_values(settings.explicit), flat_values(preset.explicit)
    words = []
    for key in (key for key in theirs if key not in _without_effect(settings, methods)):
        if ours[key] != theirs[key] and ours_resolved[key] != theirs_resolved[key]:
            whose = "paper" if key in _PAPER_GIVES else "preset"
            words.append(f"{key} = {ours[key]} ({whose}: {theirs[key]})")
    samplings, papers = (s.pens.step1_rounds * s.pens.step1_samplings for s in (settings, preset))
    if samplings != papers and selecting(methods):
        words.append(f"samplings of step 1 = {samplings} (paper: {papers})")
    return tuple(words)


def paper_preset(settings: Settings) -> Settings | None:
    """The settings with which pens repeats the cell that these settings are compared with; None without a cell."""
    scene = _Scene.of(settings)
    if scene not in {known for known, *_ in _accuracies()} and paper_agreement(settings) is None:
        return None
    flat = flat_values(settings)
    varied = {key: flat[key] for key in _OF_A_CELL}
    sampling = settings.pens.n_sampled, settings.pens.m
    if any((known, pair) == (scene, sampling) for known, pair, *_ in _accuracies()):
        varied |= {"n_sampled": settings.pens.n_sampled, "m": settings.pens.m}
    return PRESETS[settings.scenario.dataset].settings.replace(varied)


def _without_effect(settings: Settings, methods: Iterable[MethodName]) -> set[str]:
    """Settings that cannot make results of these methods other than the preset's, or that are compared in other words:
    how numbers are computed, virtual time where rounds are synchronous, and what only other methods have."""
    keys = {*EngineSettings.model_fields, *_STEP1}
    if settings.engine.precision == "bf16":
        keys.discard("precision")
    if settings.gossip.schedule == "rounds":
        keys |= {*TimingSettings.model_fields, "accept", "admit", "admission_trials"}
    else:
        keys.add("pull_from")
    return keys | settings_without_effect(methods)


# --- its numbers ------------------------------------------------------------------------------------------------------


def _accuracies() -> Iterator[tuple[_Scene, tuple[int, int] | None, MethodName, PaperValue]]:
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
        cell = PaperValue(f"table 4, n_sampled = {n_sampled}, m = {m}", _interval(value))
        yield _Scene("cifar-10", _HALF_TURN, 100, 150), (n_sampled, m), PAPERS_METHOD, cell
    for samples in (200, 300, 400, 500):  # 100 of them are for validation
        column = numbers["figure1a_train_size"][str(samples)]
        yield from _column(_Scene("cifar-10", _HALF_TURN, 100, samples - 100, "common"), "figure 1a", column)
    for peers in (50, 100, 200):
        column = numbers["figure1b_number_of_peers"][str(peers)]
        yield from _column(_Scene("cifar-10", _HALF_TURN, peers, 150), "figure 1b", column)


def _column(
    scene: _Scene, where: str, column: Mapping[str, Any]
) -> Iterator[tuple[_Scene, tuple[int, int] | None, MethodName, PaperValue]]:
    for method in in_order(column):
        yield scene, None, method, PaperValue(where, _interval(column[method]))


def _interval(percent: list[float]) -> Interval:
    mean, half = percent
    return Interval(mean / 100, half / 100)

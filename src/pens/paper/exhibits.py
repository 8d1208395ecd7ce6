# SPDX-License-Identifier: Apache-2.0
"""The paper's tables and figures as data: the settings and methods that each one needs, and the paper's numbers.

This module alone says which experiment belongs to which number. Settings that the paper fixes for every experiment
(section 5) are in the presets and the defaults; a column names a preset and the settings that it changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from pens.errors import SettingsError, suggest
from pens.experiment.defaults import PAPERS_METHOD
from pens.experiment.presets import preset
from pens.measuring.metrics import Interval
from pens.methods.names import method_of
from pens.parts import METHODS
from pens.settings.tree import MethodName, Settings

Quantity = Literal["accuracy", "precision", "recall", "own cluster"]
"""`own cluster`: the share of merged models that came from a peer of the receiver's cluster."""

PAPER_ORDER: tuple[MethodName, ...] = ("central", "oracle", "pens", "random", "local")
PLUS: dict[MethodName, MethodName] = {
    name: method.plus_of for name in METHODS.built_in if (method := method_of(name)).plus_of
}
"""Our methods that test merged models, each with the method of the paper that it is built on."""


@dataclass(frozen=True)
class PlannedValue:
    """One number of a method, and the paper's number where it gives one."""

    method: MethodName
    quantity: Quantity
    paper: Interval | None
    ours: bool = False
    """Whether the method is ours and not the paper's; it runs only where it is named."""


@dataclass(frozen=True)
class Column:
    """One setting of a table or figure."""

    label: str
    preset: str
    changes: Mapping[str, Any]
    cells: tuple[PlannedValue, ...]
    x: float | None = None
    """The place of the setting along the axis of a figure."""

    @property
    def methods(self) -> tuple[MethodName, ...]:
        """The methods that the paper reports."""
        return tuple(dict.fromkeys(cell.method for cell in self.cells if not cell.ours))

    @property
    def all_methods(self) -> tuple[MethodName, ...]:
        return tuple(dict.fromkeys(cell.method for cell in self.cells))

    def settings(self, changed: Mapping[str, Any] | None = None) -> Settings:
        """The paper's settings, with changes for a trial applied."""
        return preset(self.preset).settings.replace(self.changes).replace(changed or {})


@dataclass(frozen=True)
class Exhibit:
    """A table or a figure of the paper."""

    name: str
    title: str
    columns: tuple[Column, ...]
    x_title: str = ""
    """The title of the axis, for a figure that has one."""
    most_seeds: int | None = None
    """The largest number of seeds that the exhibit needs: pictures of single runs need one."""

    @property
    def methods(self) -> tuple[MethodName, ...]:
        return tuple(dict.fromkeys(m for column in self.columns for m in column.methods))

    def where(self, column: Column) -> str:
        """The name of a column, as a reader finds it in the paper: table 2, or table 3, 100 samples"""
        name = self.title.partition(":")[0].lower()
        return name if len(self.columns) == 1 else f"{name}, {column.label}"

    def seeds(self, asked: Sequence[int]) -> tuple[int, ...]:
        return tuple(asked[: self.most_seeds])


def exhibits(names: Iterable[str]) -> tuple[Exhibit, ...]:
    """Tables and figures by name, each once. `all` stands for all, the most valuable for their computing time first."""
    chosen: dict[str, Exhibit] = {}
    for name in names:
        if name != "all" and name not in EXHIBITS:
            hint = suggest(name.lower().replace(" ", ""), ["all", *EXHIBITS])
            raise SettingsError(f"the paper has no {name!r}{hint}: choose from {', '.join(sorted(EXHIBITS))} and all")
        chosen |= EXHIBITS if name == "all" else {name: EXHIBITS[name]}
    return tuple(chosen.values())


# --- the paper --------------------------------------------------------------------------------------------------------


@cache
def tables() -> Mapping[str, Any]:
    """All numbers of the paper."""
    text = resources.files("pens.paper").joinpath("tables.json").read_text(encoding="utf-8")
    numbers: Mapping[str, Any] = json.loads(text)
    return numbers


def _accuracies(numbers: Mapping[str, Any]) -> tuple[PlannedValue, ...]:
    """The accuracies of the paper's methods, each after that of our method that is built on it."""
    cells: list[PlannedValue] = []
    for method in PAPER_ORDER:
        cells += [PlannedValue(plus, "accuracy", None, ours=True) for plus, of in PLUS.items() if of == method]
        cells.append(PlannedValue(method, "accuracy", _interval(numbers[method])))
    return tuple(cells)


def _interval(percent: Sequence[float]) -> Interval:
    mean, half = percent
    return Interval(mean / 100, half / 100)


def _table1() -> Exhibit:
    """Section 6: CIFAR-10, r = {0, 180}, 100 peers of 400 samples; independent and common initialisation."""
    numbers = tables()["table1_cifar10_init"]
    columns = [
        Column(f"{init} init", "cifar-10", {"init": init}, _accuracies(numbers[init]))
        for init in ("independent", "common")
    ]
    return Exhibit("table1", "Table 1: CIFAR-10, two rotations, 100 peers of 400 samples", tuple(columns))


def _table2() -> Exhibit:
    """Section 6: CIFAR-10, r = {0, 90, 180, 270}, 100 peers of 400 samples."""
    numbers = tables()["table2_cifar10_four_rotations"]["independent"]
    column = Column("four rotations", "cifar-10", {"rotations": (0, 90, 180, 270)}, _accuracies(numbers))
    return Exhibit("table2", "Table 2: CIFAR-10, four rotations, 100 peers of 400 samples", (column,))


def _table3() -> Exhibit:
    """Section 6: Fashion-MNIST, r = {0, 180}, 100 peers of 100 and of 500 samples."""
    numbers = tables()["table3_fashion_mnist"]
    columns = [
        Column(f"{size} samples", "fashion-mnist", {"train_per_peer": size}, _accuracies(numbers[str(size)]))
        for size in (100, 500)
    ]
    return Exhibit("table3", "Table 3: Fashion-MNIST, two rotations, 100 peers", tuple(columns))


def _table4() -> Exhibit:
    """Section 6.3: n_sampled and m. 150 samples as the caption says; the text says 400 (docs/decisions/0015)."""
    rows = tables()["table4_sampled_and_top_m"]["rows_n_sampled_m_accuracy"]
    columns = [
        Column(
            f"n_sampled {n_sampled}, m {m}",
            "cifar-10",
            {"train_per_peer": 150, "n_sampled": n_sampled, "m": m},
            (PlannedValue(PAPERS_METHOD, "accuracy", _interval(value)),),
        )
        for n_sampled, m, *value in rows
    ]
    return Exhibit("table4", "Table 4: n_sampled and m, CIFAR-10, two rotations, 100 peers of 150", tuple(columns))


def _table5() -> Exhibit:
    """Section 6.1: precision and recall of the neighbours that PENS selects, 100 peers."""
    rows = tables()["table5_precision_recall"]["rows_train_size_precision_recall"]
    columns = [
        Column(
            f"{size} samples",
            "cifar-10",
            {"train_per_peer": size},
            (
                PlannedValue(PAPERS_METHOD, "precision", _interval(precision)),
                PlannedValue(PAPERS_METHOD, "recall", _interval(recall)),
            ),
        )
        for size, precision, recall in rows
    ]
    return Exhibit("table5", "Table 5: the neighbours PENS selects, CIFAR-10, two rotations, 100 peers", tuple(columns))


def _figure1a() -> Exhibit:
    """Section 6.1: the size of the training set, 100 peers. The numbers are those of common initialisation: with 400
    samples they equal table 1's second column."""
    numbers = tables()["figure1a_train_size"]
    columns = [
        Column(
            f"{size} samples",
            "cifar-10",
            {"train_per_peer": size, "init": "common"},
            _accuracies(numbers[str(size + 100)]),  # the source includes 100 validation samples
            x=size,
        )
        for size in (100, 200, 300, 400)
    ]
    title = "Figure 1a: training samples per peer, CIFAR-10, two rotations, 100 peers"
    return Exhibit("figure1a", title, tuple(columns), "training samples per peer")


def _figure1b() -> Exhibit:
    """Section 6.2: the number of peers, 150 training samples each."""
    numbers = tables()["figure1b_number_of_peers"]
    columns = [
        Column(
            f"{peers} peers",
            "cifar-10",
            {"peers": peers, "train_per_peer": 150},
            _accuracies(numbers[str(peers)]),
            x=peers,
        )
        for peers in (50, 100, 200)
    ]
    title = "Figure 1b: number of peers, CIFAR-10, two rotations, 150 samples each"
    return Exhibit("figure1b", title, tuple(columns), "peers")


def _figure2() -> Exhibit:
    """Section 6.1: whose models each of 200 peers merged. With 200 peers, each has 150 training samples of CIFAR-10, as
    in figure 1b."""
    cells = tuple(PlannedValue(method, "own cluster", None) for method in ("oracle", "pens", "random"))
    column = Column("200 peers", "cifar-10", {"peers": 200, "train_per_peer": 150}, cells)
    title = "Figure 2: who merged whose models, CIFAR-10, two rotations, 200 peers"
    return Exhibit("figure2", title, (column,), most_seeds=1)


def _in_order() -> Iterator[Exhibit]:
    """All tables and figures, the most valuable for their computing time first."""
    yield from (_table1(), _table3(), _table5(), _table2(), _figure2(), _figure1a(), _figure1b(), _table4())


EXHIBITS: dict[str, Exhibit] = {exhibit.name: exhibit for exhibit in _in_order()}

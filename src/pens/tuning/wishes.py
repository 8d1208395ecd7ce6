# SPDX-License-Identifier: Apache-2.0
"""What the table [tuning] of a comparison's file says: how many trials, with which seeds, over which ranges.

[tuning]
trials = 12                 # of each method in each scenario; the first one is with the file's own settings
seeds = 1                   # how many, from 1000 on, or a list; never those of the comparison

[tuning.settings]           # of trials alone
rounds = 40

[tuning.space]              # of all methods (pens.settings.space)
lr = { log = [1e-4, 1e-1] }

[tuning.method.dac]         # of one method
tau = { log = [1, 300] }
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pens.comparing.file import (
    ComparisonFile,
    Values,
    check_keys,
    check_seeds,
    seeds_in,
    table_in,
    tables_in,
    values_of,
)
from pens.errors import SettingsError, suggest
from pens.settings.space import Space, dimension
from pens.settings.tree import MethodName

FIRST_SEED = 1000
"""Where seeds of tuning begin where only their number is given."""


@dataclass(frozen=True)
class Wishes:
    """How the methods are to be tuned."""

    trials: int = 12
    seeds: tuple[int, ...] = (FIRST_SEED,)
    settings: Values = field(default_factory=dict)
    """Settings of trials, by `section.key`."""
    space: Space = field(default_factory=dict)
    """The ranges of all methods, by `section.key`."""
    of_method: Mapping[MethodName, Space] = field(default_factory=dict)

    def with_options(self, trials: int | None, seeds: tuple[int, ...] | None) -> Wishes:
        """The same where the command line says something else."""
        return replace(
            self, trials=self.trials if trials is None else trials, seeds=self.seeds if seeds is None else seeds
        )

    def check(self, reported: Iterable[int]) -> None:
        """Refuse what cannot be meant. `reported`: the seeds of the comparison."""
        if isinstance(self.trials, bool) or not isinstance(self.trials, int) or self.trials < 1:
            raise SettingsError(f"trials = {self.trials!r}: give a whole number of at least 1")
        check_seeds(reported, self.seeds)


def wishes_of(file: ComparisonFile, folder: Path) -> Wishes:
    """What a file's table [tuning] says. `folder`: where the file is."""
    table = file.tuning
    check_keys("[tuning]", table, ("trials", "seeds", "settings", "space", "method"))
    known = tuple(dict.fromkeys(m for scenario in file.scenarios for m in file.methods_of(scenario)))
    of_method = tables_in("tuning.method", table.get("method", {}))
    for name in of_method:
        if name not in known:
            raise SettingsError(f"[tuning.method.{name}] is for no method of the comparison{suggest(name, known)}")
    seeds = table.get("seeds", 1)
    return Wishes(
        trials=table.get("trials", 12),
        seeds=seeds_in(range_of(seeds) if isinstance(seeds, int) and not isinstance(seeds, bool) else seeds),
        settings=values_of("tuning.settings", table_in("tuning.settings", table.get("settings", {})), folder),
        space=_space("tuning.space", table_in("tuning.space", table.get("space", {})), folder),
        of_method={name: _space(f"tuning.method.{name}", of, folder) for name, of in of_method.items()},
    )


def range_of(count: int) -> list[int]:
    """So many seeds of tuning."""
    return list(range(FIRST_SEED, FIRST_SEED + count))


def _space(where: str, table: Mapping[str, Any], folder: Path) -> Space:
    """Ranges by `section.key`. Tables are ranges here, so that keys are written flat: lr or "training.lr"."""
    ranges = {name: dimension(f"[{where}] {name}", given) for name, given in table.items()}
    places = values_of(where, {name: of.limits[0] for name, of in ranges.items()}, folder)
    return dict(zip(places, ranges.values(), strict=True))

# SPDX-License-Identifier: Apache-2.0
"""The TOML file of a comparison: which methods, in which scenarios, with which seeds and settings.

    methods = ["local", "random", "pens", "my_file.py:MyMethod"]
    seeds = 4                        # or a list
    tested = "either"                # which models peers test: either, trained or merged

    [settings]                       # of all scenarios
    preset = "digits"
    rounds = 100

    [method.dac]                     # of one method, in all scenarios
    tau = 30

    [scenarios.rotation]             # a scenario: a preset, settings, its own choice of methods
    [scenarios."17:3"]
    partition = "groups"
    sizes = [17, 3]
    methods = ["local", "pens"]
    [scenarios."17:3".method.pens]   # of one method in one scenario
    lr = 0.003

    [tuning]                         # for `pens tune` (pens.tuning.wishes)

Paths are relative to the file. A later place in this list prevails over an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from pens.errors import SettingsError, suggest
from pens.methods.names import parse_methods
from pens.settings.keys import flatten, locate
from pens.settings.seeds import parse_seeds
from pens.settings.toml import read_toml
from pens.settings.tree import MethodName

Tested = Literal["either", "trained", "merged"]
Values = Mapping[str, Any]
"""Settings by `section.key`."""

_KEYS = ("methods", "seeds", "tested", "settings", "method", "scenarios", "tuning", "tuned")
_OF_SCENARIO = ("preset", "methods", "method")


@dataclass(frozen=True)
class Scenario:
    """One scenario, as the file has it."""

    name: str
    preset: str | None = None
    """A preset's name or the path of a file of settings; None: that of all scenarios."""
    methods: tuple[MethodName, ...] | None = None
    """None: those of the comparison."""
    settings: Values = field(default_factory=dict)
    of_method: Mapping[MethodName, Values] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparisonFile:
    """A comparison, as the file has it: names and values are checked, scenarios are not resolved yet."""

    name: str
    methods: tuple[MethodName, ...]
    seeds: tuple[int, ...]
    scenarios: tuple[Scenario, ...]
    tested: Tested = "either"
    preset: str | None = None
    settings: Values = field(default_factory=dict)
    of_method: Mapping[MethodName, Values] = field(default_factory=dict)
    tuning: Mapping[str, Any] = field(default_factory=dict)
    """The table [tuning], as `pens.tuning.wishes` reads it."""
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """How the settings of single methods were found, as `pens tune` writes it: `trials` and `seeds`."""

    def methods_of(self, scenario: Scenario) -> tuple[MethodName, ...]:
        """The methods that a scenario is to have."""
        return self.methods if scenario.methods is None else scenario.methods


def read_comparison(path: Path) -> ComparisonFile:
    """Read a file, and refuse what it cannot mean."""
    tree = read_toml(path, ": name the TOML file of a comparison (docs/comparing.md has one to start from)")
    try:
        return _comparison(path, tree)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def _comparison(path: Path, tree: Mapping[str, Any]) -> ComparisonFile:
    folder = path.parent
    check_keys("the file", tree, _KEYS)
    for name in ("methods", "scenarios"):
        if not tree.get(name):
            raise SettingsError(f'{name} is missing: a comparison has methods = ["…"] and at least one [scenarios.…]')
    methods = _methods("methods", tree["methods"], folder)
    own = {
        name: _methods(f"methods of [scenarios.{name}]", table["methods"], folder)
        for name, table in tables_in("scenarios", tree["scenarios"]).items()
        if "methods" in table
    }
    known = tuple(dict.fromkeys((*methods, *(method for each in own.values() for method in each))))
    seeds = seeds_in(tree.get("seeds", 1))
    common = dict(table_in("settings", tree.get("settings", {})))
    preset = _preset("settings", common.pop("preset", None), folder)
    return ComparisonFile(
        name=path.stem,
        methods=methods,
        seeds=seeds,
        scenarios=tuple(
            _scenario(name, table, own.get(name), known, folder)
            for name, table in tables_in("scenarios", tree["scenarios"]).items()
        ),
        tested=_tested(tree.get("tested", "either")),
        preset=preset,
        settings=values_of("settings", common, folder),
        of_method=_of_methods("method", tree.get("method", {}), known, folder),
        tuning=dict(table_in("tuning", tree.get("tuning", {}))),
        tuned=_tuned(table_in("tuned", tree.get("tuned", {})), seeds),
    )


def _scenario(
    name: str,
    table: Mapping[str, Any],
    methods: tuple[MethodName, ...] | None,
    known: Iterable[MethodName],
    folder: Path,
) -> Scenario:
    where = f"scenarios.{name}"
    settings = {key: value for key, value in table.items() if key not in _OF_SCENARIO}
    return Scenario(
        name,
        _preset(where, table.get("preset"), folder),
        methods,
        values_of(where, settings, folder),
        _of_methods(f"{where}.method", table.get("method", {}), methods or known, folder),
    )


def _tuned(table: Mapping[str, Any], seeds: Iterable[int]) -> dict[str, Any]:
    check_keys("[tuned]", table, ("trials", "seeds"))
    check_seeds(seeds, seeds_in(table["seeds"]) if "seeds" in table else ())
    return dict(table)


def check_seeds(reported: Iterable[int], tuned: Iterable[int]) -> None:
    """Refuse to report seeds with which settings were chosen: their validation data have been seen."""
    if shared := sorted({*reported} & {*tuned}):
        raise SettingsError(
            f"seed {shared[0]} is both tuned with and reported: choose other seeds for one of them (those of [tuning] "
            "begin at 1000 where only their number is given)"
        )


def values_of(where: str, table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings of a table of the file as `section.key`, flat or in sections. Parts are looked for in the folder."""
    try:
        return {".".join(locate(key)): value for key, value in flatten(table, folder)}
    except SettingsError as error:
        raise SettingsError(f"[{where}] {error}") from None


def _of_methods(where: str, tables: Any, known: Iterable[MethodName], folder: Path) -> dict[MethodName, dict[str, Any]]:
    names = tuple(known)
    found = {}
    for name, table in tables_in(where, tables).items():
        if name not in names:
            raise SettingsError(
                f"[{where}.{name}] is for a method that is not compared{suggest(name, names)}: "
                f"those compared are {', '.join(names)}"
            )
        found[name] = values_of(f"{where}.{name}", table, folder)
    return found


def _methods(where: str, given: Any, folder: Path) -> tuple[MethodName, ...]:
    if not isinstance(given, list) or not given or not all(isinstance(name, str) for name in given):
        raise SettingsError(f'{where} = {given!r}: give a list of names, such as ["random", "pens"]')
    return parse_methods(given, folder)


def seeds_in(given: Any) -> tuple[int, ...]:
    """The seeds that a number or a list of a file stands for."""
    if isinstance(given, bool) or not isinstance(given, int | list):
        raise SettingsError(f"seeds = {given!r}: give a number of seeds, such as 4, or a list of seeds, such as [1, 2]")
    return parse_seeds(given)


def _tested(given: Any) -> Tested:
    choices: tuple[Tested, ...] = get_args(Tested)
    if given not in choices:
        raise SettingsError(f"tested = {given!r}{suggest(str(given), choices)}: choose from {', '.join(choices)}")
    return next(choice for choice in choices if choice == given)


def _preset(where: str, given: Any, folder: Path) -> str | None:
    """A preset's name, or the path of a file of settings, which is relative to the folder."""
    if given is None:
        return None
    if not isinstance(given, str):
        raise SettingsError(f"[{where}] preset = {given!r}: give a preset's name, or a .toml file of settings")
    return str((folder / given).resolve()) if given.lower().endswith(".toml") else given


def check_keys(where: str, tree: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse keys that a table does not have."""
    if unknown := [key for key in tree if key not in known]:
        raise SettingsError(
            f"{where} has an unknown key {unknown[0]!r}{suggest(unknown[0], known)}: its keys are {', '.join(known)}"
        )


def table_in(where: str, given: Any) -> Mapping[str, Any]:
    """A table of the file; anything else is refused."""
    if not isinstance(given, Mapping):
        raise SettingsError(f"{where} = {given!r}: write it as a table, [{where}]")
    return given


def tables_in(where: str, given: Any) -> dict[str, Mapping[str, Any]]:
    """Tables by name: of [scenarios.NAME] or [method.NAME]."""
    return {name: table_in(f"{where}.{name}", table) for name, table in table_in(where, given).items()}

# SPDX-License-Identifier: Apache-2.0
"""Presets: settings with a name, among them those of the paper's experiments (section 5, tables 1 and 3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pens.errors import SettingsError
from pens.experiment.bases import CIFAR10, FASHION, LAPTOP, Preset, PresetValues
from pens.experiment.defaults import DEFAULT_METHODS, DEFAULT_PRESET
from pens.experiment.published import PUBLISHED
from pens.methods.names import find_method
from pens.parts import is_place, located
from pens.settings.keys import flatten, locate
from pens.settings.reading import flat_keys, parse_settings
from pens.settings.toml import read_toml
from pens.settings.tree import MethodName, Settings

_NO_SETTINGS = ("preset", "methods", "seeds")
"""What a file may say above its sections beside settings."""

OWN = "own"
"""The preset for own data."""
_OWN: PresetValues = {
    "lr": 3e-3,  # with few samples, the paper's 0.001 has not learned again what a merge undid when the next one comes
    "init": "common",
    "rounds": 50,
    "patience": 15,
    "step1_rounds": 10,
    "step1_samplings": 8,
    "central_rounds": 30,
}

PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(OWN, "your own data: some minutes on a laptop; numbers of models fit themselves to the peers", _OWN),
        Preset(
            "digits",
            "20 peers, two rotations, embedded 8 × 8 digits: the paper's comparison, in seconds",
            {
                "dataset": "digits",
                "peers": 20,
                "train_per_peer": 40,
                "val_per_peer": 30,
                "lr": 3e-3,
                "rounds": 50,
                "patience": 20,
                "n_peers": 9,
                "n_sampled": 8,
                "step1_rounds": 10,
                "step1_samplings": 8,
                "step1_epochs": 10,
                "central_rounds": 30,
            },
        ),
        Preset("fashion-mnist", "table 3: 100 peers of 500 samples, two rotations; for a GPU", FASHION),
        Preset("cifar-10", "table 1: 100 peers of 400 samples, two rotations; for a GPU", CIFAR10),
        Preset(
            "fashion-mnist-small",
            "20 peers of 100 samples, two rotations; minutes on a laptop",
            {**LAPTOP, "dataset": "fashion-mnist"},
        ),
        Preset(
            "cifar-10-small",
            "20 peers of 100 samples, two rotations; minutes on a laptop",
            {**LAPTOP, "dataset": "cifar-10"},
        ),
        *PUBLISHED,
    )
}

AUTHORS_CODE: dict[str, Any] = {
    "half_turn": "flip",
    "test": "full",
    "weight_decay": 0.0,
    "train_first": False,
    "step1_rounds": 20,
    "step1_samplings": 10,
    "step1_epochs": "authors",
    "score": "accuracy",
    "expected_offset": -1.0,
    "nobody_found": "alone",
    "patience": 51,  # their peers stop when the best round lies more than 50 rounds back
}
"""The settings in which the authors' published code differs from our presets for the paper, for `pens reproduce --as
authors`. Only rules that a real peer could follow are included (docs/decisions/0025)."""
AUTHORS_METHODS: tuple[MethodName, ...] = ("oracle", "pens", "random", "local")
"""The methods in the authors' code: it has no `central`."""
METHODS_OF: dict[str, tuple[MethodName, ...] | None] = {"ours": None, "authors": AUTHORS_METHODS}
"""The methods that exist under each set of rules; None: all methods."""
RULES_OF: dict[str, dict[str, Any]] = {"ours": {}, "authors": AUTHORS_CODE}
"""The sets of rules for the paper's experiments, and the settings in which each differs from the presets."""


def rules_of(whose: str) -> dict[str, Any]:
    """The settings in which a set of rules differs from the presets."""
    if whose not in RULES_OF:
        raise SettingsError(f"--as {whose}: choose from {', '.join(RULES_OF)}")
    return RULES_OF[whose]


class Choices(NamedTuple):
    """What is run, as far as a file says it."""

    methods: tuple[str, ...] | None = None
    seeds: Any = None
    """A number of seeds, or a list of seeds."""


def preset(name: str) -> Preset:
    """The preset of a name."""
    if name not in PRESETS:
        raise SettingsError(f"unknown preset {name!r}: choose from {', '.join(PRESETS)}, or name a .toml file")
    return PRESETS[name]


def resolve_settings(
    settings: Settings | str | Path | Mapping[str, Any] | None, changes: Mapping[str, Any] | None = None
) -> Settings:
    """The settings that a user named: by a preset's name, a .toml file (which may name a preset to start from), a
    mapping of settings, or Settings; None: the preset digits, or own for own data. `changes`: what is set beside."""
    given = dict(changes or {})
    if isinstance(settings, Settings):
        return settings.replace(given) if given else settings
    if isinstance(settings, Mapping):
        return parse_settings(settings).replace(given)
    return starting_point(settings, given).replace(_keys_of(settings)).replace(given)


def starting_point(
    settings: Settings | str | Path | Mapping[str, Any] | None,
    changes: Mapping[str, Any] | None = None,
    has_own_data: bool = False,
) -> Settings:
    """What the user's own changes are made to: a preset, or the defaults. A value that differs was set by the user."""
    if isinstance(settings, Settings | Mapping):
        return Settings()
    keys = {**_keys_of(settings), **(changes or {})}
    own = has_own_data or any(is_place(str(keys[key])) for key in ("data.source", "source", "dataset") if key in keys)
    if settings is None:
        return preset(OWN if own else DEFAULT_PRESET).settings
    if not _is_file(settings):
        return preset(str(settings)).settings
    named = flat_keys(Path(settings)).get("preset")
    return preset(str(named)).settings if named else preset(OWN).settings if own else Settings()


def keys_said(
    settings: Settings | str | Path | Mapping[str, Any] | None, changes: Mapping[str, Any] | None = None
) -> set[str]:
    """The settings, as section.key, that a user gave: all of them where `Settings` were given, none of a preset's."""
    if isinstance(settings, Settings):
        return {f"{section}.{key}" for section, values in settings.model_dump().items() for key in values}
    given = dict(flatten(settings)) if isinstance(settings, Mapping) else _keys_of(settings)
    return {".".join(locate(name)) for name in (*given, *dict(flatten(changes or {})))}


def _is_file(settings: str | Path) -> bool:
    return str(settings).lower().endswith(".toml")


def _keys_of(settings: str | Path | None) -> dict[str, Any]:
    """What a file sets; nothing where no file is named."""
    keys = flat_keys(Path(settings)) if settings is not None and _is_file(settings) else {}
    return {name: value for name, value in keys.items() if name not in _NO_SETTINGS}


def choices_in(settings: Settings | str | Path | Mapping[str, Any] | None) -> Choices:
    """The methods and seeds that a file names above its sections; none where it names none, or where there is no file.
    Paths of methods are relative to the file."""
    if not isinstance(settings, str | Path) or not _is_file(settings):
        return Choices()
    tree = read_toml(path := Path(settings))
    methods, seeds = tree.get("methods"), tree.get("seeds")
    named = methods.split(",") if isinstance(methods, str) else methods
    if named is not None and not (isinstance(named, list) and all(isinstance(name, str) for name in named)):
        raise SettingsError(f'{path}: methods = {methods!r}: list names of methods, ["local", "pens"]')
    return Choices(None if named is None else tuple(located(name.strip(), path.parent) for name in named), seeds)


def default_methods(smallest_cluster: int | None) -> tuple[MethodName, ...]:
    """The methods that `pens run` compares by default. Where clusters are not known (None), methods that need them are
    left out."""
    return tuple(m for m in DEFAULT_METHODS if smallest_cluster is not None or not find_method(m).told_clusters)

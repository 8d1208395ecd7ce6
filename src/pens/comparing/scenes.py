# SPDX-License-Identifier: Apache-2.0
"""Scenarios with all their settings: what each method runs with, and which methods a scenario cannot have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pens.comparing.file import ComparisonFile, Scenario, Values, check_seeds
from pens.errors import SettingsError, suggest
from pens.experiment.presets import OWN, keys_said, preset, resolve_settings
from pens.methods.method import Participants
from pens.methods.names import changed_shared, check_methods, find_method, participants
from pens.partitions.partition import partition_of
from pens.parts import is_place
from pens.planning.identity import identity
from pens.planning.plan import Wanted
from pens.planning.shared_data import SharedData
from pens.settings.tree import MethodName, Settings


@dataclass(frozen=True)
class Scene:
    """A scenario in which everything is decided."""

    name: str
    settings: Settings
    """Of the scenario, without those of single methods."""
    seeds: tuple[int, ...]
    methods: Mapping[MethodName, Settings]
    """The methods that are run, each with its settings."""
    who: Mapping[MethodName, Participants]
    """What is known of the peers, in the topology that each method has."""
    own: Mapping[MethodName, Values] = field(default_factory=dict)
    """The settings that a method has for itself alone, by `section.key`."""
    left_out: Mapping[MethodName, str] = field(default_factory=dict)
    """The methods that the scenario cannot have, each with the reason."""

    def wanted(self) -> list[Wanted]:
        """Its runs: methods with equal settings belong to one run directory."""
        alike: dict[str, list[MethodName]] = {}
        for method, settings in self.methods.items():
            alike.setdefault(identity(settings), []).append(method)
        return [
            Wanted("", self.name, self.methods[names[0]], tuple((m, seed) for m in names for seed in self.seeds))
            for names in alike.values()
        ]


@dataclass(frozen=True)
class Choice:
    """What a command narrows a file down to, and changes."""

    scenarios: tuple[str, ...] | None = None
    methods: tuple[MethodName, ...] | None = None
    seeds: tuple[int, ...] | None = None
    changed: Values = field(default_factory=dict)
    """Settings of all scenarios, by `section.key`; those that the file gives single methods still prevail."""


def scenes_of(file: ComparisonFile, data: SharedData, choice: Choice = Choice()) -> list[Scene]:  # noqa: B008
    """The scenarios of a file, resolved and checked. Own data are read, because they say how many peers there are."""
    names = [scenario.name for scenario in file.scenarios]
    for name in choice.scenarios or ():
        if name not in names:
            raise SettingsError(f"no scenario {name!r}{suggest(name, names)}: choose from {', '.join(names)}")
    chosen = [each for each in file.scenarios if choice.scenarios is None or each.name in choice.scenarios]
    check_seeds(choice.seeds or (), file.tuned.get("seeds", ()))
    scenes = [_scene(file, scenario, data, choice) for scenario in chosen]
    if not any(scene.methods for scene in scenes):
        raise SettingsError("nothing is left to compare: no scenario has any of these methods")
    return scenes


def _scene(file: ComparisonFile, scenario: Scenario, data: SharedData, choice: Choice) -> Scene:
    seeds = choice.seeds or file.seeds
    with _said_of(f"scenario {scenario.name}"):
        settings, said = _settings(file, scenario, choice)
        if settings.data.is_own:
            settings = data.holdings(settings).fitted(settings, said, seeds[0])
        in_scenario = _participants(settings, data, seeds)
    methods: dict[MethodName, Settings] = {}
    who, own, left_out = {}, {}, {}
    for method in file.methods_of(scenario):
        if choice.methods is not None and method not in choice.methods:
            continue
        values = {**file.of_method.get(method, {}), **scenario.of_method.get(method, {})}
        with _said_of(f"scenario {scenario.name}, method {method}"):
            its = _of_method(settings, values)
            who[method] = _participants(its, data, seeds) if values else in_scenario
            if reason := _why_not(its, method, who[method], seeds):
                left_out[method] = reason
                continue
        methods[method], own[method] = its, values
    return Scene(scenario.name, settings, seeds, methods, who, {m: of for m, of in own.items() if of}, left_out)


def _settings(file: ComparisonFile, scenario: Scenario, choice: Choice) -> tuple[Settings, set[str]]:
    """The settings of a scenario, and which of them somebody gave."""
    start = scenario.preset or file.preset
    values = {**file.settings, **scenario.settings, **choice.changed}
    said = {*values, *(keys_said(start) if start else ())}
    if "stopping.validated" not in said:
        values["stopping.validated"] = file.tested
    if start:
        return resolve_settings(start, values), said
    has_own_data = is_place(str(values.get("data.source", "")))
    return (preset(OWN).settings if has_own_data else Settings()).replace(values), said


def _participants(settings: Settings, data: SharedData, seeds: Sequence[int]) -> Participants:
    if settings.data.is_own:
        return data.holdings(settings).participants(settings, tuple(seeds))
    partition_of(settings).check(settings)
    return participants(settings, seeds)


def _of_method(settings: Settings, values: Values) -> Settings:
    """A scenario's settings with those of one method. All methods have to have the same data and network."""
    if not values:
        return settings
    its = settings.replace(values)
    if shared := changed_shared(settings, its):
        raise SettingsError(
            f"{shared[0]} is set for this method alone, but all methods of a scenario have the same data, network and "
            "engine: set it in [settings] or in the scenario"
        )
    return its


def _why_not(settings: Settings, method: MethodName, who: Participants, seeds: Sequence[int]) -> str | None:
    """Why a scenario cannot have a method that is told the true clusters; None where it can have the method. Whatever
    else cannot work is refused."""
    try:
        check_methods(settings, [method], who, seeds)
    except SettingsError:
        if not find_method(method).told_clusters:
            raise
        if who.smallest_cluster is None:
            return "its clusters are not known"
        if who.smallest_cluster < 2:
            return "a peer is alone in its cluster"
        raise
    return None


@contextmanager
def _said_of(what: str) -> Iterator[None]:
    try:
        yield
    except SettingsError as error:
        raise SettingsError(f"{what}: {error}") from None

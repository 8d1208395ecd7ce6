# SPDX-License-Identifier: Apache-2.0
"""Methods by name: the one place that turns what a user writes, or a record holds, into methods."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pens.attacks import attack
from pens.errors import SettingsError
from pens.hooks import calling
from pens.merging import rule
from pens.methods.method import Absent, Method, Participants
from pens.methods.spec import RunSpec
from pens.partitions.partition import partition_of
from pens.parts import METHODS as _ALL
from pens.parts import Registry, file_print
from pens.settings.keys import flat_name
from pens.settings.named_parts import parts_in_use, prints_of_parts, sections_of, titles_out_of_use
from pens.settings.schema import SettingsTree
from pens.settings.section import Section
from pens.settings.toml import assignment
from pens.settings.tree import RunSettings, Settings
from pens.topologies import topology
from pens.topologies.topology import fewest_neighbours, lonely_peer, topology_of

METHODS: Registry[Method] = _ALL

MethodLike = str | Method | type[Method]
"""A name or reference, an instance, or a class."""


def find_method(name: str, folder: Path | None = None) -> Method:
    """A method by its name, or by a reference to a file in `folder`."""
    return METHODS.find(name, folder)


def method_of(name: str) -> Method:
    """The method of a run that is over; `Absent` where it is not installed here."""
    try:
        return METHODS.find(name)
    except SettingsError:
        return Absent(name)


def parse_methods(
    methods: str | Method | type[Method] | Iterable[MethodLike], folder: Path | None = None
) -> tuple[str, ...]:
    """`"pens,random"` → ("pens", "random"), each known and named once. Methods themselves are given likewise.
    `folder`: where files are looked for; None: the working directory."""
    given: list[MethodLike] = []
    if isinstance(methods, str):
        given = [name.strip() for name in methods.split(",") if name.strip()]
    elif isinstance(methods, Method | type):
        given = [methods]
    elif isinstance(methods, Iterable):
        given = list(methods)
    if not given:
        raise SettingsError(f"no method given: choose from {', '.join(METHODS.names())}")
    names = tuple(_name_of(each, folder) for each in given)
    if len(set(names)) < len(names):
        raise SettingsError(f"methods {', '.join(names)}: a method is listed twice: list each once")
    return names


def _name_of(method: MethodLike, folder: Path | None) -> str:
    found = METHODS.find(method.strip(), folder) if isinstance(method, str) else METHODS.add(method)
    return found.name


def networked_method(name: str, folder: Path | None = None) -> Method:
    """Likewise, one that real peers can follow."""
    method = METHODS.find(name, folder)
    if not method.networked or method.num_servers:
        known = ", ".join(each.name for each in all_methods() if each.networked)
        raise SettingsError(f"method {method.name}: real peers cannot follow it, choose from {known}")
    return method


def all_methods() -> list[Method]:
    """Those that can be chosen by name, as far as they can be loaded."""
    return METHODS.every()


def in_order(names: Iterable[str]) -> list[str]:
    """Names in the order in which methods are listed everywhere; those that are not installed come last."""
    place = {name: number for number, name in enumerate(METHODS.names())}
    return sorted(dict.fromkeys(names), key=lambda name: (place.get(name, len(place)), name))


def selecting(names: Iterable[str]) -> list[str]:
    """Those of these methods whose peers select their neighbours."""
    return [name for name in in_order(names) if method_of(name).selects]


def alone() -> Method:
    """The method with which each peer trains alone: what others gain is told in comparison."""
    return next(method for method in all_methods() if method.trains_alone)


def with_sections(settings: Settings, names: Iterable[str]) -> Settings:
    """Settings in which the sections of these methods stand, whether or not something is set in them."""
    sections = (method_of(name).section for name in names)
    return settings.completed(section for section in sections if section is not None)


def settings_without_effect(names: Iterable[str]) -> set[str]:
    """The flat names of those settings that belong to other methods than these."""
    own = {method_of(name).section for name in names}
    others = {method.section for method in all_methods() if method.section} - own
    return {flat_name(section.title, key) for section in others if section for key in section.model_fields}


def sections_without_effect(settings: Settings, names: Iterable[str]) -> list[str]:
    """Sections of parts in which something is set, but which neither a part that these settings name has, nor one of
    these methods."""
    methods = {section.title for section in (method_of(name).section for name in names) if section}
    known = (title for title in settings.model_extra or {} if title not in methods)
    out_of_use = titles_out_of_use(settings)
    others = {of.section.title for of in all_methods() if of.section}
    return [title for title in known if title in out_of_use or title in others]


def check_methods(settings: Settings, names: Iterable[str], who: Participants, seeds: Collection[int] = (0,)) -> None:
    """Refuse what cannot work for these methods, before any work starts. `who`: by the topology of these settings."""
    for name in names:
        spec = RunSpec.of(find_method(name), settings, 0)
        _check_shared(settings, spec)
        _check_order(spec.settings)
        _check_tested(spec)
        _check_in_step(spec)
        with calling(f"method {name!r}", spec.method, "check"):
            spec.method.check(spec.settings, _by_topology(who, settings, spec.settings, seeds))
        rule.check_heeds(rule.chosen(spec.settings).rule, name, spec.method.says_weights, bool(spec.segments()))


def check_networked(settings: Settings, name: str) -> None:
    """Refuse what real peers cannot follow, in these settings and in what the method makes of them."""
    made = RunSpec.of(find_method(name), settings, 0).settings
    if made.gossip.schedule != "async":
        raise SettingsError(
            f"schedule = {made.gossip.schedule!r}, but real peers have no common rounds: leave it out, or set it to "
            "async"
        )
    if made.expected == "uniform":
        raise SettingsError(
            "expected = 'uniform', but a real peer does not know how many peers could be sampled: use 'received'"
        )
    rule.check_real(made)
    topology.check_real(made)
    attack.check_real(made)


def participants(settings: Settings, seeds: Iterable[int] = (0,)) -> Participants:
    """Who takes part in the scenario of these settings, with any of these seeds."""
    return among(settings, settings.scenario.peers, partition_of(settings).smallest_cluster(settings), tuple(seeds))


def among(settings: Settings, peers: int, smallest_cluster: int | None, seeds: Sequence[int]) -> Participants:
    """So many peers in the topology of these settings, with any of these seeds."""
    fewest = fewest_neighbours(settings, peers, seeds)
    return Participants(peers, smallest_cluster, fewest, None if fewest else lonely_peer(settings, peers, seeds))


def _check_shared(settings: Settings, spec: RunSpec) -> None:
    """Refuse a method that changes settings of what is made once, for all methods of an experiment."""
    after = shared_values(spec.settings)
    for name in changed_shared(settings, spec.settings):
        raise SettingsError(
            f"method {spec.method.name!r}: its resolve sets {assignment(name, after[name])}, but the data, the network "
            "and the engine are the same for all methods of an experiment: set it in the experiment's settings, not in "
            "resolve"
        )


def changed_shared(before: SettingsTree, after: SettingsTree) -> list[str]:
    """Of the settings that all methods of an experiment share, those that differ, by their names."""
    known = shared_values(before)
    return [name for name, value in shared_values(after).items() if value != known.get(name)]


def shared_values(settings: SettingsTree) -> dict[str, Any]:
    """What all methods of an experiment share, by name: the data, who holds them, the network and its task, and how
    numbers are computed."""
    titles = ["data", "scenario", "engine", *(section.title for section in sections_of(parts_in_use(settings)))]
    tree = settings.model_dump(mode="json")
    shared = {flat_name(title, key): value for title in titles for key, value in tree.get(title, {}).items()}
    return {**shared, "net": settings.model.net, "task": settings.model.task}


def _by_topology(who: Participants, settings: Settings, made: RunSettings, seeds: Iterable[int]) -> Participants:
    """Who takes part where a method has made something of the settings, which may be another topology."""
    if _topology_in(made) == _topology_in(settings):
        return who
    return replace(who, fewest_reachable=fewest_neighbours(made, who.num_peers, seeds))


def _topology_in(settings: SettingsTree) -> tuple[str, Section | None]:
    section = topology_of(settings).section
    return settings.gossip.topology, settings.section(section) if section else None


def _check_order(settings: RunSettings) -> None:
    if settings.gossip.pull_from == "latest" and settings.gossip.schedule == "async":
        raise SettingsError(
            "pull_from = latest, but schedule = async: there nobody pulls, models are pushed: set schedule = rounds or "
            "pull_from = snapshot"
        )


def _check_tested(spec: RunSpec) -> None:
    stopping = spec.settings.stopping
    if stopping.validated != "trained" and stopping.tested == "last":
        who = spec.method.name if spec.method.plus_of else f"validated = {stopping.validated}"
        what = "merged model" if stopping.validated == "merged" else "model, merged or fine-tuned"
        raise SettingsError(f"tested = last, but {who} tests the best {what}: set tested = best")


def _check_in_step(spec: RunSpec) -> None:
    gossip, name = spec.settings.gossip, spec.method.name
    if spec.method.in_step and gossip.schedule == "async":
        raise SettingsError(f"schedule = async, but the peers of {name} go in step: set schedule = rounds")
    if spec.method.in_step and gossip.pull_from == "latest":
        raise SettingsError(
            f"pull_from = latest, but the peers of {name} all exchange models at once: set pull_from = snapshot"
        )


# --- where own methods came from --------------------------------------------------------------------------------------


def references_of(names: Iterable[str]) -> dict[str, str]:
    """Where the methods are that were given by reference, by name; for a record."""
    found = {name: METHODS.reference(name) for name in names}
    return {name: reference for name, reference in found.items() if reference}


def prints_of(settings: Settings, names: Iterable[str]) -> dict[str, str]:
    """What tells whether the file of a part that a run uses has changed, by what the part is called in words."""
    found = {f"method {name}": file_print(method_of(name)) for name in names}
    return {**{what: mark for what, mark in found.items() if mark}, **prints_of_parts(settings)}


def written(name: str) -> str:
    """How a method is named where another process has to find it: by its reference where it has one."""
    return METHODS.reference(name) or name


def recall(references: Mapping[str, str]) -> None:
    """Find the methods that a record names. What is not there any more is left out: `method_of` stands in for it."""
    for reference in references.values():
        try:
            METHODS.find(reference)
        except SettingsError:
            continue


def lost(names: Iterable[str], references: Mapping[str, str]) -> dict[str, str]:
    """Methods that a record names and that are not there any more, each with what is wrong."""
    found = {}
    for name in names:
        try:
            METHODS.find(references.get(name, name))
        except SettingsError as error:
            found[name] = str(error)
    return found

# SPDX-License-Identifier: Apache-2.0
"""Parts that users add: methods, partitions and what they combine, topologies, merge rules, tasks. Each is one object,
found by its name.

A name is one of ours (`pens`), one that an installed package offers as an entry point of the registry's group
(`[project.entry-points."pens.methods"]`), or a reference: `module:name`, or `file.py:name`. A reference is given where
a name is: in TOML, on the command line, in Python. Nothing is imported before a part is asked for.

A part may have a section of the settings to itself: `section`, a class of `pens.settings.section.Section` whose
attribute `title` is the section's name. Parts that belong together may share one.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from pens.errors import SettingsError, suggest
from pens.hooks import a_type, is_ours, told

P = TypeVar("P")

_CHECK = "pens.settings.declared:check_declared"
_BEHAVIOUR = "pens.protocol.behaviour:Behaviour"  # what is taken for a method most easily
_NAME = re.compile(r"[a-z][a-z0-9+-]*")


class Registry(Generic[P]):
    """All parts of one type, by name."""

    def __init__(self, what: str, group: str, base: str, built_in: Mapping[str, str]) -> None:
        """`what`: the type of part in words, "method". `base`: the class that each part is an instance of, as
        `module:name`. `built_in`: where each of our own is, likewise, by its name."""
        self.what, self._group, self._base, self._built_in = what, group, base, built_in
        self._found: dict[str, P] = {}
        """Parts that were asked for, by what they were asked for as."""
        self._references: dict[str, str] = {}
        """Of parts that were given by reference: where each is, by its name."""
        self._given: dict[str, None] = {}
        """The names of parts that were given as objects."""
        self.absent: set[str] = set()
        """What records name that is not there: settings that name it can be read, and nothing can be run with them."""

    def names(self) -> tuple[str, ...]:
        """Ours first, then those of installed packages, then those that were given by reference."""
        return tuple(dict.fromkeys((*self._built_in, *sorted(self._installed()), *self._references, *self._given)))

    @property
    def built_in(self) -> tuple[str, ...]:
        """The names of ours."""
        return tuple(self._built_in)

    @property
    def base(self) -> type[P]:
        """The class that each part is an instance of."""
        found: type[P] = load_object(self._base, self.what)
        return found

    def find(self, name: str, folder: Path | None = None) -> P:
        """The part of a name or reference. `folder`: where files are looked for; None: the working directory."""
        if is_reference(name):
            return self._by_reference(absolute(name, folder))
        if name not in self._found:
            self._found[name] = self._by_name(name)
        return self._found[name]

    def every(self) -> list[P]:
        """All parts that have a name, as far as they can be loaded: others' may be broken, which concerns nobody who
        does not ask for them."""
        found = []
        for name in self.names():
            try:
                found.append(self.find(name))
            except SettingsError:
                continue
        return found

    def fits(self, part: object) -> bool:
        """Whether an object or class is a part of this type."""
        if part is None or isinstance(part, str | int | float | list | tuple | dict):
            return False
        base = load_object(self._base, self.what)
        return issubclass(part, base) if isinstance(part, type) else isinstance(part, base)

    def add(self, part: P | type[P]) -> P:
        """A part that is given as an object or a class. It takes the place of one that was given so before."""
        made = self._made(part, getattr(part, "__name__", type(part).__name__))
        name = self._name_of(made, type(made).__name__)
        known = self.find(name) if self._is_taken(name) else self._found.get(name)
        if known is not None and (known is made or type(known) is part):
            return known
        if self._is_taken(name):
            raise SettingsError(
                f"{self.what} {type(made).__name__} is called {name!r}, and so is {self._holder(name)}: rename it"
            )
        self._found[name], self._given[name] = made, None
        if reference := _place_of(part):
            self._references[name], self._found[reference] = reference, made
        else:
            self._references.pop(name, None)
        return made

    def _is_taken(self, name: str) -> bool:
        return name in self._built_in or name in self._installed()

    def _holder(self, name: str) -> str:
        """Who has a name that is taken, in words."""
        return "one of pens" if name in self._built_in else f"that of {', '.join(self._installed()[name])}"

    def reference(self, name: str) -> str | None:
        """By which reference a part was given; None: it is found by its name."""
        return self._references.get(name)

    def _by_name(self, name: str) -> P:
        if name in self._references:
            return self.find(self._references[name])
        offers = [*([self._built_in[name]] if name in self._built_in else []), *self._installed().get(name, [])]
        if not offers and name.endswith(".py"):
            raise SettingsError(f"{self.what} = {name!r}: a file may have several parts: add the class, {name}:Name")
        if not offers:
            names = self.names()
            raise SettingsError(
                f"unknown {self.what} {name!r}{suggest(name, names) or '.'} Choose from {', '.join(names)}, or name "
                "your own as file.py:name or module:name"
            )
        if len(offers) > 1:
            raise SettingsError(
                f"{self.what} {name!r} is offered by {' and '.join(offers)}: uninstall one, or name it as module:name"
            )
        part = self._made(load_object(offers[0], self.what), name)
        if (called := getattr(part, "name", name)) != name:
            raise SettingsError(f"{self.what} {name!r} is offered by {offers[0]}, which calls it {called!r}")
        return part

    def _by_reference(self, reference: str) -> P:
        if reference in self._found:
            return self._found[reference]
        part = self._made(load_object(reference, self.what), reference)
        name = self._name_of(part, reference)
        known = self._references.get(name)
        if self._is_taken(name) or known not in (None, reference):
            raise SettingsError(
                f"{self.what} {reference!r} is called {name!r}, and so is {known or self._holder(name)}: give yours "
                "another name"
            )
        self._references[name], self._found[reference], self._found[name] = reference, part, part
        return part

    def _made(self, found: Any, name: str) -> P:
        """An instance: what was found, or made from it where it is a class."""
        if isinstance(found, type) and issubclass(found, load_object(_BEHAVIOUR, self.what)):
            raise SettingsError(f"{self.what} {name!r} is a behaviour: name the pens.Method whose plan has it")
        try:
            part = found() if isinstance(found, type) else found
        except Exception as error:  # the user's own code
            raise SettingsError(f"{self.what} {name!r} cannot be made: {told(error)}") from error
        if not isinstance(part, self.base):
            title = self._base.rpartition(":")[2]
            raise SettingsError(f"{self.what} {name!r} is {a_type(part)}: it has to be a pens.{title}")
        if not is_ours(type(part)):
            load_object(_CHECK, self.what)(f"{self.what} {name!r}", part)
        made: P = part
        return made

    def _name_of(self, part: P, reference: str) -> str:
        name = getattr(part, "name", None)
        if isinstance(name, str) and is_name(name):
            return name
        has = f"has the name {name!r}" if name else 'has no name: give its class one, such as name = "mine"'
        raise SettingsError(
            f"{self.what} {reference!r} {has}; a name is made of small letters, digits, + and -, and begins with a "
            "letter"
        )

    def _installed(self) -> dict[str, list[str]]:
        """Where parts of installed packages are, by name."""
        found: dict[str, list[str]] = {}
        for name, value in _offered(entry_points, self._group):
            found.setdefault(name, []).append(value)
        return found


@functools.cache
def _offered(ask: Callable[..., Iterable[Any]], group: str) -> tuple[tuple[str, str], ...]:
    """(name, reference) of what installed packages offer; looked up once per process."""
    return tuple((point.name, point.value) for point in ask(group=group))


METHODS: Registry[Any] = Registry(
    "method",
    "pens.methods",
    "pens.methods.method:Method",
    {
        "pens": "pens.methods.pens:Pens",
        "pens+": "pens.methods.pens_plus:PensPlus",
        "random": "pens.methods.random:Random",
        "random+": "pens.methods.random:RandomPlus",
        "local": "pens.methods.local:Local",
        "oracle": "pens.methods.oracle:Oracle",
        "oracle+": "pens.methods.oracle:OraclePlus",
        "central": "pens.methods.central:Central",
        "dac": "pens.methods.dac:Dac",
        "dpsgd": "pens.methods.dpsgd:Dpsgd",
        "el": "pens.methods.el:El",
        "fedavg": "pens.methods.fedavg:FedAvg",
        "deprl": "pens.methods.deprl:Deprl",
        "fedrep": "pens.methods.fedrep:FedRep",
        "facade": "pens.methods.facade:Facade",
        "dac-var": "pens.methods.dac_var:DacVar",
        "fedfomo": "pens.methods.fedfomo:FedFomo",
        "ifca": "pens.methods.ifca:Ifca",
        "fedbn": "pens.methods.fedbn:FedBn",
    },
)
PARTITIONS: Registry[Any] = Registry(
    "partition",
    "pens.partitions",
    "pens.partitions.partition:Partition",
    {
        "rotation": "pens.partitions.rotation:Rotation",
        "groups": "pens.partitions.groups:Groups",
        "dirichlet": "pens.partitions.dirichlet:Dirichlet",
        "shards": "pens.partitions.shards:Shards",
        "product": "pens.partitions.product:Product",
    },
)
LABEL_LAWS: Registry[Any] = Registry(
    "label law",
    "pens.label_laws",
    "pens.partitions.axes:LabelLaw",
    {
        "iid": "pens.partitions.label_laws.iid:Iid",
        "dirichlet": "pens.partitions.dirichlet:DirichletLaw",
        "shards": "pens.partitions.shards:ShardsLaw",
        "majority": "pens.partitions.label_laws.majority:Majority",
        "classes": "pens.partitions.label_laws.classes:Classes",
    },
)
SIZE_LAWS: Registry[Any] = Registry(
    "size law",
    "pens.size_laws",
    "pens.partitions.axes:SizeLaw",
    {name: f"pens.partitions.size_laws.{name}:{name.title()}" for name in ("equal", "lognormal", "power")},
)
SHIFTS: Registry[Any] = Registry(
    "shift",
    "pens.shifts",
    "pens.partitions.axes:Shift",
    {
        name: f"pens.partitions.shifts.{name}:{name.title()}"
        for name in ("rotation", "permutation", "noise", "blur", "colour")
    },
)
TOPOLOGIES: Registry[Any] = Registry(
    "topology",
    "pens.topologies",
    "pens.topologies.topology:Topology",
    {name: f"pens.topologies.{name}:{name.title()}" for name in ("complete", "ring", "regular", "edges")},
)
MERGE_RULES: Registry[Any] = Registry(
    "merge rule",
    "pens.merge_rules",
    "pens.merging.rule:MergeRule",
    {name: f"pens.merging.{name}:{name.title()}" for name in ("mean", "weighted", "median", "trimmed", "clipped")},
)
TASKS: Registry[Any] = Registry(
    "task",
    "pens.tasks",
    "pens.tasks.task:Task",
    {
        "classification": "pens.tasks.classification:Classification",
        "regression": "pens.tasks.regression:Regression",
        "multi-label": "pens.tasks.multilabel:MultiLabel",
        "positions": "pens.tasks.positions:Positions",
    },
)
ATTACKS: Registry[Any] = Registry(
    "attack",
    "pens.attacks",
    "pens.attacks.attack:Attack",
    {
        "none": "pens.attacks.none:Honest",
        "echo-then-negate": "pens.attacks.echo_then_negate:EchoThenNegate",
        "negate": "pens.attacks.negate:Negate",
        "scale": "pens.attacks.scale:Scale",
        "noise": "pens.attacks.noise:Noise",
        "label-flip": "pens.attacks.label_flip:LabelFlip",
    },
)


def sections(
    registries: Iterable[Registry[Any]] = (
        *(METHODS, PARTITIONS, LABEL_LAWS, SIZE_LAWS, SHIFTS),
        *(TOPOLOGIES, MERGE_RULES, TASKS, ATTACKS),
    ),
) -> dict[str, Any]:
    """The classes of the sections that parts have, by the sections' names."""
    found: dict[str, Any] = {}
    for part in (part for registry in registries for part in registry.every()):
        section = getattr(part, "section", None)
        if section is not None and found.setdefault(section.title, section) is not section:
            raise SettingsError(f"two parts have a section [{section.title}]: rename that of {part.name!r}")
    return found


DATASETS = ("digits", "fashion-mnist", "cifar-10")
"""The built-in data sets."""
HUB = "hf:"
"""What a data set of the Hugging Face hub begins with."""


def offered(group: str) -> dict[str, str]:
    """What installed packages offer as entry points of a group: references by name."""
    return dict(_offered(entry_points, group))


def is_path(text: str) -> bool:
    """Whether a text names a file or folder, and no part."""
    return not is_reference(text) and (bool(Path(text).suffix) or "/" in text or "\\" in text)


def is_place(source: str) -> bool:
    """Whether data come from a file, a folder, a function or the hub, and not from a data set with a name."""
    return source.startswith(HUB) or is_reference(source) or is_path(source)


def located(text: str, folder: Path | None = None) -> str:
    """A reference or path that means the same in every working directory; a name stays as it is."""
    if text.startswith(HUB):
        inside = (folder or Path()) / text.removeprefix(HUB)
        return HUB + str(inside.resolve()) if inside.is_dir() else text
    if is_reference(text):
        return absolute(text, folder)
    return str(((folder or Path()) / text).resolve()) if is_path(text) else text


def located_data(text: str) -> str:
    """The same of data: a folder needs no slash, unless it is called like a data set."""
    is_named = text in DATASETS or text in offered("pens.datasets")
    return str(Path(text).resolve()) if not is_named and Path(text).is_dir() else located(text)


def located_parts(data: str | None, model: str | None) -> dict[str, Any]:
    """The settings that name a user's own data and network, as far as they are given."""
    given = {"data.source": data and located_data(data), "model.net": model and located(model)}
    return {key: place for key, place in given.items() if place is not None}


def is_name(text: object) -> bool:
    """Whether a part can be called so."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def is_reference(text: str) -> bool:
    """Whether a text is `module:name` or `file.py:name`, not the name of a part."""
    return ":" in text and not text.startswith(HUB)


def absolute(reference: str, folder: Path | None = None) -> str:
    """A reference that means the same in every working directory."""
    place, _, name = reference.rpartition(":")
    return f"{((folder or Path()) / place).resolve()}:{name}" if place.endswith(".py") else reference


def _place_of(part: Any) -> str | None:
    """The reference by which another process finds an object or class: a name in a file that was imported. None for
    what only this process has."""
    of = part if isinstance(part, type) else type(part)
    module = sys.modules.get(of.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or of.__module__ == "__main__":
        return None
    names = [name for name, value in vars(module).items() if value is part]
    return f"{Path(file).resolve()}:{names[0]}" if names else None


def file_print(part: Any) -> str | None:
    """What tells whether the file changed that a part of others comes from; None for our own parts, and for those that
    have no file."""
    of = part if isinstance(part, type) else type(part)
    file = getattr(sys.modules.get(of.__module__), "__file__", None)
    if file is None or is_ours(of) or of.__module__ == "__main__" or not Path(file).is_file():
        return None
    return print_of(Path(file))


def print_of(path: Path) -> str:
    """What tells whether the content of a file changed."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()


def load_object(reference: str, what: str, folder: Path | None = None) -> Any:
    """`module:name` or `file.py:name` → the object of that name. `what`: what errors call it.

    `folder`: where files and modules are looked for; None: files in the working directory, modules on Python's path.
    """
    place, colon, name = reference.rpartition(":")
    if not colon or not place:
        raise SettingsError(f"{what} = {reference!r}: expected module:name or file.py:name")
    if place.endswith(".py"):
        module = _load_file((folder or Path()) / place, reference, what)
    else:
        module = _load_module(place, reference, what, folder)
    if not hasattr(module, name):
        raise SettingsError(f"{what} = {reference!r}: {place} has no {name!r}{suggest(name, vars(module))}")
    return getattr(module, name)


def load_function(reference: str, what: str, folder: Path | None = None) -> Callable[..., Any]:
    """Likewise, a class or function."""
    found = load_object(reference, what, folder)
    if not callable(found):
        raise SettingsError(f"{what} = {reference!r}: {type(found).__name__} is no class or function")
    function: Callable[..., Any] = found
    return function


def _load_file(path: Path, reference: str, what: str) -> ModuleType:
    """Once per process: a class that is loaded twice would be two classes. The file may import those beside it, as a
    script can."""
    path = path.resolve()
    if not path.is_file():
        raise SettingsError(f"{what} = {reference!r}: there is no file {path}")
    name = f"pens_file_{path.stem}_{hashlib.blake2b(bytes(path), digest_size=4).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    if (beside := sys.modules.get(path.stem)) and getattr(beside, "__file__", None) == str(path):
        return beside  # another file imported it
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # at the end, where it hides nothing
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and typed settings look for their module there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's own code
        del sys.modules[name]
        raise SettingsError(f"{what} = {reference!r}: it fails: {told(error)}") from error
    return module


def _load_module(name: str, reference: str, what: str, folder: Path | None) -> ModuleType:
    if folder:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    except Exception as error:  # the user's own code
        file = (folder or Path()) / f"{name.replace('.', '/')}.py"
        missing = isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0] and file.is_file()
        remedy = f"; {file} is a file here: write {file}:{reference.rpartition(':')[2]}" if missing else ""
        raise SettingsError(f"{what} = {reference!r}: {told(error)}{remedy}") from error
    finally:
        if folder:
            sys.path.remove(str(folder))

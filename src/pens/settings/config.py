# SPDX-License-Identifier: Apache-2.0
"""Typed settings: TOML in, every field bounded, unknown keys refused with a suggestion, checked across fields.

Settings are grouped in sections, as in the TOML file, and every key is unique over all sections, so that the command
line can say `--set n_sampled=5` as well as `--set pens.n_sampled=5`. They never change once made: an algorithm that
needs another value asks for it here.

`paper`, where it stands beside a default, means the value comes from the paper's section 5; `docs/decisions/` tells
why where we differ.
"""

from __future__ import annotations

import operator
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_origin

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator

from pens import parts
from pens.errors import SettingsError, suggest
from pens.settings.toml import read_value

MethodName = str
"""By which `pens.parts.METHODS` finds a method."""
S = TypeVar("S", bound="Section")
MAX_SEEDS = 10_000
MAX_SEED = 2**63 - 1
Step2Model = Literal["last", "first", "best"]
WireForm = Literal["fp32", "fp16", "int8"]

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """One section of the settings. The text below a setting is its explanation, in `pens settings`, too."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)
    title: ClassVar[str] = ""
    """The section's name in a TOML file, where it belongs to a part (`pens.parts`)."""


class ScenarioSettings(Section):
    """Which data, and how the peers share it (paper, section 3)."""

    dataset: str = "digits"
    """Which data set: digits, fashion-mnist or cifar-10 (`pens data` shows where they are)."""
    partition: str = "rotation"
    """Who holds which data (`pens settings dirichlet` explains the settings of one)."""
    rotations: Annotated[tuple[int, ...], Field(min_length=1)] = (0, 180)
    """Partitions rotation and groups: by how many degrees images are turned, a multiple of 90 for each cluster; with
    rotation clusters have equally many peers."""
    peers: Annotated[int, Field(ge=2)] = 20
    """How many peers there are; with rotation the same number for each of the rotations (paper: 100)."""
    train_per_peer: Count = 40
    """Training samples of each peer (paper: 400 on CIFAR-10, 500 on Fashion-MNIST)."""
    val_per_peer: Count = 20
    """Validation samples of each peer, on which early stopping and the best model are decided (paper: 100)."""
    test: Literal["partitioned", "full"] = "partitioned"
    """Test data. partitioned: each cluster, or each peer where there are no clusters, has its own part of the test set;
    full: each draws from all of it, rotated where it has a rotation."""
    test_samples: Count | None = None
    """At most so many test samples per cluster, or per peer where there are no clusters; none: as many as there are."""
    half_turn: Literal["rotation", "flip"] = "rotation"
    """Partitions rotation and groups: what 180 degrees mean; the authors' code mirrors the image instead of turning
    it."""

    @field_validator("rotations")
    @classmethod
    def _quarter_turns(cls, rotations: tuple[int, ...]) -> tuple[int, ...]:
        for angle in rotations:
            if angle % 90:
                raise ValueError(f"{angle} is not a multiple of 90: use 0, 90, 180 or 270")
        if len({angle % 360 for angle in rotations}) < len(rotations):
            raise ValueError("two of them are the same rotation: list each once")
        return rotations


class ModelSettings(Section):
    """The network and how its weights start."""

    net: str = "auto"
    """The network: digits-cnn, paper-cnn, or auto, the one for the data set."""
    init: Literal["independent", "common"] = "independent"
    """Whether each peer begins with random weights of its own, or all with the same ones (paper: both)."""


class TrainingSettings(Section):
    """Local training (paper, section 4.1: E epochs on the peer's own data). An optimizer begins anew after a merge."""

    optimizer: Literal["adam", "sgd"] = "adam"
    """The optimizer of local training (docs/decisions/0001)."""
    lr: Positive = 1e-3
    """Learning rate (paper: 0.001)."""
    momentum: Fraction = 0.0
    """Momentum of sgd; adam does not use it."""
    weight_decay: NotNegative = 0.0
    """How strongly weights are pulled towards zero; 0: not at all (docs/decisions/0022)."""
    batch_size: Count = 8
    """Samples per step of the optimizer (the authors' code: 8)."""
    epochs: Count = 3
    """E: passes over a peer's training data in each update (the authors' code: 3)."""
    train_first: bool = True
    """Whether a peer trains before its first exchange (paper). The authors' code merges untrained models."""


class GossipSettings(Section):
    """Algorithm 1, and step 2 of PENS."""

    schedule: Literal["rounds", "async"] = "rounds"
    """rounds: all peers update in step, each pulling models; async: each at its own time, models are pushed."""
    rounds: Count = 333
    """T: at most so many updates per peer (paper: 333)."""
    pull_from: Literal["snapshot", "latest"] = "snapshot"
    """rounds only. snapshot: all peers pull the models that there are when the round begins. latest: peers take turns,
    so that later ones pull the new models of earlier ones, as in the authors' code; much slower on a GPU."""
    topology: str = "complete"
    """Which peers can talk to which (docs/decisions/0031); a method may allow less."""
    n_peers: Count = 20
    """Models that a peer waits for before it merges (paper: 20)."""
    own_in_merge: bool = True
    """Whether a peer's own model is part of the average."""
    accept: Literal["neighbours", "anyone"] = "neighbours"
    """async only: whose models a peer merges once it has neighbours."""
    merge: str = "mean"
    """How a peer's own model and those that it received become one: mean, the plain average (paper), weighted, median,
    trimmed or clipped (docs/decisions/0028); or an own rule, as file.py:name or module:name."""
    merge_only: tuple[str, ...] = ()
    """Merge only parameters and buffers whose names begin with one of these; the others keep the peer's own values.
    Empty: all are merged."""
    wire: WireForm = "fp32"
    """How models travel: fp16 takes half, int8 a quarter of the bytes; receivers get them rounded."""

    @field_validator("merge", "topology")
    @classmethod
    def _from_anywhere(cls, part: str) -> str:
        return parts.absolute(part) if parts.is_reference(part) else part

    @field_validator("merge_only", mode="before")
    @classmethod
    def _words(cls, names: Any) -> Any:
        """`conv,out` is a list."""
        return tuple(filter(None, names.split(","))) if isinstance(names, str) else names


class PensSettings(Section):
    """Algorithm 2: step 1 of PENS."""

    title = "pens"

    n_sampled: Count = 10
    """Models that a peer compares at once in step 1 (paper: 10)."""
    m: Count = 2
    """How many of the n_sampled models, those with the lowest loss, a peer selects and merges (paper: 2)."""
    step1_rounds: Count = 20
    """Rounds of step 1, in which peers look for neighbours."""
    step1_samplings: Count = 10
    """Samplings per round: each one's top m is counted, the last one's is merged. As written, the paper uses 200
    rounds of 1 sampling."""
    score_samples: Count | None = None
    """Models are compared on so many random samples of the receiver, drawn anew each time; none: on all."""
    score_on: Literal["train", "val"] = "train"
    """On which of the receiver's samples models are compared: its training data (paper), or its validation data, to
    which its own model was not fitted."""
    score_by: Literal["loss", "accuracy"] = "loss"
    """How models are compared: by the lowest loss (paper), or by the highest accuracy (the authors' code)."""
    step1_epochs: Count | Literal["auto", "authors"] = "auto"
    """authors: 1250 // n + 1 epochs, where n is a peer's number of training samples, as in the authors' code. auto: our
    choice, which adds its validation samples to n (docs/decisions/0024). Peers with unequal numbers of samples train
    unequal numbers of epochs. With one sampling per round: `epochs`."""
    expected: Literal["auto", "uniform", "received"] = "auto"
    """What "more than expected" compares with. auto: uniform in rounds, received in async."""
    expected_offset: Annotated[float, Field(ge=-100, le=100)] = 0.0
    """Added to the expected count before a peer's own is compared with it. The authors' code has -1: a peer that is
    selected once less than our rule asks for becomes a neighbour, too."""
    nobody_found: Literal["most-selected", "alone"] = "most-selected"
    """What a peer does that finds no neighbour. most-selected: it takes the m selected most often; alone: it trains
    without others, as in the authors' code."""
    neighbours_by: Literal["expected", "groups"] = "expected"
    """expected: the peers that were selected more often than expected are the neighbours (paper). groups: the counts
    of selections are split into two groups, and the peers of the group with the higher counts are the neighbours."""
    step2_model: Step2Model = "last"
    """What a peer begins step 2 with. last: what step 1 made of its model (paper); first: its untrained model; best:
    that of step 1's models with the lowest validation loss. `pens+`: first where init = common, else best."""
    admit: bool = False
    """async only, refused in rounds: whether peers that join late can become neighbours in step 2, if their models do
    well."""
    admission_trials: Annotated[int, Field(ge=1, le=32)] = 6
    """With admit: how many models of a late joiner are compared before it can become a neighbour."""


class StoppingSettings(Section):
    """Early stopping on local validation data (paper, section 5.4), and which model is tested."""

    stop_on: Literal["accuracy", "loss"] = "accuracy"
    """What must improve on validation data for a peer to go on."""
    window: Count = 5
    """Improvement is judged on the mean of so many updates."""
    patience: Count = 50
    """A peer stops after so many updates without improvement."""
    validated: Literal["trained", "merged"] = "trained"
    """Which model a peer validates, and so tests at the end: trained, the locally fine-tuned model (paper), or merged,
    the merged model before fine-tuning. A peer sends its fine-tuned model in both cases."""
    tested: Literal["best", "last"] = "best"
    """Which of its models a peer tests at the end: the best on its validation data, or the last."""


class TimingSettings(Section):
    """Virtual time of the async schedule. The unit is arbitrary; only ratios matter."""

    interval: Positive = 1.0
    """Δ of WAIT(Δ): the time between two models that a peer sends."""
    jitter: Fraction = 0.1
    """How much waits vary: each is Δ × (1 ± jitter)."""
    latency: NotNegative = 0.1
    """Time a message is on its way."""
    training_time: Positive = 1.0
    """Time an update of `epochs` epochs takes; other updates in proportion to their epochs."""
    give_up: Positive = 3.0
    """A peer that has waited so many times as long as usual merges the models that it has, so that it does not hold up
    a run."""


class CentralSettings(Section):
    """The `central` baseline: one model on everybody's data. One round is `central_epochs` epochs."""

    title = "central"

    central_rounds: Count = 60
    """What `rounds` is for the other methods: at most so many rounds."""
    central_epochs: Count = 1
    """What `epochs` is for the other methods: epochs per round."""
    central_batch_size: Count = 32
    """What `batch_size` is for the other methods: samples per step."""
    central_window: Count = 1
    """What `window` is for the other methods. Validation data are everybody's, so that one result can be trusted."""
    central_patience: Count = 15
    """What `patience` is for the other methods."""
    central_val_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The share of all data that is used for validation; the rest is trained on. none: the peers' validation data."""


class EngineSettings(Section):
    """How numbers are computed. Nothing here changes what is computed, beyond rounding."""

    backend: Literal["stack", "loop"] = "stack"
    """stack: trains all ready peers at once; loop: one after the other, slower, to check against."""
    precision: Literal["fp32", "tf32", "bf16"] = "tf32"
    """Precision of matrix products on a GPU; weights are always fp32, and a CPU always computes in fp32."""
    max_batch: Annotated[int, Field(ge=0)] = 0
    """At most so many updates at once; 0: all that are ready."""
    compile: Literal["auto", "always", "never"] = "auto"
    """Whether the C compiler makes kernels for this CPU. auto: where a run is long enough to repay a few seconds."""
    memory_mb: Annotated[int, Field(ge=0)] = 0
    """Bound on the memory for activations of a chunk of models, in MB; 0: chosen for the device."""
    seeds_at_once: Annotated[int, Field(ge=0)] = 0
    """So many seeds of a method are computed as one stack; 0: on a GPU all, up to some 2,000 peers; on a CPU one."""
    checkpoint_every_s: NotNegative = 30.0
    """Seconds between two checkpoints of a run, from which it resumes; 0: after every step."""


class UnknownSection(Section):
    """A section that a record has of a part which is not installed here. It is kept as it is."""

    model_config = ConfigDict(extra="allow")


class SettingsTree(BaseModel):
    """All sections. Beside those below there are the sections of parts: `section` has them."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, SerializeAsAny[Section]] = Field(init=False)

    scenario: ScenarioSettings = ScenarioSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    gossip: GossipSettings = GossipSettings()
    pens: PensSettings = PensSettings()
    stopping: StoppingSettings = StoppingSettings()
    timing: TimingSettings = TimingSettings()
    central: CentralSettings = CentralSettings()
    engine: EngineSettings = EngineSettings()

    def section(self, of: type[S]) -> S:
        """A part's section: what is set, or its defaults."""
        found = getattr(self, of.title, None) if of.title else None
        return found if isinstance(found, of) else of()

    @property
    def step1_epochs(self) -> int:
        """E during step 1 for peers that hold what the scenario hands out."""
        return epochs_of_step1(self, self.scenario.train_per_peer, self.scenario.val_per_peer)

    @property
    def expected(self) -> Literal["uniform", "received"]:
        if self.pens.expected != "auto":
            return self.pens.expected
        return "uniform" if self.gossip.schedule == "rounds" else "received"


class Settings(SettingsTree):
    """Everything that decides an experiment, but for its methods and seeds."""

    def replace(self, values: Mapping[str, Any]) -> Settings:
        """These settings with some keys changed: `{"peers": 8, "pens.m": 1}`."""
        tree: dict[str, dict[str, Any]] = self.model_dump()
        named: dict[str, str] = {}
        for name, value in _with_parts(values).items():
            section, key = _locate(name)
            if named.setdefault(f"{section}.{key}", name) != name:
                raise SettingsError(f"{named[f'{section}.{key}']} and {name} are the same setting: give it once")
            tree.setdefault(section, {})[key] = value
        return _validated(tree)

    @property
    def explicit(self) -> Settings:
        """With what `auto` means in step 1, so that they say the same in a later version.

        Settings do not know the sizes of own data: there, `RunResult.step1_epochs` says it.
        """
        found = self.replace({"step1_epochs": self.step1_epochs, "expected": self.expected})
        return found.without(_titles_out_of_use(found))

    def without(self, titles: Collection[str]) -> Settings:
        """These settings without some parts' sections."""
        left = {title: of for title, of in (self.__pydantic_extra__ or {}).items() if title not in titles}
        return Settings.model_validate({**{name: getattr(self, name) for name in _SECTIONS}, **left})


class RunSettings(SettingsTree):
    """The settings of one run: what its method made of the experiment's. `pens.methods.spec` makes them, and no method
    is applied to them again: they are no `Settings`."""


def epochs_of_step1(settings: SettingsTree, train: int, val: int) -> int:
    """E during step 1 for a peer that holds so many training and validation samples (docs/decisions/0024)."""
    rule = settings.pens.step1_epochs
    if rule not in ("auto", "authors"):
        return int(rule)
    if settings.pens.step1_samplings == 1:
        return settings.training.epochs
    return 1250 // (train + (val if rule == "auto" else 0)) + 1


def flat_values(settings: SettingsTree) -> dict[str, Any]:
    """All settings as plain data, by their names."""
    tree = settings.model_dump(mode="json")
    return {flat_name(section, key): value for section, values in tree.items() for key, value in values.items()}


def flat_name(section: str, key: str) -> str:
    """What a setting is called where its section is not said. That of a part needs its section where the key alone
    could be another's, too, or where the part is not installed."""
    if section in _SECTIONS:
        return key
    others = _sections_of_parts()
    alone = key not in _SECTION_OF and [title for title, of in others.items() if key in of.model_fields] == [section]
    return key if alone else f"{section}.{key}"


def parse_settings(tree: Mapping[str, Any]) -> Settings:
    """Settings from nested or flat keys, as a TOML file holds them."""
    return Settings().replace(dict(flatten(tree)))


def stored_settings(tree: Mapping[str, Any]) -> Settings:
    """Settings as a record of any version holds them: before there was `step2_model` there was `fresh`, and step 1's
    epochs did not count validation samples (docs/decisions/0024). Sections of parts that are not installed are kept."""
    types = section_types()
    if unknown := {title: of for title, of in tree.items() if title not in types and isinstance(of, Mapping)}:
        known = stored_settings({title: tree[title] for title in tree if title not in unknown})
        return _validated({**known.model_dump(), **unknown})
    pens = dict(tree.get("pens", {}))
    if not pens or "step2_model" in pens:
        return parse_settings(tree)
    pens["step2_model"] = "first" if pens.pop("fresh", False) else "last"
    if pens["step1_epochs"] == "auto" and pens["step1_samplings"] > 1:
        pens["step1_epochs"] = 1250 // tree["scenario"]["train_per_peer"] + 1
    return parse_settings({**tree, "pens": pens})


def flat_keys(path: Path) -> dict[str, Any]:
    """The keys that a TOML file sets. Parts' files are looked for beside it."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file. `pens presets` lists the built-in settings.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None
    return dict(flatten(tree, path.parent))


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """`["peers=8", "rotations=0,90", "init=common"]` → a dict of values, each read as TOML or else as a word."""
    values: dict[str, Any] = {}
    assignments = list(assignments)
    _with_parts({name.strip(): value.strip() for name, _, value in (text.partition("=") for text in assignments)})
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise SettingsError(f"--set {text}: expected key=value, for instance --set peers=8")
        section, key = _locate(name.strip())
        values[name.strip()] = _list_value(value.strip()) if _is_list(section, key) else read_value(value.strip())
    return values


def parse_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """3 → (0, 1, 2); a sequence as it is."""
    if isinstance(seeds, int) and seeds > MAX_SEEDS:
        raise SettingsError(f"seeds = {seeds}: at most {MAX_SEEDS:,} seeds are run at once, list those that you want")
    try:
        chosen = (
            tuple(map(operator.index, seeds)) if isinstance(seeds, Iterable) else tuple(range(operator.index(seeds)))
        )
    except TypeError:
        chosen = ()
    if not chosen or len(set(chosen)) < len(chosen) or any(s < 0 for s in chosen):
        raise SettingsError(f"seeds = {seeds!r}: give a number of at least 1, or different seeds of at least 0")
    if len(chosen) > MAX_SEEDS:
        raise SettingsError(f"{len(chosen):,} seeds: at most {MAX_SEEDS:,} are run at once")
    if max(chosen) > MAX_SEED:
        raise SettingsError(f"seed {max(chosen)}: give seeds of at most {MAX_SEED}")
    return chosen


def read_seeds(text: str) -> tuple[int, ...]:
    """Seeds as typed: `4` is a number of seeds, 0 to 3; `1,2,3`, `0-3` and `5-5` are seeds."""
    if _DIGITS.fullmatch(text.strip()):
        return parse_seeds(int(text))
    chosen: list[int] = []
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        if not _DIGITS.fullmatch(first) or (dash and not _DIGITS.fullmatch(last)):
            raise SettingsError(
                f"--seeds {text}: give a number of seeds (4 means 0, 1, 2 and 3), seeds (1,2,3), or a range (0-3)"
            )
        begin, end = int(first), int(last or first)
        if end < begin:
            raise SettingsError(f"--seeds {text}: {part.strip()} is empty, write the smaller seed first")
        if len(chosen) + end - begin >= MAX_SEEDS:
            raise SettingsError(f"--seeds {text}: at most {MAX_SEEDS:,} seeds are run at once")
        chosen += range(begin, end + 1)
    return parse_seeds(chosen)


PARTS: Mapping[str, parts.Registry[Any]] = {
    "scenario.partition": parts.PARTITIONS,
    "gossip.topology": parts.TOPOLOGIES,
    "gossip.merge": parts.MERGE_RULES,
}
"""Settings that name a part. A part that is given by reference has to be found before its section can be read."""


def _with_parts(values: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Flat keys, with references to parts that mean the same in every working directory; these parts are found."""
    found = dict(values)
    for name, registry in PARTS.items():
        for key in (name, name.rpartition(".")[2]):
            if isinstance(found.get(key), str) and parts.is_reference(found[key]):
                found[key] = parts.absolute(found[key], folder)
                registry.find(found[key])
    return found


def _titles_out_of_use(settings: Settings) -> set[str]:
    """Sections that are set of parts that these settings do not name."""
    found: set[str] = set()
    for name, registry in PARTS.items() if settings.__pydantic_extra__ else ():
        section, _, key = name.partition(".")
        used = registry.find(getattr(getattr(settings, section), key)).section
        others = (registry.find(other).section for other in registry.names())
        found |= {other.title for other in others if other is not None and other is not used}
    return found & set(settings.__pydantic_extra__ or {})


def flatten(tree: Mapping[str, Any], folder: Path | None = None) -> Iterable[tuple[str, Any]]:
    """Sections and keys of a file in this folder → `section.key` and values."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, Mapping) else {name: value}
    flat = _with_parts(flat, folder)
    for name, value in tree.items():
        if isinstance(value, Mapping) and name not in _SECTIONS and name not in (others := _sections_of_parts()):
            raise SettingsError(f"unknown section [{name}]{suggest(name, (*_SECTIONS, *others))}")
    return flat.items()


def section_types() -> dict[str, type[Section]]:
    """The class of each section, those of parts included."""
    return {**_OURS, **_sections_of_parts()}


def _sections_of_parts() -> dict[str, type[Section]]:
    """Those that are not fields of `SettingsTree`."""
    found = parts.sections()
    for title in (title for title in found if found[title] is not _OURS.get(title, found[title])):
        raise SettingsError(f"a part has a section [{title}], as pens itself: rename that of the part")
    return {title: of for title, of in found.items() if title not in _OURS}


_OURS: dict[str, type[Section]] = {name: type(field.default) for name, field in Settings.model_fields.items()}
_SECTIONS: dict[str, tuple[str, ...]] = {name: tuple(of.model_fields) for name, of in _OURS.items()}
_SECTION_OF: dict[str, str] = {key: section for section, keys in _SECTIONS.items() for key in keys}
_DIGITS = re.compile(r"[0-9]{1,40}")


def _locate(name: str) -> tuple[str, str]:
    """`n_sampled` or `pens.n_sampled` → ("pens", "n_sampled"). A part's setting needs its section only where another
    part has one of that name."""
    name = str(name)
    section, dot, key = name.rpartition(".")
    if _SECTION_OF.get(key) in ((section,) if dot else _SECTIONS):
        return _SECTION_OF[key], key
    if key == "fresh":
        raise SettingsError(f"{name} is now step2_model: first in place of true, last in place of false")
    others = _sections_of_parts()
    places = [title for title, of in others.items() if key in of.model_fields and section in ("", title)]
    if len(places) == 1:
        return places[0], key
    if places:
        raise SettingsError(f"{key} is a setting of {' and '.join(places)}: write {places[0]}.{key}")
    if key in _SECTION_OF:
        right = _SECTION_OF[key]
        raise SettingsError(f"{key} belongs to [{right}], not to [{section}]: write {right}.{key}, or {key} alone")
    all_of = {**_SECTIONS, **{title: tuple(of.model_fields) for title, of in others.items()}}
    known = [key for keys in all_of.values() for key in keys]
    known += [f"{title}.{key}" for title, keys in all_of.items() for key in keys] if dot else []
    raise SettingsError(f"unknown setting {name!r}{suggest(name, known)} (`pens settings` lists all)")


def _is_list(section: str, key: str) -> bool:
    fields = section_types()[section].model_fields
    return get_origin(fields[key].annotation) is tuple


def _list_value(text: str) -> Any:
    """`0,90`, `0` and `[0, 90]` are lists."""
    value = read_value(text if text.startswith("[") else f"[{text}]")
    return value if isinstance(value, list) else text


def _validated(tree: Mapping[str, Any]) -> Settings:
    """Parts that are named have their section, so that it is on record; those that are not, where it says something."""
    try:
        in_use = _sections_in_use(tree)
        others = {title: _part_section(title, tree[title]) for title in tree if title not in _SECTIONS}
        said = {title: of for title, of in others.items() if title in in_use or of != type(of)()}
        ours = {title: values for title, values in tree.items() if title in _SECTIONS}
        return Settings.model_validate({**ours, **in_use, **said})
    except ValidationError as error:
        problems = [problem(dict(e)) for e in error.errors()]
        raise SettingsError("\n".join(dict.fromkeys(problems))) from None


def _sections_in_use(tree: Mapping[str, Any]) -> dict[str, Section]:
    """The sections of the parts that are named, with their defaults."""
    named = ((registry, tree[name.partition(".")[0]][name.partition(".")[2]]) for name, registry in PARTS.items())
    sections = (registry.find(part).section for registry, part in named if isinstance(part, str))
    return {section.title: section() for section in sections if section is not None}


def _part_section(title: str, values: Any) -> Section:
    try:
        section: Section = _sections_of_parts().get(title, UnknownSection).model_validate(values)
    except ValidationError as error:
        problems = [problem({**e, "loc": (title, *e["loc"])}) for e in error.errors()]
        raise SettingsError("\n".join(dict.fromkeys(problems))) from None
    return section


def problem(error: Mapping[str, Any]) -> str:
    """One pydantic complaint as `key = value: what is allowed`."""
    location = [str(part) for part in error["loc"]]
    name = location[1] if len(location) > 1 else location[0]
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{name} = {error['input']!r}: {message[:1].lower()}{message[1:]}"

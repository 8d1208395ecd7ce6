"""Typed settings: TOML in, every field bounded, unknown keys refused with a suggestion, checked across fields.

Settings are grouped in sections, as in the TOML file, and every key is unique over all sections, so that the command
line can say `--set n_sampled=5` as well as `--set pens.n_sampled=5`. They never change once made: an algorithm that
needs another value asks for it here.

`paper`, where it stands beside a default, means the value comes from the paper's section 5; `docs/decisions/` tells
why where we differ.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pens.errors import SettingsError

Method = Literal["pens", "pens+", "random", "random+", "local", "oracle", "oracle+", "central"]
METHODS: tuple[Method, ...] = get_args(Method)
SELECTING: tuple[Method, ...] = ("pens", "pens+")
"""Those whose peers select their neighbours."""
UNCONNECTED: tuple[Method, ...] = ("local", "central")
"""Those that merge nothing."""
TOLD_CLUSTERS: tuple[Method, ...] = ("oracle", "oracle+")
"""Those that are told the true clusters: upper bounds, which no real peer can reach."""
PLUS: Mapping[Method, Mapping[str, Any]] = {
    "pens+": {"neighbours_by": "groups", "validated": "merged"},
    "random+": {"validated": "merged"},
    "oracle+": {"validated": "merged"},
}
"""What a method with a plus changes of the one without: it validates and tests the merged model. `pens+` also selects
neighbours otherwise and begins step 2 with another model (docs/decisions/0019)."""
Step2Model = Literal["last", "first", "best"]
WireForm = Literal["fp32", "fp16", "int8"]

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """One section of the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class ScenarioSettings(Section):
    """Which data, and how the peers share it (paper, section 3)."""

    dataset: str = "digits"
    rotations: Annotated[tuple[int, ...], Field(min_length=1)] = (0, 180)
    """Degrees, each a multiple of 90; peers are divided evenly among them."""
    peers: Annotated[int, Field(ge=2)] = 20
    train_per_peer: Count = 40
    val_per_peer: Count = 20
    """Held back from training; early stopping and the best model are decided on it (paper: 100)."""
    test: Literal["partitioned", "full"] = "partitioned"
    """partitioned: each rotation tests on its own part of the test set; full: on all of it, rotated."""
    test_samples: Count | None = None
    """At most so many test samples per rotation; None: all."""
    half_turn: Literal["rotation", "flip"] = "rotation"
    """What 180 degrees mean; the authors' code mirrors the image instead of turning it."""

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
    """auto: the data set's own; or digits-cnn, paper-cnn."""
    init: Literal["independent", "common"] = "independent"


class TrainingSettings(Section):
    """Local training (paper, section 4.1: E epochs on the peer's own data). An optimizer begins anew after a merge."""

    optimizer: Literal["adam", "sgd"] = "adam"
    lr: Positive = 1e-3
    momentum: Fraction = 0.0
    weight_decay: NotNegative = 0.0
    batch_size: Count = 8
    epochs: Count = 3
    train_first: bool = True
    """Whether a peer trains before its first exchange (paper). The authors' code merges untrained models."""


class GossipSettings(Section):
    """Algorithm 1, and step 2 of PENS."""

    schedule: Literal["rounds", "async"] = "rounds"
    rounds: Count = 333
    """T: at most so many updates per peer (paper: 333)."""
    pull_from: Literal["snapshot", "latest"] = "snapshot"
    """rounds only. snapshot: all peers pull the models that there are when the round begins. latest: peers take turns,
    so that later ones pull the new models of earlier ones, as in the authors' code; much slower on a GPU."""
    n_peers: Count = 20
    """Models that a peer waits for before it merges (paper: 20)."""
    own_in_merge: bool = True
    """Whether a peer's own model is part of the average."""
    accept: Literal["neighbours", "anyone"] = "neighbours"
    """async only: whose models a peer merges once it has neighbours."""
    wire: WireForm = "fp32"
    """How models travel: fp16 takes half, int8 a quarter of the bytes; receivers get them rounded."""


class PensSettings(Section):
    """Algorithm 2: step 1 of PENS."""

    n_sampled: Count = 10
    m: Count = 2
    step1_rounds: Count = 20
    step1_samplings: Count = 10
    """Samplings per round: each one's top m is counted, the last one's is merged. 200 × 1 is the paper's letter."""
    score_samples: Count | None = None
    """Models are compared on so many random samples of the receiver, drawn anew each time; None: on all."""
    score_on: Literal["train", "val"] = "train"
    """Which of the receiver's samples: its training data (paper), or those that its own model was not fitted to."""
    score_by: Literal["loss", "accuracy"] = "loss"
    """How models are compared: by the lowest loss (paper), or by the highest accuracy (the authors' code)."""
    step1_epochs: Count | Literal["auto", "authors"] = "auto"
    """authors: 1250 // n + 1 epochs, where n is a peer's number of training samples, as in the authors' code. auto: our
    choice, which adds its validation samples to n (docs/decisions/0024). With one sampling per round: `epochs`."""
    expected: Literal["auto", "uniform", "received"] = "auto"
    """What "more than expected" compares with. auto: uniform in rounds, received in async."""
    expected_offset: Annotated[float, Field(ge=-100, le=100)] = 0.0
    """Added to the expected count before a peer's own is compared with it. The authors' code has -1: a peer that is
    selected once less than our rule asks for becomes a neighbour, too."""
    nobody_found: Literal["most-selected", "alone"] = "most-selected"
    """What a peer does that finds no neighbour. most-selected: it takes the m selected most often; alone: it trains
    without others, as in the authors' code."""
    neighbours_by: Literal["expected", "groups"] = "expected"
    """expected: who was selected more often than expected (paper). groups: the counts tell two groups of peers apart,
    those whose models are selected often and those whose are not, and the first are the neighbours."""
    step2_model: Step2Model = "last"
    """What a peer begins step 2 with. last: what step 1 made of its model (paper); first: its untrained model; best:
    that of step 1's models with the lowest validation loss. `pens+`: first where init = common, else best."""
    admit: bool = False
    """async only: whether strangers whose models do well become neighbours in step 2, as late joiners must."""
    admission_trials: Annotated[int, Field(ge=1, le=32)] = 6
    """A stranger is judged at least so often before that."""


class StoppingSettings(Section):
    """Early stopping on local validation data (paper, section 5.4), and which model is tested."""

    stop_on: Literal["accuracy", "loss"] = "accuracy"
    window: Count = 5
    patience: Count = 50
    validated: Literal["trained", "merged"] = "trained"
    """Which of its models a peer validates, and so tests at the end: what training on its own data makes of the average
    (paper), or the average itself, which knows more of the others'. While it trains, it sends the first."""
    tested: Literal["best", "last"] = "best"


class TimingSettings(Section):
    """Virtual time of the async schedule. The unit is arbitrary; only ratios matter."""

    interval: Positive = 1.0
    """Δ of WAIT(Δ)."""
    jitter: Fraction = 0.1
    """Each wait is Δ × (1 ± jitter)."""
    latency: NotNegative = 0.1
    """Time a message is on its way."""
    training_time: Positive = 1.0
    """Time an update of `epochs` epochs takes; other updates in proportion to their epochs."""
    give_up: Positive = 3.0
    """Who has waited give_up times as long as usual merges what it has, so that no starved peer holds up a run."""


class CentralSettings(Section):
    """The `central` baseline: one model on everybody's data. One round is `central_epochs` epochs."""

    central_rounds: Count = 60
    central_epochs: Count = 1
    central_batch_size: Count = 32
    central_window: Count = 1
    """Its validation data are everybody's, so that one result of them can be trusted."""
    central_patience: Count = 15
    central_val_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Of everybody's data, to be validated on; the rest is trained on. None: it keeps to the peers' validation data."""


class EngineSettings(Section):
    """How numbers are computed. Nothing here changes what is computed, beyond rounding."""

    backend: Literal["stack", "loop"] = "stack"
    """stack: all ready peers at once; loop: one after the other, to check against."""
    precision: Literal["fp32", "tf32", "bf16"] = "tf32"
    """Of matrix products on a GPU; weights are always fp32, and a CPU always computes in fp32."""
    max_batch: Annotated[int, Field(ge=0)] = 0
    """At most so many updates at once; 0: all that are ready."""
    compile: Literal["auto", "always", "never"] = "auto"
    """Kernels for a CPU, by its C compiler. auto: where a run is long enough to repay a few seconds."""
    memory_mb: Annotated[int, Field(ge=0)] = 0
    """Bound on a chunk's activations; 0: chosen for the device."""
    seeds_at_once: Annotated[int, Field(ge=0)] = 0
    """So many seeds of a method are computed as one stack; 0: on a GPU all, up to some 2,000 peers; on a CPU one."""
    checkpoint_every_s: NotNegative = 30.0


class Settings(Section):
    """Everything that decides a run, but for its method and seed."""

    scenario: ScenarioSettings = ScenarioSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    gossip: GossipSettings = GossipSettings()
    pens: PensSettings = PensSettings()
    stopping: StoppingSettings = StoppingSettings()
    timing: TimingSettings = TimingSettings()
    central: CentralSettings = CentralSettings()
    engine: EngineSettings = EngineSettings()

    def replace(self, values: Mapping[str, Any]) -> Settings:
        """These settings with some keys changed: `{"peers": 8, "pens.m": 1}`."""
        tree = self.model_dump()
        named: dict[str, str] = {}
        for name, value in values.items():
            section, key = _locate(name)
            if named.setdefault(key, name) != name:
                raise SettingsError(f"{named[key]} and {name} are the same setting: give it once")
            tree[section][key] = value
        return _validated(tree)

    def for_method(self, method: Method) -> Settings:
        """What a method makes of them."""
        if method not in PLUS:
            return self
        begin = {"step2_model": "first" if self.model.init == "common" else "best"} if method == "pens+" else {}
        return self.replace({**PLUS[method], **begin})

    @property
    def step1_epochs(self) -> int:
        """E during step 1 (docs/decisions/0024)."""
        rule, scenario = self.pens.step1_epochs, self.scenario
        if rule not in ("auto", "authors"):
            return int(rule)
        if self.pens.step1_samplings == 1:
            return self.training.epochs
        return 1250 // (scenario.train_per_peer + (scenario.val_per_peer if rule == "auto" else 0)) + 1

    @property
    def resolved(self) -> Settings:
        """With what `auto` means in step 1, so that they say the same in a later version."""
        return self.replace({"step1_epochs": self.step1_epochs, "expected": self.expected})

    @property
    def expected(self) -> Literal["uniform", "received"]:
        if self.pens.expected != "auto":
            return self.pens.expected
        return "uniform" if self.gossip.schedule == "rounds" else "received"


def flat_values(settings: Settings) -> dict[str, Any]:
    """All settings as plain data, without their sections."""
    return {key: value for part in settings.model_dump(mode="json").values() for key, value in part.items()}


def parse_settings(tree: Mapping[str, Any]) -> Settings:
    """Settings from nested or flat keys, as a TOML file holds them."""
    return Settings().replace(dict(flatten(tree)))


def stored_settings(tree: Mapping[str, Any]) -> Settings:
    """Settings as a record of any version holds them: before there was `step2_model` there was `fresh`, and step 1's
    epochs did not count validation samples (docs/decisions/0024)."""
    pens = dict(tree.get("pens", {}))
    if not pens or "step2_model" in pens:
        return parse_settings(tree)
    pens["step2_model"] = "first" if pens.pop("fresh", False) else "last"
    if pens["step1_epochs"] == "auto" and pens["step1_samplings"] > 1:
        pens["step1_epochs"] = 1250 // tree["scenario"]["train_per_peer"] + 1
    return parse_settings({**tree, "pens": pens})


def flat_keys(path: Path) -> dict[str, Any]:
    """The keys that a TOML file sets."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file. `pens presets` lists the built-in settings.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None
    return dict(flatten(tree))


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """`["peers=8", "rotations=[0,90]", "init=common"]` → a dict of values, each read as TOML or else as a word."""
    values: dict[str, Any] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise SettingsError(f"--set {text}: expected key=value, for instance --set peers=8")
        _locate(name.strip())
        values[name.strip()] = _toml_value(value.strip())
    return values


def parse_methods(text: str | Iterable[str]) -> tuple[Method, ...]:
    """`"pens,random"` → ("pens", "random"), each known and named once."""
    try:
        names = [n.strip() for n in (text.split(",") if isinstance(text, str) else map(str, text))]
    except TypeError:
        names = []
    names = [n for n in names if n]
    if not names:
        raise SettingsError(f"no method given: choose from {', '.join(METHODS)}")
    for name in names:
        if name not in METHODS:
            raise SettingsError(f"unknown method {name!r}{suggest(name, METHODS)}: choose from {', '.join(METHODS)}")
    if len(set(names)) < len(names):
        raise SettingsError(f"methods {', '.join(names)}: one of them stands twice, list each once")
    return tuple(m for n in names for m in METHODS if m == n)


def check_scenario(settings: Settings) -> None:
    """Refuse a number of peers that cannot be divided among the rotations."""
    scenario, kinds = settings.scenario, len(settings.scenario.rotations)
    if scenario.peers % kinds:
        below = scenario.peers - scenario.peers % kinds
        near = " or ".join(str(p) for p in (below, below + kinds) if p >= 2)
        raise SettingsError(
            f"peers = {scenario.peers}, but {kinds} rotations need the same number of peers each: use {near}"
        )


def check_methods(settings: Settings, methods: Iterable[Method], num_peers: int, smallest_kind: int) -> None:
    """Refuse what cannot work for these methods, before any work starts. `smallest_kind`: peers of the rarest kind."""
    others, pens = num_peers - 1, settings.pens
    can_hear = f"but each peer can hear at most {others} others: lower it or add peers"
    for method in methods:
        stopping = settings.for_method(method).stopping
        if stopping.validated == "merged" and stopping.tested == "last":
            raise SettingsError(
                f"tested = last, but {method if method in PLUS else 'validated = merged'} tests the best merged model: "
                "set tested = best"
            )
        if method in ("random", "random+") and settings.gossip.n_peers > others:
            raise SettingsError(f"n_peers = {settings.gossip.n_peers}, {can_hear}")
        if method in TOLD_CLUSTERS and smallest_kind < 2:
            raise SettingsError(
                f"{method} with {num_peers} peers leaves some alone in their cluster: add peers or omit {method}"
            )
        if method in SELECTING and others < 2:
            raise SettingsError(
                f"{method} compares models, but {num_peers} peers hear {others} other: use at least 3 peers"
            )
        if method in SELECTING and pens.n_sampled > others:
            raise SettingsError(f"n_sampled = {pens.n_sampled}, {can_hear}")
        if method in SELECTING and pens.m > pens.n_sampled:
            raise SettingsError(
                f"m = {pens.m}, but only n_sampled = {pens.n_sampled} models are compared: lower m or raise n_sampled"
            )
        if method in SELECTING and pens.m == pens.n_sampled:
            raise SettingsError(
                f"m = n_sampled = {pens.m}: every sampled model would be chosen, and nobody more often than expected: "
                "lower m or raise n_sampled"
            )


def flatten(tree: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Sections and keys of a file → `section.key` and values."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            if name not in _SECTIONS:
                raise SettingsError(f"unknown section [{name}]{suggest(name, _SECTIONS)}")
            yield from ((f"{name}.{key}", v) for key, v in value.items())
        else:
            yield name, value


_SECTIONS: dict[str, tuple[str, ...]] = {
    name: tuple(type(field.default).model_fields) for name, field in Settings.model_fields.items()
}
_SECTION_OF: dict[str, str] = {key: section for section, keys in _SECTIONS.items() for key in keys}


def _locate(name: str) -> tuple[str, str]:
    """`n_sampled` or `pens.n_sampled` → ("pens", "n_sampled")."""
    name = str(name)
    section, dot, key = name.rpartition(".")
    if key not in _SECTION_OF or (dot and _SECTION_OF[key] != section):
        if key == "fresh":
            raise SettingsError(f"{name} is now step2_model: first in place of true, last in place of false")
        known = [*_SECTION_OF, *(f"{s}.{k}" for k, s in _SECTION_OF.items())] if dot else list(_SECTION_OF)
        raise SettingsError(
            f"unknown setting {name!r}{suggest(name, known)} (`pens presets digits` shows all settings)"
        )
    return _SECTION_OF[key], key


def suggest(name: str, known: Iterable[str]) -> str:
    """What somebody may have meant, as the end of a message."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def _toml_value(text: str) -> Any:
    if "#" in text or "\n" in text:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return None if text == "none" else text


def _validated(tree: Mapping[str, Any]) -> Settings:
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        problems = [problem(dict(e)) for e in error.errors()]
        raise SettingsError("\n".join(dict.fromkeys(problems))) from None


def problem(error: Mapping[str, Any]) -> str:
    """One pydantic complaint as `key = value: what is allowed`."""
    location = [str(part) for part in error["loc"]]
    name = location[1] if len(location) > 1 else location[0]
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{name} = {error['input']!r}: {message[:1].lower()}{message[1:]}"

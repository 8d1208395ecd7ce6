# SPDX-License-Identifier: Apache-2.0
"""The sections of pens itself, with every setting: its type, its bounds, its default and its explanation.

Settings are grouped in sections, as in the TOML file, and every key is unique over all sections, so that the command
line accepts both `--set n_sampled=5` and `--set pens.n_sampled=5`.

`paper` beside a default means that the value comes from section 5 of the paper; `docs/decisions/` explains other
choices.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, field_validator

from pens import parts
from pens.errors import SettingsError
from pens.settings.section import Count, Fraction, NotNegative, Positive, Section

S = TypeVar("S", bound="Section")
WireForm = Literal["fp32", "fp16", "int8"]
Interpolation = Literal["bilinear", "nearest"]
Distance = Literal["cosine-weights", "cosine-update", "l2"]
"""How far models lie from each other, without any data (`pens.engine.distances`)."""
Score = Literal["loss", "accuracy", "cosine-weights", "cosine-update", "l2"]
"""How others' models are compared: on the receiver's own samples, or by how far they lie from its own model."""
Keep = Literal["last", "first", "best"]
"""Which model a peer keeps aside, beside its newest one, for a later update to begin with. last: none. first: its own
as it was before the first update that says so. best: of that one and of those that are validated from then on, the one
with the lowest validation loss, where that of the first counts as infinite."""


class DataSettings(Section):
    """The data: a data set that a partition shares out among peers, or own peers that have their data already."""

    source: str = "digits"
    """Where data come from: digits, fashion-mnist or cifar-10 (`pens data` shows where they are), a data set of an
    installed package, or own data: table.csv, table.parquet, a folder of images by peer and class, archive.npz,
    hf:NAME, or a function as file.py:name or module:name. A file's path is relative to the settings' file."""
    partition_file: str | None = None
    """A file that says which samples each peer holds, in place of a partition or a column of peers: split.json,
    {peer: [indices]}, or split.parquet, with columns peer and index (docs/own-data.md). none: there is no such file."""
    peer_column: str = "peer"
    """Own tables and archives: the column that names each sample's peer."""
    target_column: Annotated[tuple[str, ...], Field(min_length=1)] = ("label",)
    """Own tables: the column that is to be predicted; several, where a sample has several targets."""
    ignore_columns: tuple[str, ...] = ()
    """Own tables: columns that are neither features nor anything else, such as the numbers of patients."""
    val_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Own data: the share of a peer's samples that is split off for validation, where no validation data are given."""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Own data: likewise for tests."""
    num_classes: Annotated[int, Field(ge=2)] | None = None
    """How many classes there are in the whole federation, where the data may lack some; none: those of the data."""
    classes: tuple[str, ...] = ()
    """Own data: all classes in their order, where peers may lack some; empty: those of the data, in sorted order."""
    image_size: Count | None = None
    """Folders of images: images are brought to so many pixels a side; none: as they are."""
    standardise: Literal["auto", "yes", "no"] = "auto"
    """Own data: whether each peer's inputs are shifted and scaled by the means and deviations of its own training data.
    auto: those of tables are."""

    @property
    def is_own(self) -> bool:
        """Whether who holds what is known only when the source was read, and is not for a partition alone to say."""
        return parts.is_place(self.source) or self.partition_file is not None


class ScenarioSettings(Section):
    """How peers share a data set (paper, section 3). Own peers have their data already."""

    partition: str = "rotation"
    """How the data are divided among peers (`pens settings dirichlet` explains the settings of one partition)."""
    rotations: Annotated[tuple[int, ...], Field(min_length=1)] = (0, 180)
    """By how many degrees each cluster's images are turned, counter-clockwise: partitions rotation, with equally many
    peers for each, and groups, and the shift rotation. Any whole number; multiples of 90 only move pixels."""
    peers: Annotated[int, Field(ge=2)] = 20
    """The number of peers; with rotation the same number for each of the rotations (paper: 100)."""
    train_per_peer: Count = 40
    """Training samples of each peer (paper: 400 on CIFAR-10, 500 on Fashion-MNIST)."""
    val_per_peer: Count = 20
    """Validation samples of each peer, on which early stopping and the best model are decided (paper: 100)."""
    test: Literal["partitioned", "full"] = "partitioned"
    """Test data. partitioned: each cluster, or each peer where there are no clusters, has its own part of the test set;
    full: each draws from all of it, rotated where it has a rotation."""
    test_samples: Count | None = None
    """The largest number of test samples per cluster, or per peer where there are no clusters; none: no limit."""
    half_turn: Literal["rotation", "flip"] = "rotation"
    """What a rotation by 180 degrees means; the authors' code mirrors the image instead of turning it."""
    interpolation: Interpolation = "bilinear"
    """How values between pixels are found where images are turned by another angle than a multiple of 90; corners
    become 0, mid-grey in built-in data sets. nearest: the nearest pixel's, as in the published code of DAC."""

    @field_validator("rotations")
    @classmethod
    def _each_once(cls, rotations: tuple[int, ...]) -> tuple[int, ...]:
        if len({angle % 360 for angle in rotations}) < len(rotations):
            raise ValueError("two of these are the same rotation: list each once")
        return rotations


class ModelSettings(Section):
    """The network and how its weights start."""

    net: str = "auto"
    """The network: digits-cnn, digits-cnn-bn (the same with batch normalisation), paper-cnn, gn-lenet (of others),
    mlp, auto (one that suits the data), one of an installed package, or your own as file.py:Name or module:Name, which
    is given `shape` and `num_classes` where it has such arguments."""
    init: Literal["independent", "common"] = "independent"
    """Whether each peer begins with random weights of its own, or all with the same ones (paper: both)."""
    batch_norm: Literal["local", "merged"] = "local"
    """local: each peer keeps its own scales, shifts and running statistics of batch normalisation when it merges models
    (FedBN, Li et al. 2021); merged: they are merged like all else."""
    task: str = "classification"
    """What the network learns: its loss, its metrics, and what targets look like (docs/decisions/0033); or your own, as
    file.py:name or module:name."""

    @field_validator("task")
    @classmethod
    def _from_anywhere(cls, part: str) -> str:
        return parts.absolute(part) if parts.is_reference(part) else part


class TrainingSettings(Section):
    """Local training (paper, section 4.1: E epochs on the peer's own data). An optimizer begins anew after a merge."""

    optimizer: Literal["adam", "sgd"] = "adam"
    """The optimizer of local training (docs/decisions/0001)."""
    lr: Positive = 1e-3
    """Learning rate (paper: 0.001)."""
    momentum: Fraction = 0.0
    """Momentum of sgd; adam does not use it."""
    weight_decay: NotNegative = 0.0
    """The strength with which weights are pulled towards zero; 0: not at all (docs/decisions/0022)."""
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
    """T: the largest number of updates per peer (paper: 333)."""
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
    """How a peer's own model and those that it received become one (docs/decisions/0028)."""
    merge_only: tuple[str, ...] = ()
    """Merge only parameters and buffers whose names begin with one of these, up to a dot: layers.1 means
    layers.1.weight, and not layers.10.weight. The others keep the peer's own values and are not sent, unless the method
    scores models, as pens and dac do; real peers send zeros in their place. Empty: all are merged."""
    wire: WireForm = "fp32"
    """The form of models in messages: fp16 takes half of the bytes, int8 a quarter; receivers get rounded models."""

    @field_validator("merge", "topology")
    @classmethod
    def _from_anywhere(cls, part: str) -> str:
        return parts.absolute(part) if parts.is_reference(part) else part


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
    """The number of random samples of the receiver on which models are compared, drawn anew each time; none: all
    samples."""
    score_on: Literal["train", "val"] = "train"
    """On which of the receiver's samples models are compared: its training data (paper), or its validation data, to
    which its own model was not fitted. Distances between models (`score`) use no samples."""
    score: Score = "loss"
    """How models are compared in step 1 (docs/decisions/0041). On the receiver's samples: by the lowest loss (paper),
    or by the highest accuracy (the authors' code), or metric: the main metric of the task, by its direction. Without
    samples, by how near they lie to the receiver's own model: cosine-weights, the angle between the models;
    cosine-update, the angle between what training changed since the model that all began with, which needs
    init = common; l2, the length of their difference. Late joiners (`admit`) are judged by losses in any case."""
    step1_epochs: Count | Literal["auto", "authors"] = "auto"
    """authors: 1250 // n + 1 epochs, where n is a peer's number of training samples, as in the authors' code. auto: our
    choice, which adds its validation samples to n (docs/decisions/0024). Peers with unequal numbers of samples train
    unequal numbers of epochs. With one sampling per round: `epochs`."""
    expected: Literal["auto", "uniform", "received"] = "auto"
    """The expected count in "more often than expected". auto: uniform in rounds, received in async."""
    expected_offset: Annotated[float, Field(ge=-100, le=100)] = 0.0
    """Added to the expected count before a peer's own is compared with it. The authors' code has -1: a peer that is
    selected once less than our rule asks for becomes a neighbour, too."""
    nobody_found: Literal["most-selected", "alone"] = "most-selected"
    """What a peer does if it finds no neighbour. most-selected: it takes the m selected most often; alone: it trains
    without others, as in the authors' code."""
    neighbours_by: Literal["expected", "groups", "levels"] = "expected"
    """expected: the peers that were selected more often than expected are the neighbours (paper). groups: the counts
    of selections are split into two groups, and the peers of the group with the higher counts are the neighbours.
    levels: peers are split into groups by how low the losses of their models were beside those they were compared
    with, and the peers of the lowest group are the neighbours (docs/decisions/0040)."""
    step2_model: Keep = "last"
    """What a peer begins step 2 with. last: what step 1 made of its model (paper); first: its untrained model; best:
    that of step 1's models with the lowest validation loss. `pens+`: first where init = common, else best."""
    alone_rounds: Annotated[int, Field(ge=0)] = 0
    """How many updates a peer trains without others between step 1 and step 2. The best model of these is tested where
    the peer's validation data prefer it to all that gossip brings, so that no peer is worse off than alone."""
    admit: bool = False
    """async only, refused in rounds: whether peers that join late can become neighbours in step 2, if their models do
    well."""
    admission_trials: Annotated[int, Field(ge=1, le=32)] = 6
    """With admit: how many models of a late joiner are compared before it can become a neighbour."""

    @field_validator("score", mode="before")
    @classmethod
    def _main_metric(cls, value: Any) -> Any:
        return "accuracy" if value == "metric" else value


class StoppingSettings(Section):
    """Early stopping on local validation data (paper, section 5.4), and which model is tested."""

    stop_on: Literal["accuracy", "loss"] = "accuracy"
    """What must improve on validation data for a peer to go on. accuracy, or metric: the main metric of the task, by
    its direction."""
    window: Count = 5
    """The number of updates whose mean is compared to judge improvement."""
    patience: Count = 50
    """The number of updates without improvement after which a peer stops."""
    validated: Literal["trained", "merged", "either"] = "trained"
    """Which model a peer validates, and so tests at the end: trained, the locally fine-tuned model (paper); merged, the
    merged model before fine-tuning; either: both, and the one that its own validation data prefer is tested. A peer
    sends its fine-tuned model in all cases."""
    tested: Literal["best", "last"] = "best"
    """Which of its models a peer tests at the end: the best on its validation data, or the last."""

    @field_validator("stop_on", mode="before")
    @classmethod
    def _main_metric(cls, value: Any) -> Any:
        return "accuracy" if value == "metric" else value


class TimingSettings(Section):
    """Virtual time of the async schedule. The unit is arbitrary; only ratios matter."""

    interval: Positive = 1.0
    """Δ of WAIT(Δ): the time between two models that a peer sends."""
    jitter: Fraction = 0.1
    """The variation of waits: each is Δ × (1 ± jitter)."""
    latency: NotNegative = 0.1
    """The time that a message takes."""
    training_time: Positive = 1.0
    """The time that an update of `epochs` epochs takes; other updates take time in proportion to their epochs."""
    give_up: Positive = 3.0
    """A peer that has waited this many times the usual time merges the models that it has, so that it does not hold up
    a run."""


class TrustSettings(Section):
    """How far a peer trusts the models of others (docs/decisions/0081)."""

    gate: Literal["auto", "on", "off"] = "auto"
    """on: copies and absurdly large models count for nothing, models that make a merge clearly worse on the peer's own
    validation data are left out of it, and whoever keeps sending such models is dropped for a while. off: all models
    are taken as they are. auto: on for real peers, off in the simulator."""
    gate_margin: NotNegative = 2.0
    """A merge, or a model, is clearly worse than the peer's own model where its validation loss is higher by more than
    so many standard errors of the mean difference."""
    strikes: Count = 3
    """A peer drops another after so many models that hurt, if more than half of the latest (at most twice as many)
    did."""
    dropped_for: Count = 20
    """For so many of the peer's merges nothing of a dropped peer is taken; each time twice as many."""


class AttackSettings(Section):
    """Peers that do harm, in simulations: how robust a method is. All metrics are of the other peers."""

    attack: str = "none"
    """What some peers send in place of their models, or train on in place of their data (docs/decisions/0081)."""
    attackers: Count = 1
    """How many peers attack: random ones, the same for all seeds."""
    attacking: tuple[int, ...] = ()
    """Which peers attack, by their numbers; empty: as many as `attackers` says."""

    @field_validator("attack")
    @classmethod
    def _from_anywhere(cls, part: str) -> str:
        return parts.absolute(part) if parts.is_reference(part) else part


class CentralSettings(Section):
    """The `central` baseline: one model trained on the data of all peers. One round is `central_epochs` epochs."""

    title = "central"

    central_rounds: Count = 60
    """`rounds` of this method: the largest number of rounds."""
    central_epochs: Count = 1
    """`epochs` of this method: epochs per round."""
    central_batch_size: Count = 32
    """`batch_size` of this method: samples per step."""
    central_window: Count = 1
    """`window` of this method. The validation data of all peers are pooled, so that a single result can be trusted."""
    central_patience: Count = 15
    """`patience` of this method."""
    central_val_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The share of all data that is used for validation; the rest is trained on. none: the peers' validation data."""


class EngineSettings(Section):
    """How numbers are computed. Nothing here changes what is computed, beyond rounding."""

    backend: Literal["stack", "loop"] = "stack"
    """stack: trains all ready peers at once; loop: one after the other, slower, to check against."""
    precision: Literal["fp32", "tf32", "bf16"] = "tf32"
    """Precision of matrix products on a GPU; weights are always fp32, and a CPU always computes in fp32."""
    max_batch: Annotated[int, Field(ge=0)] = 0
    """The largest number of updates computed at once; 0: all that are ready."""
    compile: Literal["auto", "always", "never"] = "auto"
    """Whether the C compiler makes kernels for this CPU. auto: where a run is long enough to repay a few seconds."""
    memory_mb: Annotated[int, Field(ge=0)] = 0
    """The bound on the memory for activations of a chunk of models, in MB; 0: chosen for the device."""
    seeds_at_once: Annotated[int, Field(ge=0)] = 0
    """The number of seeds of a method that are computed as one stack; 0: on a GPU all, up to some 2,000 peers; on a CPU
    one."""
    checkpoint_every_s: NotNegative = 30.0
    """Seconds between two checkpoints of a run, from which it resumes; 0: after every step."""


class SettingsTree(BaseModel):
    """All sections. Sections of parts are not fields; `section` returns them."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, SerializeAsAny[Section]] = Field(init=False)

    data: DataSettings = DataSettings()
    scenario: ScenarioSettings = ScenarioSettings()
    model: ModelSettings = ModelSettings()
    training: TrainingSettings = TrainingSettings()
    gossip: GossipSettings = GossipSettings()
    pens: PensSettings = PensSettings()
    stopping: StoppingSettings = StoppingSettings()
    timing: TimingSettings = TimingSettings()
    trust: TrustSettings = TrustSettings()
    attack: AttackSettings = AttackSettings()
    central: CentralSettings = CentralSettings()
    engine: EngineSettings = EngineSettings()

    def section(self, of: type[S]) -> S:
        """A part's section: what is set, or its defaults."""
        found = getattr(self, of.title, None) if of.title else None
        if isinstance(found, of):
            return found
        if parts.sections().get(of.title) is not of:
            raise SettingsError(
                f"settings.section({of.__name__}): no part has this section, so that nobody could set anything in it: "
                f"write `section = {of.__name__}` in the class of the part"
            )
        return of()

    @property
    def step1_epochs(self) -> int:
        """E during step 1 for peers that hold the numbers of samples of the scenario."""
        return epochs_of_step1(self, self.scenario.train_per_peer, self.scenario.val_per_peer)

    @property
    def expected(self) -> Literal["uniform", "received"]:
        if self.pens.expected != "auto":
            return self.pens.expected
        return "uniform" if self.gossip.schedule == "rounds" else "received"


def epochs_of_step1(settings: SettingsTree, train: int, val: int) -> int:
    """E during step 1 for a peer with these numbers of training and validation samples (docs/decisions/0024)."""
    rule = settings.pens.step1_epochs
    if rule not in ("auto", "authors"):
        return int(rule)
    if settings.pens.step1_samplings == 1:
        return settings.training.epochs
    return 1250 // (train + (val if rule == "auto" else 0)) + 1

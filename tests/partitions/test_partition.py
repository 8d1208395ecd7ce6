# SPDX-License-Identifier: Apache-2.0
"""Partitions as parts: found, checked, stored; and what a federation is whose clusters nobody knows."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import pens
from pens.command_line.main import main
from pens.data.samples import Dataset, Samples
from pens.data.scenarios import Federation, PeerData
from pens.errors import DataError, Interrupted, NotEnoughData, RunDirError, SettingsError
from pens.experiment.observer import Observer
from pens.experiment.presets import default_methods
from pens.methods.method import Participants
from pens.methods.names import check_methods, participants
from pens.paper.cells import paper_accuracy
from pens.paper.departures import departures
from pens.paper.exhibits import EXHIBITS
from pens.partitions.dirichlet import DirichletSettings
from pens.partitions.partition import Partition, build_federation, check_enough, data_words, partition_of
from pens.parts import PARTITIONS
from pens.planning.identity import identity
from pens.planning.store import folder_name
from pens.report.rerun import nearest_preset
from pens.reproduce.keep import _unlike
from pens.settings.catalogue import as_toml, find
from pens.settings.reading import flat_keys, parse_assignments, parse_settings
from pens.settings.tree import Settings
from tests.conftest import TinyNet, tiny_dataset

OWN = """
from typing import ClassVar
import pens
from pens.settings.section import Count, Section

class StrideSettings(Section):
    '''Every so many samples.'''
    title: ClassVar[str] = "stride"
    step: Count = 2
    '''How far.'''

class Stride(pens.Partition):
    name = "stride"
    about = "every so many samples"
    section = StrideSettings

    def build(self, dataset, settings, seed):
        scenario, step = settings.scenario, settings.section(StrideSettings).step
        each = scenario.train_per_peer + scenario.val_per_peer
        peers = []
        for peer in range(scenario.peers):
            mine = dataset.train.take(slice(peer * each, (peer + 1) * each))
            cut = scenario.train_per_peer
            peers.append(pens.PeerData(mine.take(slice(cut)), mine.take(slice(cut, None))))
        test = dataset.test.take(slice(None, None, step))
        return pens.Federation(tuple(peers), None, (test,), tested_on=(0,) * len(peers))

    def describe(self, settings):
        return f"stride {settings.section(StrideSettings).step}"
"""


@pytest.fixture(autouse=True)
def _forget_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions that a test gives by reference are known to it alone."""
    monkeypatch.setattr(PARTITIONS, "_references", {})
    monkeypatch.setattr(PARTITIONS, "_found", {})


def own_file(folder: Path) -> Path:
    path = folder / "stride.py"
    path.write_text(OWN)
    return path


# --- settings ---------------------------------------------------------------------------------------------------------


def test_ours_are_found_and_say_what_they_are() -> None:
    assert PARTITIONS.names() == ("rotation", "groups", "dirichlet", "shards", "product")
    for name in PARTITIONS.names():
        partition = PARTITIONS.find(name)
        assert partition.name == name
        assert partition.about
        assert partition.describe(Settings())
    with pytest.raises(SettingsError, match="unknown partition 'dirichlt', did you mean 'dirichlet'"):
        Settings().replace({"partition": "dirichlt"})
    with pytest.raises(SettingsError, match="partition = 3: input should be a valid string"):
        Settings().replace({"partition": 3})


def test_the_section_of_the_partition_is_on_record_and_others_only_where_they_say_something() -> None:
    skewed = Settings().replace({"partition": "dirichlet"})
    assert skewed.model_dump()["dirichlet"] == {"alpha": DirichletSettings().alpha}
    assert parse_settings(skewed.model_dump(mode="json")) == skewed
    assert Settings().replace({"shards_per_peer": 2}) == Settings()
    both = skewed.replace({"shards_per_peer": 3})
    assert both.model_dump()["shards"] == {"shards_per_peer": 3}
    assert "shards" not in both.explicit.model_dump()
    assert identity(both) == identity(skewed) != identity(skewed.replace({"alpha": 0.5}))
    assert both.replace({"partition": "shards"}).explicit.model_dump()["shards"] == {"shards_per_peer": 3}
    assert parse_settings(tomllib.loads(as_toml(Settings()))) == Settings()
    assert parse_settings(tomllib.loads(as_toml(both))) == both


def test_what_a_partition_reads_is_explained_under_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert {entry.key for entry in find("rotation")} == {"rotations", "half_turn", "interpolation", "test"}
    assert {entry.key for entry in find("groups")} == {"sizes", "rotations", "half_turn", "interpolation", "test"}
    (entry,) = find("partition")
    assert entry.choices == PARTITIONS.names()
    assert "your own as file.py:name or module:name" in entry.allowed
    for name in PARTITIONS.names():
        assert f"{name}: {PARTITIONS.find(name).about}." in entry.about
    with pytest.raises(SystemExit) as ended:
        main(["settings", "alpha"])
    assert not ended.value.code
    assert "dirichlet.alpha" in capsys.readouterr().out


def test_an_own_partition_is_named_in_toml_or_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own_file(tmp_path)
    (tmp_path / "mine.toml").write_text('[scenario]\npartition = "stride.py:Stride"\n[stride]\nstep = 3\n')
    from_file = Settings().replace(flat_keys(tmp_path / "mine.toml"))
    assert from_file.scenario.partition == f"{path}:Stride"
    assert partition_of(from_file).name == "stride"
    assert data_words(from_file) == "digits, stride 3"
    monkeypatch.chdir(tmp_path)
    typed = Settings().replace(parse_assignments(["step=3", "partition=stride.py:Stride"]))
    assert typed == from_file == parse_settings(from_file.model_dump(mode="json"))
    _, changes = nearest_preset(typed.replace({"step": 4}))
    assert (changes["partition"], changes["step"]) == (f"{path}:Stride", 4)
    with pytest.raises(SettingsError, match="there is no file"):
        Settings().replace({"partition": "missing.py:Stride"})


# --- checks -----------------------------------------------------------------------------------------------------------


def test_methods_that_are_told_the_clusters_need_some() -> None:
    skewed = Settings().replace({"partition": "dirichlet"})
    for method in ("oracle", "oracle+"):
        with pytest.raises(SettingsError, match=rf"{method[:6]}.* the partition of these data has no clusters: omit"):
            check_methods(skewed, [method], participants(skewed))
    own = Settings().replace({"partition": f"{__name__}:Made"})
    with pytest.raises(
        SettingsError, match="where it is your own and knows the clusters, define `cluster_sizes` in it"
    ):
        check_methods(own, ["oracle"], participants(own))
    check_methods(skewed, default_methods(None), Participants(21, None))
    assert default_methods(None) == ("local", "random", "pens")
    assert default_methods(10) == ("local", "random", "pens", "oracle")


def samples(count: int) -> Samples:
    return Samples(np.zeros((count, 2), np.float32), np.zeros(count, np.int64))


class Made(Partition):
    """Builds whatever it is told to."""

    name = "made"
    about = "a test"
    federation: object = None

    def build(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        return self.federation  # type: ignore[return-value]


class Promising(Made):
    name = "promising"

    def cluster_sizes(self, settings: Settings) -> dict[str, int]:
        return {"a": 2, "b": 3}


def test_what_a_partition_builds_is_checked() -> None:
    peer = PeerData(samples(1), samples(1))
    made, promising = (f"{__name__}:{name}" for name in ("Made", "Promising"))
    two = Settings().replace({"peers": 2, "train_per_peer": 1, "val_per_peer": 1})

    def built(reference: str, federation: object) -> Federation:
        settings = two.replace({"partition": reference})
        partition_of(settings).federation = federation  # type: ignore[attr-defined]
        return build_federation(Dataset("few", samples(4), samples(4)), settings, 0)

    whole = Federation((peer, peer), None, (samples(1), samples(1)))
    assert built(made, whole) is whole
    assert partition_of(two.replace({"partition": made})).describe(two) == "made"
    assert partition_of(two.replace({"partition": promising})).smallest_cluster(two) == 2
    with pytest.raises(DataError, match=r"partition made built a int: return a pens\.Federation"):
        built(made, 3)
    with pytest.raises(DataError, match="partition made built 1 peers, but peers = 2: set peers"):
        built(made, Federation((peer,), None, (samples(1),)))
    with pytest.raises(DataError, match="partition promising has clusters by its `cluster_sizes`, but"):
        built(promising, whole)
    with pytest.raises(DataError, match=r"= 8 samples, but few has 4: at most train_per_peer = 1 would fit"):
        build_federation(
            Dataset("few", samples(4), samples(4)), two.replace({"partition": made, "train_per_peer": 3}), 0
        )


class Stingy(Partition):
    name = "stingy"
    about = "gives the second peer nothing"

    def build(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        if seed:
            np.random.default_rng().integers(0, 0)  # fails in compiled code, whose frames name no folder
        return Federation((PeerData(samples(1), samples(0)),), None, ())


def test_refused_data_name_the_partition_and_the_line() -> None:
    settings = Settings().replace({"peers": 2, "train_per_peer": 1, "val_per_peer": 1})
    settings = settings.replace({"partition": f"{__name__}:Stingy"})
    few = Dataset("few", samples(4), samples(4))
    place = r"\(/.*test_partition\.py, line \d+\)$"
    with pytest.raises(DataError, match=f"^partition stingy: a peer has 1 training and 0 validation .* both {place}"):
        build_federation(few, settings, 0)
    with pytest.raises(SettingsError, match=f"^partition stingy: its build failed: ValueError: .* {place}"):
        build_federation(few, settings, 1)


def test_sizes_of_no_clusters_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings().replace({"partition": f"{__name__}:Promising"})
    wrong: tuple[object, ...] = ({}, 3)
    for sizes in wrong:
        monkeypatch.setattr(Promising, "cluster_sizes", lambda self, settings, sizes=sizes: sizes)
        with pytest.raises(SettingsError, match=r"partition promising: its cluster_sizes returned .*, or None where"):
            partition_of(settings).smallest_cluster(settings)


def of_numbers(value: float, label: int = 0) -> Samples:
    return Samples(np.array([[0.0, value]], np.float32), np.array([label]))


@pytest.mark.parametrize(
    ("clusters", "names", "wrong", "reason"),
    [
        (
            (0, 1),
            ("a", "b"),
            of_numbers(1),
            r"clusters a \(2\), b \(3\) by its `cluster_sizes`.* built a \(1\), b \(1\)",
        ),
        (None, (), of_numbers(math.nan), "partition made: the validation inputs of peer 1: 1 of 1 samples hold NaN"),
        (
            None,
            (),
            of_numbers(math.inf),
            "partition made: the validation inputs of peer 1: 1 of 1 samples hold NaN, inf",
        ),
        (
            None,
            (),
            of_numbers(0, 5),
            "built samples with label 5, but the labels of few are 0 to 0: keep to its classes",
        ),
    ],
)
def test_values_and_clusters_that_a_partition_builds_are_checked(
    clusters: tuple[int, ...] | None, names: tuple[str, ...], wrong: Samples, reason: str
) -> None:
    settings = Settings().replace({"peers": 2, "train_per_peer": 1, "val_per_peer": 1})
    settings = settings.replace({"partition": f"{__name__}:{'Promising' if clusters else 'Made'}"})
    peers = PeerData(samples(1), samples(1)), PeerData(samples(1), wrong)
    partition_of(settings).federation = Federation(peers, clusters, (samples(1),) * 2, names)  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=reason):
        build_federation(Dataset("few", samples(4), samples(4)), settings, 0)


def test_two_clusters_of_one_name_are_refused() -> None:
    peer = PeerData(samples(1), samples(1))
    with pytest.raises(DataError, match="two clusters are called 'a': give each a name of its own"):
        Federation((peer, peer), (0, 1), (samples(1), samples(1)), ("a", "a"))


class Silent(Made):
    name = "silent"

    def describe(self, settings: Settings) -> str:
        return None  # type: ignore[return-value]


class Failing(Made):
    name = "failing"

    def build(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        raise KeyError("no")


def test_what_else_a_partition_says_is_checked() -> None:
    peer = PeerData(samples(1), samples(1))
    settings = Settings().replace({"peers": 2, "train_per_peer": 1, "val_per_peer": 1})
    silent, failing = (settings.replace({"partition": f"{__name__}:{name}"}) for name in ("Silent", "Failing"))
    partition_of(silent).federation = Federation((peer, peer), None, (samples(1),) * 2)  # type: ignore[attr-defined]
    few = Dataset("few", samples(4), samples(4))
    with pytest.raises(
        SettingsError, match=r"partition silent: its describe returned None: return a few words, as a text"
    ):
        build_federation(few, silent, 0)
    with pytest.raises(
        SettingsError, match=r"partition failing: its build failed: KeyError: 'no' \(.*test_partition.py"
    ):
        build_federation(few, failing, 0)


class Drifting(Made):
    """Draws from a generator that no seed determines, or from whatever a test says."""

    name = "drifting"
    numbers: Iterator[int] = count()

    def build(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        peer = PeerData(of_numbers(next(self.numbers)), samples(1))
        return Federation((peer,) * settings.scenario.peers, None, (samples(2),) * settings.scenario.peers)


class Stop(Observer):
    def progressed(self, method: str, seed: int, fraction: float) -> None:
        raise Interrupted("enough")


def test_a_run_never_goes_on_with_other_data(tmp_path: Path) -> None:
    values = {"partition": f"{__name__}:Drifting", "peers": 2, "train_per_peer": 1, "val_per_peer": 1, "rounds": 9}
    given = {"methods": "local", "data": Dataset("few", samples(4), samples(4)), "device": "cpu", "model": Tiny}
    with pytest.raises(DataError, match="partition drifting built two different federations for seed 0: draw"):
        pens.run(values, **given)  # type: ignore[arg-type]
    Drifting.numbers = chain([1] * 2, [2] * 9)
    with pytest.raises(Interrupted):
        pens.run(values, **given, out=tmp_path / "run", observer=Stop())  # type: ignore[arg-type]
    with pytest.raises(RunDirError, match="it was begun with other data than are there now"):
        pens.resume(tmp_path / "run", data=Dataset("few", samples(4), samples(4)), model=Tiny, device="cpu")


class Tiny(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 1))


def test_two_federations_have_one_fingerprint_where_they_hold_the_same() -> None:
    def made(value: float, label: int = 0, clusters: tuple[int, ...] | None = None, test: int = 1) -> str:
        peers = PeerData(samples(1), samples(2)), PeerData(of_numbers(value, label), samples(1))
        names = ("a", "b") if clusters else ()
        return Federation(peers, clusters, (samples(1), samples(test)), names).fingerprint

    assert made(0.5) == made(0.5)
    assert (
        len({made(0.5), made(0.25), made(0.5, 1), made(0.5, 0, (0, 1)), made(0.5, 0, (1, 0)), made(0.5, test=2)}) == 6
    )


@pytest.mark.parametrize(
    ("there", "peers", "train", "remedy"),
    [
        (9, 3, 3, "at most train_per_peer = 2 or peers = 2 would fit"),
        (9, 3, 2, ""),
        (7, 3, 3, "at most train_per_peer = 1 would fit"),  # peers = 1 is no federation
        (5, 3, 1, "at most peers = 2 would fit"),
        (3, 2, 1, "it is too small for this scenario"),
    ],
)
def test_a_data_set_that_is_too_small_names_what_would_fit(there: int, peers: int, train: int, remedy: str) -> None:
    """Each peer has one validation sample."""
    settings = Settings().replace({"peers": peers, "train_per_peer": train, "val_per_peer": 1})
    dataset = Dataset("few", samples(there), samples(4))
    if not remedy:
        check_enough(dataset, settings.scenario)
        return
    with pytest.raises(NotEnoughData) as error:
        check_enough(dataset, settings.scenario)
    assert str(error.value).endswith(f"but few has {there}: {remedy}")


def test_rotation_refuses_numbers_of_peers_and_data_sets_before_anything_is_built() -> None:
    rotation = PARTITIONS.find("rotation")
    settings = Settings().replace({"rotations": [0, 180], "peers": 3, "train_per_peer": 1, "val_per_peer": 1})
    for peers, rotations, near in ((3, [0, 180], "2 or 4"), (3, [0, 90, 180, 270], "4"), (5, [0, 90, 180], "3 or 6")):
        with pytest.raises(SettingsError, match=f"use {near}$"):
            rotation.check(settings.replace({"peers": peers, "rotations": rotations}))
    rotation.check(settings.replace({"peers": 4}))
    images = Samples(np.zeros((6, 2, 2)), np.zeros(6, int))
    with pytest.raises(NotEnoughData, match="= 8 samples, but few has 6"):
        rotation.check(settings.replace({"peers": 4}), Dataset("few", images, images))
    with pytest.raises(DataError, match="cannot be rotated"):
        rotation.check(settings.replace({"peers": 4}), Dataset("few", samples(9), samples(4)))


def test_a_federation_without_clusters_has_a_test_set_for_each_peer() -> None:
    peer, a, b = PeerData(samples(2), samples(1)), samples(3), samples(4)
    own = Federation((peer, peer), None, (a, b))
    assert (own.tested_on, own.members(), own.smallest_cluster) == ((0, 1), {}, None)
    assert own.test_name(1) == "peer 1"
    assert Federation((peer, peer), None, (a,), tested_on=(0, 0)).tested_on == (0, 0)
    told = Federation((peer, peer), (0, 0), (a, b), ("day",), tested_on=(0, 1))
    assert (told.smallest_cluster, told.test_name(1)) == (2, "peer 1")
    unused = Federation((peer, peer), None, (a, b, b), tested_on=(0, 1))
    assert [unused.test_name(test) for test in range(3)] == ["peer 0", "peer 1", "number 2"]
    with pytest.raises(DataError, match="2 peers and 1 test sets, but the peers are tested on"):
        Federation((peer, peer), None, (a,))
    for tested_on in ((0,), (0, 1, 1), (0, 2), (-1, 0)):
        with pytest.raises(DataError, match="each peer needs a test set, one of its own where clusters are not known"):
            Federation((peer, peer), None, (a, b), tested_on=tested_on)
    with pytest.raises(DataError, match="each cluster needs a test set and a name"):
        Federation((peer, peer), (0, 1), (a, b), ("day",), tested_on=(0, 1))
    with pytest.raises(DataError, match="clusters = None, but they have names"):
        Federation((peer, peer), None, (a, b), ("day", "night"))
    with pytest.raises(DataError, match="the test set of peer 1 is empty"):
        Federation((peer, peer), None, (a, samples(0)))


def test_how_large_clusters_are() -> None:
    rotated = Settings().replace({"rotations": [0, -90, 180], "peers": 12})
    sizes = partition_of(rotated).cluster_sizes(rotated)
    assert sizes
    assert list(sizes.items()) == [("0°", 4), ("270°", 4), ("180°", 4)]
    assert [type(size) for size in sizes.values()] == [int] * 3
    assert partition_of(rotated).smallest_cluster(rotated) == 4
    assert partition_of(rotated).describe(rotated) == "rotations 0°, 270°, 180°"
    assert data_words(rotated) == "digits"
    peer = PeerData(samples(1), samples(1))
    assert Federation((peer,) * 5, (0, 1, 1, 0, 0), (samples(1),) * 2, ("a", "b")).smallest_cluster == 2


def test_peers_of_a_cluster_share_one_test_set() -> None:
    for partition in ("rotation", "groups"):
        settings = Settings().replace({"partition": partition, "train_per_peer": 3, "val_per_peer": 2})
        federation = build_federation(tiny_dataset(), settings, 0)
        assert len(federation.tests) == 2
        assert federation.tested_on == federation.clusters


# --- the paper --------------------------------------------------------------------------------------------------------


def test_other_partitions_are_departures_from_the_paper() -> None:
    cifar = EXHIBITS["table1"].columns[0].settings()
    assert paper_accuracy(cifar, "pens")
    for partition in ("dirichlet", "shards"):
        other = cifar.replace({"partition": partition})
        assert paper_accuracy(other, "pens") is None
        assert departures(other) == (f"partition = {partition} (paper: rotation)",)
    assert folder_name(cifar) == "cifar-10-100x400-rotations-0-180-independent"
    skewed = folder_name(cifar.replace({"partition": "dirichlet"}))
    assert skewed == "cifar-10-100x400-label-shares-from-dirichlet-0.3-independent"


def test_kept_results_of_another_partition_or_of_other_settings_of_it_are_not_the_same() -> None:
    rotation = {"peers": 20, "rotations": [0, 180]}  # as a file from before there were partitions
    skewed = {**rotation, "partition": "dirichlet", "alpha": 0.3}
    assert _unlike("pens", rotation, {**rotation, "partition": "rotation"}) == set()
    assert _unlike("pens", rotation, skewed) == {"partition"}
    assert _unlike("pens", skewed, {**skewed, "alpha": 0.5}) == {"alpha"}


class Noting(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def noted(self, message: str) -> None:
        self.notes.append(message)


def test_who_sets_what_no_part_in_use_reads_is_told_so() -> None:
    told = Noting()
    values = {"alpha": 3, "dac.tau": 3, "peers": 2, "train_per_peer": 1, "val_per_peer": 1, "rounds": 1}
    pens.run(values, data=tiny_dataset(), methods="local", model=TinyNet, device="cpu", observer=told)
    assert told.notes == [
        f"what is set in [{title}] has no effect: no part in use has that section" for title in ("dirichlet", "dac")
    ]

# SPDX-License-Identifier: Apache-2.0
"""The partition product: any label law × any size law × any shifts, and what each federation of them promises."""

from __future__ import annotations

import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pens
from pens.data.samples import Array, Dataset, Samples
from pens.data.scenarios import Federation
from pens.data.sources import load_dataset
from pens.errors import DataError, NotEnoughData, SettingsError
from pens.experiment.holdings import shares_of
from pens.partitions.combination import own_cluster
from pens.partitions.partition import build_federation, check_repeats, data_words, partition_of
from pens.partitions.sizes import split_off
from pens.planning.identity import identity
from pens.settings.catalogue import as_toml, find
from pens.settings.reading import parse_assignments, parse_settings, stored_settings
from pens.settings.tree import Settings
from tests.conftest import TinyNet, tiny_dataset
from tests.data.test_scenarios import angle_of, identities, numbered

PRODUCT = Settings().replace(
    {"partition": "product", "peers": 4, "train_per_peer": 4, "val_per_peer": 2, "smallest_peer": 2}
)
GROUPS = ((0, 1, 2, 3, 4), (4, 5, 6, 7, 8, 9))


def images(train: int = 240, test: int = 120) -> Dataset:
    """Samples that say who they are; sample i is of class i % 10."""
    return Dataset("numbered", numbered(train), numbered(test, offset=1000))


def built(changes: dict[str, object], seed: int = 0, data: Dataset | None = None) -> Federation:
    return build_federation(data or images(), PRODUCT.replace(changes), seed)


def classes_of(samples: Samples) -> list[int]:
    """The classes that samples had before labels were permuted."""
    return [(number - 1) % 10 for number in identities(samples)]


# --- laws of all products ---------------------------------------------------------------------------------------------

label_laws = st.sampled_from(
    [
        {"label_law": "iid"},
        {"label_law": "dirichlet", "alpha": 0.05},
        {"label_law": "dirichlet", "alpha": 3.0},
        {"label_law": "shards"},
        {"label_law": "majority"},
        {"label_law": "classes", "class_groups": GROUPS},
    ]
)
size_laws = st.sampled_from([{"size_law": "equal"}, {"size_law": "lognormal", "spread": 2}, {"size_law": "power"}])
shift_lists = st.sampled_from([[], ["rotation"], ["permutation"], ["rotation", "permutation"]])


@settings(max_examples=60)
@given(
    label_laws, size_laws, shift_lists, st.sampled_from([None, None, 0.1, 100.0]), st.integers(4, 9), st.integers(0, 9)
)
def test_every_product_keeps_its_promises(
    labels: dict[str, object],
    sizes: dict[str, object],
    shifts: list[str],
    mixture: float | None,
    peers: int,
    seed: int,
) -> None:
    changes = {**labels, **sizes, "shift": shifts, "mixture_alpha": mixture, "peers": peers}
    chosen = PRODUCT.replace(changes)
    assume(len(partition_of(chosen).cluster_sizes(chosen.replace({"mixture_alpha": None})) or ()) <= peers)
    try:
        federation = built(changes, seed)
    except NotEnoughData:
        assert labels["label_law"] == "classes"
        assume(False)
    check_sizes(federation, chosen)
    check_disjoint(federation)
    check_law(federation, chosen)
    check_clusters(federation, chosen)
    assert federation.fingerprint == built(changes, seed).fingerprint


def check_sizes(federation: Federation, chosen: Settings) -> None:
    """As many samples together as asked for, none with too few, and the ratio of training to validation."""
    sizes = np.array([len(peer.train) + len(peer.val) for peer in federation.peers])
    assert sizes.sum() == 6 * chosen.scenario.peers
    assert sizes.min() >= 2
    assert [len(peer.val) for peer in federation.peers] == split_off(sizes, 4, 2).tolist()
    if chosen.model_dump()["product"]["size_law"] == "equal":
        assert set(sizes.tolist()) == {6}
    assert len({len(test) for test in federation.tests}) == 1


def check_disjoint(federation: Federation) -> None:
    held = [number for peer in federation.peers for part in (peer.train, peer.val) for number in identities(part)]
    tested = [number for test in federation.tests for number in identities(test)]
    assert len(set(held)) == len(held)
    assert len(set(tested)) == len(tested)
    assert max(held) <= 240 < 1000 < min(tested)


def check_law(federation: Federation, chosen: Settings) -> None:
    """A peer's three parts follow one law: its own counts where it has some, or the classes of its cluster."""
    by_cluster = chosen.model_dump()["product"]["label_law"] in ("iid", "classes")
    for number, peer in enumerate(federation.peers):
        parts = [classes_of(part) for part in (peer.train, peer.val, federation.tests[federation.tested_on[number]])]
        whole = np.bincount(parts[0] + parts[1], minlength=10)
        for part in parts if not by_cluster else ():
            assert (np.abs(np.bincount(part, minlength=10) - whole * len(part) / whole.sum()) < _slack(chosen)).all()
        if chosen.model_dump()["product"]["label_law"] == "classes" and federation.clusters is not None:
            group = GROUPS[own_cluster(chosen, federation.clusters[number], 0)]
            assert all(set(part) <= set(group) for part in parts)


def _slack(chosen: Settings) -> float:
    """Each cluster's samples of a label are rounded by themselves."""
    clusters = len(partition_of(chosen).cluster_sizes(chosen.replace({"mixture_alpha": None})) or (1,))
    return 1 if chosen.model_dump()["product"]["mixture_alpha"] is None else clusters


def check_clusters(federation: Federation, chosen: Settings) -> None:
    """Where clusters are known, all parts of a peer look as its cluster does."""
    product = chosen.model_dump()["product"]
    known = product["mixture_alpha"] is None and (product["shift"] or product["label_law"] in ("iid", "classes"))
    assert (federation.clusters is not None) == bool(known)
    tables: dict[int, dict[int, int]] = {}
    for number, peer in enumerate(federation.peers if known else ()):
        assert federation.clusters
        cluster = federation.clusters[number]
        name = federation.cluster_names[cluster]
        for part in (peer.train, peer.val, federation.tests[federation.tested_on[number]]):
            if "rotation" in product["shift"]:
                assert {angle_of(image) for image in part.x} == {180 if "180°" in name else 0}
            table = tables.setdefault("permutation 1" in name, {})
            assert all(table.setdefault(was, now) == now for was, now in zip(classes_of(part), part.y, strict=True))
    if known:
        assert all(was == now for was, now in tables.get(False, {}).items())
        assert len(set(tables.get(True, {}).values())) == len(tables.get(True, {}))


def test_all_samples_are_handed_out_where_that_is_asked() -> None:
    for labels in ({"label_law": "iid"}, {"label_law": "dirichlet", "alpha": 0.05}, {"label_law": "majority"}):
        federation = built({**labels, "size_law": "lognormal", "peers": 40, "shift": "rotation"})
        held = [number for peer in federation.peers for part in (peer.train, peer.val) for number in identities(part)]
        assert sorted(held) == list(range(1, 241))


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_two_label_groups_and_two_rotations_are_four_clusters() -> None:
    """Of eight peers, by shares 3, 1, 1, 3. Ten test samples of each class, of which rotations share each: 25 of five
    classes each."""
    changes = {
        "label_law": "classes",
        "class_groups": [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]],
        "shift": "rotation",
        "cluster_shares": [3, 1, 1, 3],
        "peers": 8,
    }
    federation = built(changes, data=images(test=100))
    names = [f"classes {group} × {angle}" for group in ("0+1+2+3+4", "5+6+7+8+9") for angle in ("0°", "180°")]
    assert federation.cluster_names == tuple(names)
    assert federation.clusters == federation.tested_on == (0, 0, 0, 1, 2, 3, 3, 3)
    chosen = PRODUCT.replace(changes)
    assert partition_of(chosen).cluster_sizes(chosen) == dict(zip(names, (3, 1, 1, 3), strict=True))
    assert [own_cluster(chosen, cluster, 0) for cluster in range(4)] == [0, 0, 1, 1]
    assert [own_cluster(chosen, cluster, 1) for cluster in range(4)] == [0, 1, 0, 1]
    assert [len(test) for test in federation.tests] == [25] * 4
    assert [np.bincount(test.y, minlength=10).tolist() for test in federation.tests[1:3]] == [
        [5] * 5 + [0] * 5,
        [0] * 5 + [5] * 5,
    ]
    assert [angle_of(test.x[0]) for test in federation.tests] == [0, 180, 0, 180]
    assert partition_of(chosen).describe(chosen) == (
        "classes 0+1+2+3+4 and classes 5+6+7+8+9, equal sizes, 0° and 180°"
    )


def test_one_distribution_for_all_is_one_cluster() -> None:
    federation = built({})
    assert (federation.cluster_names, federation.clusters) == (("all",), (0,) * 4)
    assert len(federation.tests[0]) == 120


def test_tests_are_as_large_as_asked_and_overlap_only_where_all_draw_from_the_whole() -> None:
    full = built({"shift": "rotation", "test": "full"})
    assert [len(test) for test in full.tests] == [120, 120]
    assert [len(test) for test in built({"shift": "rotation", "test_samples": 7}).tests] == [7, 7]
    own = built({"label_law": "dirichlet", "shift": "rotation", "test": "full"})
    assert len(own.tests) == 4


def test_shares_within_a_peer_by_hand() -> None:
    """With a large alpha each peer has as many samples of each of two rotations: three of six, and one of its two
    validation samples; with weights of 2 and 1 four and two."""
    even = built({"shift": "rotation", "mixture_alpha": 1e6})
    for peer in even.peers:
        assert sorted(angle_of(image) for image in np.concatenate([peer.train.x, peer.val.x])) == [0] * 3 + [180] * 3
        assert sorted(angle_of(image) for image in peer.val.x) == [0, 180]
    assert even.clusters is None
    skewed = built({"shift": "rotation", "mixture_alpha": 1e6, "cluster_shares": [2, 1]})
    angles = [sorted(angle_of(image) for image in np.concatenate([p.train.x, p.val.x])) for p in skewed.peers]
    assert np.mean([of.count(0) for of in angles]) == pytest.approx(4, abs=1)
    small = built({"shift": "rotation", "mixture_alpha": 0.01, "peers": 20})
    assert sum(len({angle_of(image) for image in peer.train.x}) == 1 for peer in small.peers) > 15


def test_a_mixture_of_two_clusters_is_in_no_order() -> None:
    peer = built(
        {"shift": "rotation", "mixture_alpha": 1e6, "peers": 2, "train_per_peer": 60, "val_per_peer": 20}
    ).peers[0]
    angles = [angle_of(image) for image in peer.train.x]
    assert 15 < sum(one != other for one, other in pairwise(angles)) < 45


# --- how much is computed ---------------------------------------------------------------------------------------------


class Counting(pens.Shift):
    """Counts how often it is asked."""

    name = "counting"
    about = "nothing"
    calls: list[tuple[int, int]] = []  # noqa: RUF012  emptied by the test

    def clusters(self, settings: Settings) -> tuple[str, ...]:
        return ("a", "b")

    def apply(self, samples: Samples, view: pens.View) -> Samples:
        self.calls.append((view.cluster, len(samples)))
        return samples


def test_each_cluster_is_transformed_once_however_many_peers_it_has() -> None:
    Counting.calls.clear()
    federation = built({"shift": [f"{__name__}:Counting"], "peers": 40})
    assert Counting.calls == [(0, 120), (1, 120), (0, 60), (1, 60)]
    train = [peer.train.x for peer in federation.peers[:20]]
    assert all(one.base is train[0].base for one in train)  # pieces of one array


# --- clusters that methods are told -----------------------------------------------------------------------------------


def test_an_oracle_runs_where_clusters_are_known_and_is_refused_where_they_are_mixed() -> None:
    values = {"partition": "product", "shift": "permutation", "peers": 4, "train_per_peer": 5, "val_per_peer": 3}
    given = {"data": tiny_dataset(), "model": TinyNet, "device": "cpu"}
    result = pens.run({**values, "rounds": 1, "n_peers": 1}, methods="oracle", **given)  # type: ignore[arg-type]
    assert result.run_of("oracle", 0).cluster_names == ("permutation 0", "permutation 1")
    with pytest.raises(SettingsError, match="oracle is told the true clusters"):
        pens.run({**values, "mixture_alpha": 1.0}, methods="oracle", **given)  # type: ignore[arg-type]


# --- parts of others --------------------------------------------------------------------------------------------------

OWN = """
import numpy as np
import pens

class FirstSettings(pens.Section):
    '''The label law first.'''
    title = "first"
    label: pens.Whole = 0
    '''Which label.'''

class First(pens.LabelLaw):
    name = "first"
    about = "as many of one label as there are"
    section = FirstSettings
    def counts(self, there, sizes, clusters, settings, generator):
        counts = np.zeros((len(sizes), len(there)), int)
        counts[:, settings.section(FirstSettings).label] = sizes
        return counts

class Halves(pens.SizeLaw):
    name = "halves"
    about = "each twice as large as the next"
    def weights(self, peers, settings, generator):
        return 2.0 ** -np.arange(peers)

class Negative(pens.Shift):
    name = "negative"
    about = "negatives"
    def clusters(self, settings):
        return ("plain", "negative")
    def apply(self, samples, view):
        low, high = view.bounds
        return pens.Samples(low + high - samples.x if view.cluster else samples.x, samples.y)
"""


def test_laws_and_shifts_of_others_are_used_recorded_and_explained(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    assigned = parse_assignments(
        [f"label_law={file}:First", f"size_law={file}:Halves", f"shift={file}:Negative,rotation", "label=3"]
    )
    chosen = PRODUCT.replace({**assigned, "peers": 4, "train_per_peer": 3, "val_per_peer": 2, "half_turn": "flip"})
    assert chosen.model_dump()["first"] == {"label": 3}
    assert parse_settings(tomllib.loads(as_toml(chosen))) == stored_settings(chosen.model_dump(mode="json")) == chosen
    federation = build_federation(images(), chosen, 0)
    assert [len(peer.train) + len(peer.val) for peer in federation.peers] == pytest.approx([10, 5, 3, 2], abs=1)
    assert {label for peer in federation.peers for label in peer.train.y} == {3}
    assert federation.cluster_names == ("plain × 0°", "plain × 180°", "negative × 0°", "negative × 180°")
    assert federation.peers[2].train.x.max() == 240  # −1, the mark of a corner, becomes the largest number
    assert {entry.key for entry in find(f"{file}:First")} == {"label"}


class Wrong(pens.LabelLaw):
    name = "wrong"
    about = "what a test says"
    given: Array = np.zeros(0)

    def counts(
        self, there: Array, sizes: Array, clusters: Array, settings: Settings, generator: np.random.Generator
    ) -> Array:
        return self.given


class WrongSizes(pens.SizeLaw):
    name = "wrong-sizes"
    about = "no weights"

    def weights(self, peers: int, settings: Settings, generator: np.random.Generator) -> Array:
        return np.arange(peers)


class WrongShift(Counting):
    name = "wrong-shift"

    def apply(self, samples: Samples, view: pens.View) -> Samples:
        return samples.take(slice(1))


def test_what_parts_of_others_give_is_checked() -> None:
    many = np.zeros((4, 10), int)
    many[:, 0] = 6
    for wrong in (np.zeros((4, 10), int), np.full((3, 10), 6), many * 1.0, np.eye(4, 10) * 6, -many, "no"):
        Wrong.given = np.asarray(wrong)
        with pytest.raises(DataError, match="label law wrong gave counts that cannot be handed out: return whole"):
            built({"label_law": f"{__name__}:Wrong"})
    Wrong.given = many * 10  # more than there are
    with pytest.raises(DataError, match="cannot be handed out"):
        built({"label_law": f"{__name__}:Wrong", "train_per_peer": 40, "val_per_peer": 20})
    with pytest.raises(DataError, match=r"size law wrong-sizes gave weights \[0. 1. 2. 3.\]: return 4 numbers above 0"):
        built({"size_law": f"{__name__}:WrongSizes"})
    with pytest.raises(DataError, match="shift wrong-shift returned Samples of another form than it was given"):
        built({"shift": f"{__name__}:WrongShift"})


class Drifting(Wrong):
    """Gives each peer of six another class each time that it is asked."""

    name = "drifting"
    asked = 0

    def counts(
        self, there: Array, sizes: Array, clusters: Array, settings: Settings, generator: np.random.Generator
    ) -> Array:
        Drifting.asked += 1
        return np.eye(len(there), dtype=int)[[Drifting.asked % len(there)] * len(sizes)] * sizes[:, None]


class Infinite(Counting):
    name = "infinite"

    def apply(self, samples: Samples, view: pens.View) -> Samples:
        return Samples(samples.x / 0.0, samples.y)


def test_parts_of_others_have_to_repeat_themselves_and_to_give_finite_numbers() -> None:
    chosen = PRODUCT.replace({"label_law": f"{__name__}:Drifting"})
    with pytest.raises(DataError, match="partition product built two different federations for seed 0"):
        check_repeats(images(), chosen, 0, build_federation(images(), chosen, 0))
    with (
        np.errstate(all="ignore"),
        pytest.raises(DataError, match="partition product: the training inputs of peer 0: "),
    ):
        built({"shift": [f"{__name__}:Infinite"]})


# --- settings ---------------------------------------------------------------------------------------------------------


def test_sections_of_what_is_combined_are_on_record_and_others_only_where_they_say_something() -> None:
    plain = Settings().replace({"partition": "product"})
    assert set(plain.model_dump()) - set(Settings().model_dump()) == {"product"}
    skewed = plain.replace({"label_law": "dirichlet", "shift": "noise,blur"})
    assert set(skewed.model_dump()) - set(plain.model_dump()) == {"dirichlet", "noise", "blur"}
    assert identity(skewed) == identity(skewed.replace({"exponent": 2})) != identity(skewed.replace({"alpha": 2}))
    gone = skewed.replace({"partition": "shards"}).explicit
    assert not {"dirichlet", "noise", "blur", "product"} & set(gone.model_dump())
    assert parse_settings(skewed.model_dump(mode="json")) == skewed
    assert plain.replace(parse_assignments(["shift=noise,blur"])) == plain.replace({"shift": ["noise", "blur"]})
    assert {"label_law", "shift", "test"} <= {entry.key for entry in find("product")}
    assert {entry.key for entry in find("noise")} == {"noise_levels"}
    (entry,) = find("shift")
    assert entry.choices[:5] == ("rotation", "permutation", "noise", "blur", "colour")
    assert entry.allowed.startswith("some of rotation, permutation")
    assert data_words(skewed) == "digits, labels from Dirichlet(0.3)"  # what the clusters' names do not say
    assert data_words(skewed.replace({"label_law": "iid"})) == "digits"
    assert (
        data_words(skewed.replace({"label_law": "classes", "size_law": "power"})) == "digits, sizes by a power law (1)"
    )
    mixed = skewed.replace({"shift": ["noise"], "mixture_alpha": 0.5})
    words = "labels from Dirichlet(0.3), equal sizes, noise 0 and noise 0.5, clusters mixed within peers (0.5)"
    assert data_words(mixed) == f"digits, {words}"


def test_what_does_not_fit_is_refused() -> None:
    for changes, reason in (
        ({"shift": "rotation", "cluster_shares": [1, 2, 3]}, r"are 3 clusters, but there are 2: 0°, 180°"),
        (
            {"shift": "rotation", "rotations": [0, 10, 20], "peers": 2},
            "3 clusters, but peers = 2: set peers = 3 or more",
        ),
        ({"size_law": "power", "smallest_peer": 7}, "smallest_peer = 7, but peers have 6 samples on average"),
        (
            {"label_law": "majority", "task": "regression"},
            "majority needs a class for each sample, but with task = 'regr",
        ),
        ({"shift": "permutation", "task": "regression"}, "permutation needs a class for each sample"),
    ):
        chosen = PRODUCT.replace(changes)
        with pytest.raises(SettingsError, match=reason):
            partition_of(chosen).check(chosen)
    with pytest.raises(SettingsError, match=r"shift = .*names a shift twice"):
        PRODUCT.replace({"shift": ["noise", "noise"]})
    with pytest.raises(SettingsError, match="unknown shift 'nois', did you mean 'noise'"):
        PRODUCT.replace({"shift": ["nois"]})
    with pytest.raises(NotEnoughData, match=r"4 peers × .* = 400 samples, but numbered has 240"):
        built({"train_per_peer": 98})
    with pytest.raises(NotEnoughData, match="1 test samples, too few for one of its own labels for each of 2 clusters"):
        built({"shift": "rotation"}, data=images(test=1))


def test_numbers_without_classes_are_shared_out_by_shifts_and_sizes() -> None:
    data = images()
    real = Dataset("real", Samples(data.train.x, data.train.y / 7), Samples(data.test.x, data.test.y / 7))
    federation = built({"task": "regression", "shift": "rotation", "size_law": "power"}, data=real)
    assert federation.cluster_names == ("0°", "180°")


def test_a_written_partition_says_who_holds_what_whatever_shifts_do() -> None:
    changes = {"shift": "rotation,noise,permutation", "rotations": [0, 10], "peers": 8, "dataset": "digits"}
    chosen = PRODUCT.replace(changes)
    shares = shares_of(chosen, 0)
    plain = shares_of(chosen.replace({"noise_levels": [0, 0.25]}), 0)
    held = np.concatenate([share.parts[part] for share in shares.values() for part in ("train", "val")])
    assert len(set(held.tolist())) == len(held) == 48
    assert {share.cluster for share in shares.values()} == set(partition_of(chosen).cluster_sizes(chosen) or ())
    assert all(np.array_equal(share.parts["train"], plain[name].parts["train"]) for name, share in shares.items())
    noisy = chosen.replace({"shift": ["noise"], "noise_levels": [0, 50]})
    digits = load_dataset("digits", None)
    built_peers = build_federation(digits, noisy, 0).peers
    for share, peer in zip(shares_of(noisy, 0).values(), built_peers, strict=True):
        assert digits.train.y[share.parts["train"]].tolist() == peer.train.y.tolist()
    assert partition_of(chosen).changes(chosen) == "the shifts rotation, noise, permutation"
    assert partition_of(chosen).changes(PRODUCT) == ""

# SPDX-License-Identifier: Apache-2.0
"""The paper's scenario, section 3, as properties."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens import rng
from pens.data.samples import Dataset, Samples, check_finite
from pens.data.scenarios import Federation, PeerData, check_own_data, own_parts, pooled, pooled_sizes
from pens.errors import DataError, NotEnoughData
from pens.partitions.rotation import rotate, rotated_federation
from pens.settings.schema import ScenarioSettings

ANGLES = [(0,), (0, 180), (90, 270), (0, 90, 180, 270), (0, -90, 540)]


def numbered(count: int, offset: int = 0, side: int = 3) -> Samples:
    """Samples that say who they are: the pixel (0, 1) is the number, (0, 0) is −1 to tell rotations apart."""
    x = np.zeros((count, 1, side, side), np.float32)
    x[:, 0, 0, 0] = -1
    x[:, 0, 0, 1] = np.arange(count) + offset + 1
    return Samples(x, np.arange(count) % 10)


def dataset(train: int = 120, test: int = 40) -> Dataset:
    return Dataset("numbered", numbered(train), numbered(test, offset=1000))


def identities(samples: Samples) -> list[int]:
    return [int(v) for v in samples.x.max(axis=(1, 2, 3))]


def angle_of(image: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> int:
    row, column = np.argwhere(image[0] == -1)[0].tolist()
    return {(0, 0): 0, (2, 0): 90, (2, 2): 180, (0, 2): 270}[row, column]


@given(st.sampled_from(ANGLES), st.integers(1, 4), st.integers(1, 6), st.integers(1, 3), st.integers(0, 5))
def test_every_sample_goes_to_one_place_rotated_as_its_peers_cluster(
    angles: tuple[int, ...], per_cluster: int, train: int, val: int, seed: int
) -> None:
    peers = per_cluster * len(angles)
    if peers < 2:
        return
    settings = ScenarioSettings(rotations=angles, peers=peers, train_per_peer=train, val_per_peer=val)
    federation = rotated_federation(dataset(train=160), settings, seed)
    assert len(federation.peers) == peers
    assert federation.clusters is not None
    assert np.bincount(federation.clusters).tolist() == [per_cluster] * len(angles)
    handed_out: list[int] = []
    for peer, cluster in zip(federation.peers, federation.clusters, strict=True):
        assert (len(peer.train), len(peer.val)) == (train, val)
        for part in (peer.train, peer.val):
            handed_out += identities(part)
            assert {angle_of(image) for image in part.x} == {angles[cluster] % 360}
            assert [(i - 1) % 10 for i in identities(part)] == part.y.tolist()
    assert len(handed_out) == len(set(handed_out))
    tested = [identities(test) for test in federation.tests]
    assert len({i for part in tested for i in part}) == sum(len(part) for part in tested)
    assert {len(part) for part in tested} == {40 // len(angles)}
    for test, angle in zip(federation.tests, angles, strict=True):
        assert {angle_of(image) for image in test.x} == {angle % 360}


def test_the_seed_decides_who_gets_what() -> None:
    settings = ScenarioSettings(peers=4, train_per_peer=5, val_per_peer=2)
    one, again, other = (rotated_federation(dataset(), settings, seed) for seed in (1, 1, 2))
    assert identities(one.peers[0].train) == identities(again.peers[0].train)
    assert identities(one.peers[0].train) != identities(other.peers[0].train)


def test_the_full_test_set_and_its_bound_are_options() -> None:
    settings = ScenarioSettings(peers=4, train_per_peer=5, val_per_peer=2, test="full", test_samples=30)
    federation = rotated_federation(dataset(), settings, 0)
    assert [len(test) for test in federation.tests] == [30, 30]
    assert identities(federation.tests[0]) == identities(federation.tests[1])


def test_rotations_turn_counter_clockwise() -> None:
    """Section 3, r = 90: the upper row becomes the left column, read from below."""
    image = Samples(np.array([[[[1.0, 2.0], [3.0, 4.0]]]], np.float32), np.array([7]))
    turned = {angle: rotate(image, angle) for angle in (0, 90, 180, 270, 360, -90)}
    assert turned[0].x[0, 0].tolist() == turned[360].x[0, 0].tolist() == [[1, 2], [3, 4]]
    assert turned[90].x[0, 0].tolist() == [[2, 4], [1, 3]]
    assert turned[180].x[0, 0].tolist() == [[4, 3], [2, 1]]
    assert turned[270].x[0, 0].tolist() == turned[-90].x[0, 0].tolist() == [[3, 1], [4, 2]]
    assert all(samples.y.tolist() == [7] for samples in turned.values())


def test_who_holds_what_by_hand() -> None:
    """Section 3. Two rotations, four peers of 2 + 1 samples each: each rotation's half of 12 samples goes to its two
    peers in pieces of three, of which the last is held back for validation."""
    settings = ScenarioSettings(rotations=(0, 90), peers=4, train_per_peer=2, val_per_peer=1)
    federation = rotated_federation(dataset(train=12, test=6), settings, 0)
    assert federation.clusters == (0, 0, 1, 1)
    assert federation.cluster_names == ("0°", "90°")
    assert federation.members() == {0: (0, 1), 1: (2, 3)}
    order = np.random.default_rng(rng.key(0, "split train")).permutation(12) + 1
    held = [(identities(peer.train), identities(peer.val)) for peer in federation.peers]
    pieces = [order[start : start + 3].tolist() for start in (0, 3, 6, 9)]
    assert held == [(piece[:2], piece[2:]) for piece in pieces]
    tested = np.random.default_rng(rng.key(0, "split test")).permutation(6) + 1001
    assert [identities(test) for test in federation.tests] == [tested[:3].tolist(), tested[3:].tolist()]
    assert [len(test) for test in rotated_federation(
        dataset(train=12, test=6), settings.model_copy(update={"test_samples": 2}), 0
    ).tests] == [2, 2]  # fmt: skip


def test_half_a_turn_may_be_a_mirror_image() -> None:
    samples = numbered(1)
    assert angle_of(rotate(samples, 180).x[0]) == 180
    for angle in (180, 540, -180):
        flipped = rotate(samples, angle, "flip").x[0, 0]
        np.testing.assert_array_equal(flipped, samples.x[0, 0, ::-1])
    assert [angle_of(rotate(samples, angle, "flip").x[0]) for angle in (0, 90, 270, 360)] == [0, 90, 270, 0]


@pytest.mark.parametrize("values", [{"peers": 40}, {"train_per_peer": 90}, {"peers": 100, "train_per_peer": 1}])
def test_too_little_data_names_the_largest_settings_that_fit(values: dict[str, int]) -> None:
    settings = ScenarioSettings(peers=4, train_per_peer=20, val_per_peer=2).model_copy(update=values)
    with pytest.raises(NotEnoughData) as caught:
        rotated_federation(dataset(), settings, 0)
    remedies = re.findall(r"(train_per_peer|peers) = (\d+)", str(caught.value))
    assert remedies
    for name, value in remedies:
        rotated_federation(dataset(), settings.model_copy(update={name: int(value)}), 0)
        step = 2 if name == "peers" else 1
        with pytest.raises(NotEnoughData):
            rotated_federation(dataset(), settings.model_copy(update={name: int(value) + step}), 0)


@pytest.mark.parametrize(
    ("peers", "train", "val", "remedy"),
    [
        (4, 5, 2, "at most train_per_peer = 4 or peers = 2 would fit"),  # 12 // 2 − 2 = 4; 12 // 7 · 2 = 2
        (4, 3, 5, "at most train_per_peer = 1 or peers = 2 would fit"),  # 12 // 2 − 5 = 1; 12 // 8 · 2 = 2
        (4, 6, 6, "at most peers = 2 would fit"),  # 12 // 2 − 6 = 0; 12 // 12 · 2 = 2
        (6, 9, 2, "at most train_per_peer = 2 or peers = 2 would fit"),  # 12 // 3 − 2 = 2; 12 // 11 · 2 = 2
        (2, 8, 5, "at most train_per_peer = 7 would fit"),  # 12 // 1 − 5 = 7; 12 // 13 · 2 = 0
        (4, 7, 6, "it is too small for this scenario"),  # 12 // 2 − 6 = 0; 12 // 13 · 2 = 0
        (4, 6, 7, "it is too small for this scenario"),  # 12 // 2 − 7 < 0; 12 // 13 · 2 = 0
    ],
)
def test_what_would_fit_by_hand(peers: int, train: int, val: int, remedy: str) -> None:
    """25 training samples for two rotations: 12 for each, and one is left over."""
    settings = ScenarioSettings(peers=peers, train_per_peer=train, val_per_peer=val)
    with pytest.raises(NotEnoughData, match=f"numbered has 25, 12 for each of 2 rotations: {remedy}$"):
        rotated_federation(dataset(train=25), settings, 0)


def test_the_last_scenarios_that_fit() -> None:
    """25 training samples, 12 for each of two rotations, are 2 peers of 4 + 2, and not of 5 + 2; with one rotation all
    25 are 2 peers of 10 + 2, and of 13 of them there is one alone, which is no federation. Each rotation needs a test
    sample of its own, unless all peers are tested on all of them."""
    fits = ScenarioSettings(peers=4, train_per_peer=4, val_per_peer=2)
    rotated_federation(dataset(train=25), fits, 0)
    one = ScenarioSettings(rotations=(0,), peers=2, train_per_peer=10, val_per_peer=2)
    rotated_federation(dataset(train=25), one, 0)
    with pytest.raises(NotEnoughData, match="at most train_per_peer = 10 would fit"):
        rotated_federation(dataset(train=25), one.model_copy(update={"train_per_peer": 11}), 0)
    three = ScenarioSettings(rotations=(0, 90, 180), peers=3, train_per_peer=4, val_per_peer=2)
    assert [len(test) for test in rotated_federation(dataset(test=3), three, 0).tests] == [1, 1, 1]
    with pytest.raises(NotEnoughData, match="numbered has 2 test samples, but 3 rotations need at least one each"):
        rotated_federation(dataset(test=2), three, 0)
    full = three.model_copy(update={"test": "full"})
    assert [len(test) for test in rotated_federation(dataset(test=2), full, 0).tests] == [2, 2, 2]


@pytest.mark.parametrize(
    ("shape", "allowed", "refused"),
    [
        ((7,), [(0,), (360,), (-360,)], [(90,), (180,), (0, 180)]),
        ((3, 3), [(0,), (90,), (0, 180)], []),
        ((2, 3), [(180,), (0, 180), (0, 540)], [(90,), (0, 90), (0, 90, 180), (-90,)]),
        ((1, 2, 3), [(180,), (0, 180), (360, -180)], [(90,), (0, 90), (180, 270)]),
        ((3, 2, 3), [(0, 180)], [(0, 90)]),
        ((2, 2, 3), [(0, 180)], [(0, 90)]),
        ((1, 3, 3), [(0, 90, 180, 270)], []),
    ],
)
def test_half_a_turn_needs_two_dimensions_and_a_quarter_a_square(
    shape: tuple[int, ...], allowed: list[tuple[int, ...]], refused: list[tuple[int, ...]]
) -> None:
    """Height and width come last; whole turns leave every shape as it is."""
    part = Samples(np.zeros((60, *shape), np.float32), np.zeros(60, np.int64))
    for rotations in allowed:
        settings = ScenarioSettings(rotations=rotations, peers=12, train_per_peer=3, val_per_peer=2)
        assert rotated_federation(Dataset("shaped", part, part), settings, 0).sample_shape == shape
    for rotations in refused:
        settings = ScenarioSettings(rotations=rotations, peers=12, train_per_peer=3, val_per_peer=2)
        with pytest.raises(DataError, match="cannot be rotated"):
            rotated_federation(Dataset("shaped", part, part), settings, 0)


def test_samples_that_cannot_be_rotated_are_refused() -> None:
    flat = Samples(np.zeros((50, 7), np.float32), np.zeros(50, np.int64))
    settings = ScenarioSettings(peers=2, train_per_peer=3, val_per_peer=2)
    with pytest.raises(DataError, match=r"cannot be rotated: use rotations = \[0\]"):
        rotated_federation(Dataset("flat", flat, flat), settings, 0)
    rotated_federation(Dataset("flat", flat, flat), settings.model_copy(update={"rotations": (0,)}), 0)


def test_pooled_data_are_all_peers_data() -> None:
    settings = ScenarioSettings(peers=4, train_per_peer=5, val_per_peer=2)
    federation = rotated_federation(dataset(), settings, 0)
    together = pooled(federation)
    assert identities(together.train) == [i for peer in federation.peers for i in identities(peer.train)]
    assert identities(together.val) == [i for peer in federation.peers for i in identities(peer.val)]
    assert len(together.val) == 8
    assert pooled_sizes(federation) == (20, 8)


@given(st.integers(1, 6), st.integers(1, 6), st.floats(0.01, 0.99))
def test_a_share_of_everything_is_held_back(train: int, val: int, share: float) -> None:
    federation = rotated_federation(dataset(), ScenarioSettings(peers=4, train_per_peer=train, val_per_peer=val), 0)
    together = pooled(federation, share)
    everything = [i for peer in federation.peers for i in (*identities(peer.train), *identities(peer.val))]
    assert sorted((*identities(together.train), *identities(together.val))) == sorted(everything)
    assert (len(together.train), len(together.val)) == pooled_sizes(federation, share)
    assert len(together.val) == 4 * min(train + val - 1, max(1, round(share * (train + val))))


def test_data_that_do_not_fit_together_are_refused() -> None:
    one = numbered(3)
    with pytest.raises(DataError, match="3 inputs but 2 labels"):
        Samples(one.x, one.y[:2])
    with pytest.raises(DataError, match=r"shape \(3,\) and type .*: expected .* one integer class per sample"):
        Samples(one.x, one.y.astype(str))
    with pytest.raises(DataError, match=r"targets of shape \(\) per sample, but the test data targets of shape \(2,\)"):
        Dataset("odd", one, Samples(one.x, np.zeros((3, 2))))
    with pytest.raises(DataError, match="3 training and 0 validation samples: each peer needs at least one of both"):
        PeerData(one, one.take(slice(0)))
    with pytest.raises(DataError, match="0 training and 3 validation samples: each peer needs at least one of both"):
        PeerData(one.take(slice(0)), one)
    peer = PeerData(one.take(slice(1)), one.take(slice(1)))
    with pytest.raises(DataError, match="1 peers, but clusters are given for 2"):
        Federation((peer,), (0, 0), (one,), ("a",))
    with pytest.raises(DataError, match="at least one peer"):
        Federation((), (), (one,), ("a",))
    for clusters in ((0, "a"), (0, 1.0), (np.int64(0), 0)):
        with pytest.raises(DataError, match="each peer's cluster as a whole number"):
            Federation((peer, peer), clusters, (one, one), ("a", "b"))  # type: ignore[arg-type]
    Federation((peer, peer), (0, 1), (one, one), ("a", "b"))
    for clusters, names in (((0, 2), ("a", "b")), ((-2, 0), ("a", "b")), ((0, 1), ("a", "b", "c")), ((0, 0), ("a",))):
        with pytest.raises(DataError, match=r"2 test sets and .* each cluster needs a test set and a name"):
            Federation((peer, peer), clusters, (one, one), names)
    with pytest.raises(DataError, match="the test set of cluster b is empty: each cluster needs test samples"):
        Federation((peer, peer), (0, 1), (one, one.take(slice(0))), ("a", "b"))


@pytest.mark.parametrize(
    ("place", "named"),
    [("train", "peer 2's training"), ("val", "peer 2's validation"), ("test", "the test data of night")],
)
@pytest.mark.parametrize(
    "other", [numbered(6, side=4), Samples(np.zeros((6, 1, 3, 3), np.int64), np.zeros(6, np.int64))]
)
def test_all_samples_of_a_federation_have_one_shape_and_type(place: str, named: str, other: Samples) -> None:
    """Images of 4 × 4 pixels, or of whole numbers, among 3 × 3 pixels of real numbers."""
    with pytest.raises(DataError, match=f"peer 0's training data have inputs .* of real numbers .* but {named}"):
        of_three_peers(**{place: other})


def test_the_shape_of_a_sample_is_that_of_the_first_peers() -> None:
    """Of one sample, whatever the number of samples."""
    part = Samples(np.zeros((9, 2, 5, 3), np.float32), np.zeros(9, np.int64))
    peer = PeerData(part, part.take(slice(1)))
    assert Federation((peer,), (0,), (part,), ("a",)).sample_shape == (2, 5, 3)


def test_a_peers_samples_are_called_by_its_name() -> None:
    train, val, test = numbered(3), numbered(2), numbered(1)
    parts = [("the training inputs of ann", train), ("the validation inputs of ann", val)]
    assert own_parts("ann", PeerData(train, val)) == parts
    assert own_parts("ann", PeerData(train, val), test) == [*parts, ("the test inputs of ann", test)]


def spoilt(samples: Samples, *where: int, value: float = np.nan) -> Samples:
    """A copy with a wrong number in each of some samples."""
    x = samples.x.astype(np.float64)
    x[list(where), 0, 2, 1] = value
    return Samples(x, samples.y)


def of_three_peers(**changes: Samples) -> Federation:
    """Peer 2's parts and the second test set may be given."""
    good = Samples(numbered(6).x.astype(np.float64), numbered(6).y)
    own = PeerData(changes.get("train", good), changes.get("val", good))
    return Federation(
        (PeerData(good, good),) * 2 + (own,), (0, 0, 1), (good, changes.get("test", good)), ("day", "night")
    )


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("train", "the training inputs of peer 2"),
        ("val", "the validation inputs of peer 2"),
        ("test", "the test inputs of night"),
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_inputs_that_are_no_finite_numbers_are_refused_with_their_owner(part: str, name: str, value: float) -> None:
    check_own_data(of_three_peers())
    with pytest.raises(DataError) as error:
        check_own_data(of_three_peers(**{part: spoilt(numbered(6), 5, 3, value=value)}))
    assert str(error.value).startswith(f"{name}: 2 of 6 samples hold NaN, infinity or numbers beyond 3.4e+38")
    assert f"the first is sample 3, counted from 0, with {value}" in str(error.value)
    assert "remove these samples, or replace such values" in str(error.value)


@given(st.integers(1, 40), st.data())
def test_every_sample_is_looked_at_however_an_array_is_cut(count: int, data: st.DataObject) -> None:
    wrong = data.draw(st.sets(st.integers(0, count - 1)))
    part = spoilt(numbered(count), *wrong)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pens.data.samples._CHECKED_AT_ONCE", data.draw(st.sampled_from([1, 20, 1000])))
        if not wrong:
            check_finite([("mine", part)])
            return
        with pytest.raises(DataError, match=rf"^mine: {len(wrong)} of {count} .* sample {min(wrong)}, "):
            check_finite([("mine", part)])


def test_an_array_that_many_peers_share_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr("pens.data.samples._check_finite", lambda name, x: read.append(name))
    check_finite([("a", part := numbered(4)), ("b", part), ("c", part.take(slice(None))), ("d", numbered(4))])
    assert read == ["a", "d"]
    check_finite([("tokens", Samples(np.arange(6).reshape(3, 2), np.arange(3)))])  # whole numbers are always finite
    assert read == ["a", "d"]


def test_a_data_set_is_refused_by_its_name() -> None:
    with pytest.raises(DataError, match=r"^the test inputs of clocks: 1 of 40 samples"):
        check_own_data(Dataset("clocks", numbered(120), spoilt(numbered(40), 0)))


def test_classes_are_those_of_all_peers_together() -> None:
    """A peer that lacks the top class has the same network as those that hold it."""
    low, high = (Samples(np.zeros((2, 3), np.float32), np.array([0, top])) for top in (1, 4))
    for places in ((low, low, high), (low, high, low), (high, low, low)):
        train, val, test = places
        assert Federation((PeerData(low, low), PeerData(train, val)), (0, 0), (test,), ("a",)).num_classes == 5
    none = low.take(slice(1))
    assert Federation((PeerData(none, none),), (0,), (none,), ("a",)).num_classes == 1

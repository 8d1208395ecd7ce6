# SPDX-License-Identifier: Apache-2.0
"""A data set + settings → what each peer holds. The paper's scenario: covariate shift by rotation (section 3).

"The train and test sets are randomly split into one equally large partition for each value of r, and a rotation of r
is applied on each partition. Then each client is populated with training samples uniformly from one such data
distribution."

`PeerData` is all that a peer's training ever sees. Which distribution a peer belongs to, and the test sets, stay in
`Federation`, for the experiment's set-up (`oracle`) and its measurements alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pens import rng
from pens.config import ScenarioSettings
from pens.data.samples import Array, Dataset, Samples, check_alike, check_finite, concatenate
from pens.errors import DataError, NotEnoughData


@dataclass(frozen=True)
class PeerData:
    """One peer's own samples."""

    train: Samples
    val: Samples

    def __post_init__(self) -> None:
        if not len(self.train) or not len(self.val):
            raise DataError(
                f"a peer with {len(self.train)} training and {len(self.val)} validation samples: "
                "each peer needs at least one of both"
            )


@dataclass(frozen=True)
class Federation:
    """All peers' data, and what only the experiment knows: each peer's cluster, and the test data of each cluster."""

    peers: tuple[PeerData, ...]
    clusters: tuple[int, ...]
    """Each peer's distribution, an index into `tests` and `cluster_names`."""
    tests: tuple[Samples, ...]
    cluster_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.peers or any(not isinstance(cluster, int) for cluster in self.clusters):
            raise DataError("a federation needs at least one peer, and each peer's cluster as a whole number")
        if len(self.clusters) != len(self.peers):
            raise DataError(
                f"{len(self.peers)} peers, but clusters are given for {len(self.clusters)}: give each peer one"
            )
        if len(self.tests) != len(self.cluster_names) or any(not 0 <= k < len(self.tests) for k in self.clusters):
            raise DataError(
                f"clusters {sorted(set(self.clusters))}, but {len(self.tests)} test sets and {len(self.cluster_names)} "
                "names: each cluster needs a test set and a name"
            )
        for name, test in zip(self.cluster_names, self.tests, strict=True):
            if not len(test):
                raise DataError(f"the test set of cluster {name} is empty: each cluster needs test samples")
        check_alike([part for peer in self.peers for part in (peer.train, peer.val)] + list(self.tests))

    def members(self) -> dict[int, tuple[int, ...]]:
        """The peers of each cluster, in order."""
        found: dict[int, list[int]] = {}
        for peer, cluster in enumerate(self.clusters):
            found.setdefault(cluster, []).append(peer)
        return {cluster: tuple(peers) for cluster, peers in found.items()}

    @property
    def num_classes(self) -> int:
        parts = [p.train for p in self.peers] + [p.val for p in self.peers] + list(self.tests)
        return 1 + max(int(s.y.max()) for s in parts)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return tuple(self.peers[0].train.x.shape[1:])


def check_own_data(data: Dataset | Federation) -> None:
    """Refuse inputs of an own data set or federation that are not finite numbers, and say whose they are."""
    if isinstance(data, Dataset):
        parts = [("training", data.train), ("test", data.test)]
        check_finite((f"the {part} inputs of {data.name}", samples) for part, samples in parts)
        return
    check_finite(part for number, peer in enumerate(data.peers) for part in own_parts(f"peer {number}", peer))
    check_finite(
        (f"the test inputs of {name}", test) for name, test in zip(data.cluster_names, data.tests, strict=True)
    )


def own_parts(peer_name: str, data: PeerData, test: Samples | None = None) -> list[tuple[str, Samples]]:
    """A peer's samples with the names by which errors call them."""
    parts = [("training", data.train), ("validation", data.val), *([("test", test)] if test else [])]
    return [(f"the {part} inputs of {peer_name}", samples) for part, samples in parts]


def rotated_federation(dataset: Dataset, settings: ScenarioSettings, seed: int) -> Federation:
    """The paper's scenario, section 3: one equal part per rotation, rotated, handed out to that rotation's peers."""
    check_enough(dataset, settings)
    _check_square(dataset, settings)
    train_parts = _split(dataset.train, len(settings.rotations), rng.key(seed, "split train"))
    if settings.test == "partitioned":
        test_parts = _split(dataset.test, len(settings.rotations), rng.key(seed, "split test"))
    else:
        test_parts = [dataset.test] * len(settings.rotations)
    peers: list[PeerData] = []
    for part, angle in zip(train_parts, settings.rotations, strict=True):
        peers += _hand_out(rotate(part, angle, settings.half_turn), settings)
    per_cluster = settings.peers // len(settings.rotations)
    return Federation(
        peers=tuple(peers),
        clusters=tuple(p // per_cluster for p in range(settings.peers)),
        tests=tuple(
            rotate(part.take(slice(settings.test_samples)), angle, settings.half_turn)
            for part, angle in zip(test_parts, settings.rotations, strict=True)
        ),
        cluster_names=tuple(f"{angle % 360}°" for angle in settings.rotations),
    )


def pooled(federation: Federation, val_share: float | None = None) -> PeerData:
    """All peers' data in one place, as the `central` baseline has it (section 5.3): to train on, and to validate on the
    peers' validation data, or on a share of everything."""
    train, val = [], []
    for peer in federation.peers:
        data, cut = concatenate([peer.train, peer.val]), _trained_on(peer, val_share)
        train.append(data.take(slice(cut)))
        val.append(data.take(slice(cut, None)))
    return PeerData(concatenate(train), concatenate(val))


def pooled_sizes(federation: Federation, val_share: float | None = None) -> tuple[int, int]:
    """Samples that the `central` baseline trains on and validates on."""
    train = sum(_trained_on(peer, val_share) for peer in federation.peers)
    return train, sum(len(peer.train) + len(peer.val) for peer in federation.peers) - train


def _trained_on(peer: PeerData, val_share: float | None) -> int:
    """How many of a peer's samples `central` trains on, its training data first; either side gets one at least."""
    total = len(peer.train) + len(peer.val)
    return len(peer.train) if val_share is None else min(total - 1, max(1, total - round(val_share * total)))


def rotate(samples: Samples, angle: int, half_turn: str = "rotation") -> Samples:
    """Images turned by a multiple of 90 degrees, counter-clockwise; labels unchanged."""
    if angle % 360 == 180 and half_turn == "flip":
        return Samples(np.ascontiguousarray(samples.x[..., ::-1, :]), samples.y)
    return Samples(np.ascontiguousarray(np.rot90(samples.x, angle // 90 % 4, axes=(-2, -1))), samples.y)


def _split(samples: Samples, parts: int, key: int) -> list[Samples]:
    order: Array = np.random.default_rng(key).permutation(len(samples))
    size = len(samples) // parts
    return [samples.take(order[p * size : (p + 1) * size]) for p in range(parts)]


def _hand_out(part: Samples, settings: ScenarioSettings) -> list[PeerData]:
    each = settings.train_per_peer + settings.val_per_peer
    shares = [part.take(slice(p * each, (p + 1) * each)) for p in range(settings.peers // len(settings.rotations))]
    cut = settings.train_per_peer
    return [PeerData(s.take(slice(cut)), s.take(slice(cut, None))) for s in shares]


def check_enough(dataset: Dataset, settings: ScenarioSettings) -> None:
    """Refuse a scenario that needs more samples than there are."""
    clusters, each = len(settings.rotations), settings.train_per_peer + settings.val_per_peer
    if settings.test == "partitioned" and len(dataset.test) < clusters:
        raise NotEnoughData(
            f"{dataset.name} has {len(dataset.test)} test samples, but {clusters} rotations need at least one each: "
            "use fewer rotations or test = full"
        )
    per_cluster, peers_of_one = len(dataset.train) // clusters, settings.peers // clusters
    if peers_of_one * each <= per_cluster:
        return
    fits = [f"train_per_peer = {t}" for t in [per_cluster // peers_of_one - settings.val_per_peer] if t > 0]
    fits += [f"peers = {p}" for p in [per_cluster // each * clusters] if p >= 2]
    remedy = f"at most {' or '.join(fits)} would fit" if fits else "it is too small for this scenario"
    raise NotEnoughData(
        f"{settings.peers} peers × ({settings.train_per_peer} training + {settings.val_per_peer} validation samples) "
        f"= {settings.peers * each:,} samples, but {dataset.name} has {len(dataset.train):,}, "
        f"{per_cluster:,} for each of {clusters} rotations: {remedy}"
    )


def _check_square(dataset: Dataset, settings: ScenarioSettings) -> None:
    if all(angle % 360 == 0 for angle in settings.rotations):
        return
    shape = dataset.sample_shape
    if len(shape) < 2 or (shape[-1] != shape[-2] and any(angle % 180 for angle in settings.rotations)):
        raise DataError(f"{dataset.name} has samples of shape {shape}, which cannot be rotated: use rotations = [0]")

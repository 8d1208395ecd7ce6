# SPDX-License-Identifier: Apache-2.0
"""What each peer holds, and what it is tested on. Partitions (`pens.partitions`) make it of a data set.

`PeerData` is all that a peer's training ever sees. Which distribution a peer belongs to, and the test sets, stay in
`Federation`, for the experiment's set-up (`oracle`) and its measurements alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from pens.data.samples import Dataset, Samples, check_alike, check_finite, concatenate
from pens.errors import DataError


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
    """All peers' data, and what only the experiment knows: the test data, and each peer's cluster where that is known.

    Peers of one cluster share its test set. Where clusters are not known (None), each peer has a test set of its own.
    """

    peers: tuple[PeerData, ...]
    clusters: tuple[int, ...] | None
    """Each peer's distribution, an index into `cluster_names`; None: not known."""
    tests: tuple[Samples, ...]
    """Of each cluster, or of each peer where clusters are not known, unless `tested_on` says otherwise."""
    cluster_names: tuple[str, ...] = ()
    tested_on: tuple[int, ...] = ()
    """Each peer's test set, an index into `tests`."""

    def __post_init__(self) -> None:
        self._check_clusters()
        if not self.tested_on:
            own = tuple(range(len(self.peers))) if self.clusters is None else self.clusters
            object.__setattr__(self, "tested_on", own)
        self._check_tests()
        check_alike([part for peer in self.peers for part in (peer.train, peer.val)] + list(self.tests))

    def _check_clusters(self) -> None:
        clusters = self.clusters
        if not self.peers or any(not isinstance(cluster, int) for cluster in clusters or ()):
            raise DataError("a federation needs at least one peer, and each peer's cluster as a whole number")
        if clusters is None:
            if self.cluster_names:
                raise DataError(f"clusters = None, but they have names {self.cluster_names}: give both or neither")
            return
        if len(clusters) != len(self.peers):
            raise DataError(f"{len(self.peers)} peers, but clusters are given for {len(clusters)}: give each peer one")
        by_cluster = self.tested_on or len(self.tests) == len(self.cluster_names)
        if not by_cluster or any(not 0 <= k < len(self.cluster_names) for k in clusters):
            raise DataError(
                f"clusters {sorted(set(clusters))}, but {len(self.tests)} test sets and {len(self.cluster_names)} "
                "names: each cluster needs a test set and a name"
            )

    def _check_tests(self) -> None:
        places = self.tested_on
        if len(places) != len(self.peers) or any(not 0 <= k < len(self.tests) for k in places):
            raise DataError(
                f"{len(self.peers)} peers and {len(self.tests)} test sets, but the peers are tested on {places}: "
                "each peer needs a test set, one of its own where clusters are not known"
            )
        for number, test in enumerate(self.tests):
            if not len(test):
                whose = "cluster" if self.tested_on == self.clusters else "peer"
                name = self.test_name(number).removeprefix("peer ")
                raise DataError(f"the test set of {whose} {name} is empty: each {whose} needs test samples")

    def test_name(self, test: int) -> str:
        """Whose test set it is, as errors call it."""
        if self.tested_on != self.clusters:
            return f"peer {self.tested_on.index(test)}" if test in self.tested_on else f"number {test}"
        return self.cluster_names[test]

    def members(self) -> dict[int, tuple[int, ...]]:
        """The peers of each cluster, in order; none where clusters are not known."""
        found: dict[int, list[int]] = {}
        for peer, cluster in enumerate(self.clusters or ()):
            found.setdefault(cluster, []).append(peer)
        return {cluster: tuple(peers) for cluster, peers in found.items()}

    @property
    def smallest_cluster(self) -> int | None:
        """How many peers it has; None where clusters are not known."""
        return min(map(len, self.members().values()), default=None)

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
    check_finite((f"the test inputs of {data.test_name(number)}", test) for number, test in enumerate(data.tests))


def own_parts(peer_name: str, data: PeerData, test: Samples | None = None) -> list[tuple[str, Samples]]:
    """A peer's samples with the names by which errors call them."""
    parts = [("training", data.train), ("validation", data.val), *([("test", test)] if test else [])]
    return [(f"the {part} inputs of {peer_name}", samples) for part, samples in parts]


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

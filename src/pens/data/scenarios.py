# SPDX-License-Identifier: Apache-2.0
"""Federations: which samples each peer holds, and on which it is tested. Partitions make them from a data set.

`PeerData` is all that a peer's training ever sees. The peers' clusters and the test sets stay in `Federation`: only the
wiring of an experiment (for the method `oracle`) and its measurements read them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from pens.data.preparation import AS_GIVEN, Preparation
from pens.data.reading import Reading
from pens.data.samples import Dataset, Samples, check_alike, check_finite, concatenate
from pens.errors import DataError

Part = TypeVar("Part")

UNKNOWN = -1
"""The cluster of a peer of which it is not known, where those of others are."""


@dataclass(frozen=True)
class PeerData:
    """One peer's own training and validation samples."""

    train: Samples
    val: Samples

    def __post_init__(self) -> None:
        if not len(self.train) or not len(self.val):
            raise DataError(
                f"a peer has {len(self.train)} training and {len(self.val)} validation samples: "
                "each peer needs at least one of both"
            )


class Held(Protocol):
    """What a run may know of a federation: who holds which data, and in which cluster. It has no test data."""

    @property
    def peers(self) -> tuple[PeerData, ...]: ...

    @property
    def clusters(self) -> tuple[int, ...] | None: ...

    def members(self) -> dict[int, tuple[int, ...]]: ...


@dataclass(frozen=True)
class Untested:
    """A federation without its test data: runs are given this, so that none can look at them before its end."""

    peers: tuple[PeerData, ...]
    clusters: tuple[int, ...] | None

    def members(self) -> dict[int, tuple[int, ...]]:
        """The peers of each cluster, in order, as far as clusters are known."""
        members: dict[int, list[int]] = {}
        for peer, cluster in enumerate(self.clusters or ()):
            if cluster != UNKNOWN:
                members.setdefault(cluster, []).append(peer)
        return {cluster: tuple(peers) for cluster, peers in members.items()}


@dataclass(frozen=True)
class Federation:
    """The data of all peers, and what only the experiment knows: test sets, and each peer's cluster where it is known.

    Peers of one cluster share its test set. Where clusters are not known (None), each peer has a test set of its own.
    """

    peers: tuple[PeerData, ...]
    clusters: tuple[int, ...] | None
    """Each peer's cluster, as an index into `cluster_names`, or `UNKNOWN`; None: no cluster is known."""
    tests: tuple[Samples, ...]
    """The test set of each cluster, or of each peer where clusters are not known, unless `tested_on` says otherwise."""
    cluster_names: tuple[str, ...] = ()
    tested_on: tuple[int, ...] = ()
    """Each peer's test set, as an index into `tests`. Empty: as `tests` says."""
    peer_names: tuple[str, ...] = ()
    """The peers' names; empty: they have numbers."""
    class_names: tuple[str, ...] = ()
    """The classes' names, where labels were texts; empty: they have numbers."""
    declared_classes: int | None = None
    """How many classes there are, where that was declared: some may not be among the data."""
    preparation: Preparation = AS_GIVEN
    """How the peers' inputs were prepared, for those who use the tested models: no peer learns another's numbers."""

    @staticmethod
    def of(
        peers: Any,
        *,
        clusters: Mapping[str, Any] | Sequence[Any] | None = None,
        peer: str = "peer",
        target: str | Sequence[str] = "label",
        ignore: Sequence[str] = (),
        val_share: float = 0.2,
        test_share: float = 0.2,
        classes: Sequence[Any] | None = None,
        num_classes: int | None = None,
        numbers: bool = False,
        standardise: bool = False,
        seed: int = 0,
    ) -> Federation:
        """Own peers as a federation.

        peers:       {name: data} or a list of data, where data are (x, y) arrays, a torch data set, a table, or a tuple
                     (train, validation, test) of these; or one table with a column that names the peer
        clusters:    {name: cluster} or a list, as far as clusters are known
        peer:        the column of a table that names the peer
        target:      the column of a table that is to be predicted; several where there are several targets
        ignore:      columns of a table that are of no use
        val_share:   the share of a peer's data that becomes its validation data, where none are given
        test_share:  likewise for test data; both are seeded, and have the same mix of classes as the rest
        classes:     all classes in their order; None: those of all peers together, in sorted order
        num_classes: how many classes there are, where labels are numbers from 0 and the data may lack the last ones
        numbers:     whether targets are real numbers, and no classes
        standardise: whether each peer's inputs get mean 0 and deviation 1, by its own training data
        seed:        of the split
        """
        column = target if isinstance(target, str) else tuple(target)
        reading = Reading(
            peer, column, val_share, test_share, classes, num_classes, numbers, standardise, tuple(ignore)
        )
        return Federation.gathered(peers, clusters, seed, reading)

    @staticmethod
    def gathered(
        peers: Any, clusters: Mapping[str, Any] | Sequence[Any] | None, seed: int, reading: Reading
    ) -> Federation:
        """The same, with all that says how data are read in one."""
        from pens.data.own_peers import gather

        found = gather(peers, clusters, seed, reading)
        names = tuple(sorted({cluster for cluster in found.clusters if cluster is not None}))
        return Federation(
            tuple(PeerData(train, val) for train, val in found.held),
            tuple(UNKNOWN if of is None else names.index(of) for of in found.clusters) if names else None,
            tuple(found.tests),
            names,
            tuple(range(len(found.held))),
            peer_names=tuple(found.names),
            class_names=found.class_names,
            preparation=found.preparation,
        ).with_classes(reading.num_classes)

    def with_classes(self, num_classes: int | None) -> Federation:
        """The same federation with so many classes declared."""
        if num_classes is None:
            return self
        if self.class_names and num_classes < len(self.class_names):
            listed = ", ".join(self.class_names[:8]) + (" …" if len(self.class_names) > 8 else "")
            raise DataError(
                f"num_classes = {num_classes}, but the data have {len(self.class_names)} classes, {listed}: raise "
                "num_classes or correct the labels"
            )
        if num_classes < self.num_classes:
            raise DataError(
                f"num_classes = {num_classes}, but {self._beyond(num_classes)}: labels are numbered from 0, so raise "
                "num_classes or correct the label"
            )
        return replace(self, declared_classes=num_classes)

    def _beyond(self, num_classes: int) -> str:
        """The first sample whose label is that of no class, in words."""
        parts = [part for peer in self.peers for part in (peer.train, peer.val)] + list(self.tests)
        place, part = next((place, part) for place, part in enumerate(parts) if part.y.max() >= num_classes)
        sample = int((part.y >= num_classes).reshape(len(part), -1).any(1).argmax())
        return f"{self._name_of_part(place)} have the label {part.y[sample].max()} at sample {sample}"

    def __post_init__(self) -> None:
        self._check_clusters()
        if self.peer_names and len(set(self.peer_names)) != len(self.peers):
            raise DataError(
                f"{len(self.peers)} peers, but the names {self.peer_names}: each peer needs a name of its own"
            )
        if not self.tested_on:
            if UNKNOWN in (self.clusters or ()):
                raise DataError("some clusters are not known: say by `tested_on` which test set each peer has")
            own = tuple(range(len(self.peers))) if self.clusters is None else self.clusters
            object.__setattr__(self, "tested_on", own)
        self._check_tests()
        parts = [part for peer in self.peers for part in (peer.train, peer.val)] + list(self.tests)
        check_alike(parts, self._name_of_part)

    def _name_of_part(self, place: int) -> str:
        """Of training and validation data of each peer in turn, and then of test sets."""
        peer, is_val = divmod(place, 2)
        if peer < len(self.peers):
            return f"peer {self.name_of(peer)}'s {'validation' if is_val else 'training'} data"
        return f"the test data of {self.test_name(place - 2 * len(self.peers))}"

    def _check_clusters(self) -> None:
        clusters = self.clusters
        if not self.peers:
            raise DataError("a federation has 0 peers: it needs at least one peer")
        known = [cluster for cluster in clusters or () if cluster != UNKNOWN]
        if odd := [cluster for cluster in known if not isinstance(cluster, int)]:
            raise DataError(
                f"cluster {odd[0]!r}: give each peer's cluster as a whole number, an index of cluster_names, or "
                f"{UNKNOWN} where it is not known"
            )
        if clusters is None:
            if self.cluster_names:
                raise DataError(f"clusters = None, but they have names {self.cluster_names}: give both or neither")
            return
        if len(clusters) != len(self.peers):
            raise DataError(f"{len(self.peers)} peers, but clusters are given for {len(clusters)}: give each peer one")
        if twice := [name for name, count in Counter(self.cluster_names).items() if count > 1]:
            raise DataError(
                f"two clusters are called {twice[0]!r}: give each a name of its own, or make them one cluster"
            )
        by_cluster = self.tested_on or len(self.tests) == len(self.cluster_names)
        if not by_cluster or any(not 0 <= k < len(self.cluster_names) for k in known):
            raise DataError(
                f"peers are in the clusters {sorted(set(known))}, but there are {len(self.tests)} test sets and "
                f"{len(self.cluster_names)} names: each cluster needs a test set and a name"
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
        """The peer or cluster to which a test set belongs, as error messages name it."""
        if self.tested_on != self.clusters:
            return f"peer {self.name_of(self.tested_on.index(test))}" if test in self.tested_on else f"number {test}"
        return self.cluster_names[test]

    def name_of(self, peer: int) -> str:
        """A peer's name, or its number."""
        return self.peer_names[peer] if self.peer_names else str(peer)

    def members(self) -> dict[int, tuple[int, ...]]:
        """The peers of each cluster, in order, as far as clusters are known."""
        return self.untested.members()

    @cached_property
    def untested(self) -> Untested:
        """The same without test data."""
        return Untested(self.peers, self.clusters)

    @property
    def smallest_cluster(self) -> int | None:
        """The number of peers of the smallest cluster; None where the cluster of some peer is not known."""
        if UNKNOWN in (self.clusters or ()):
            return None
        return min(map(len, self.members().values()), default=None)

    @cached_property
    def fingerprint(self) -> str:
        """A text that is another one, as good as certainly, where peers hold or are tested on other data. Of large
        federations and of large arrays it looks at a part."""
        mark = hashlib.blake2b(digest_size=16)
        mark.update(repr((len(self.peers), self.clusters, self.cluster_names, self.tested_on)).encode())
        parts = [part for peer in _spread(self.peers) for part in (peer.train, peer.val)]
        for part in (*parts, *_spread(self.tests)):
            mark.update(repr((part.x.shape, part.x.dtype.str)).encode())
            mark.update(part.y.astype(np.int64).tobytes())
            mark.update(part.x[:: max(1, len(part) // 4)].tobytes())
        return mark.hexdigest()

    @property
    def num_classes(self) -> int:
        """How many there are: those that were declared, or else those of all peers together."""
        if self.declared_classes or self.class_names:
            return self.declared_classes or len(self.class_names)
        parts = [p.train for p in self.peers] + [p.val for p in self.peers] + list(self.tests)
        return 1 + max(int(s.y.max()) for s in parts)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return tuple(self.peers[0].train.x.shape[1:])


def _spread(parts: tuple[Part, ...], at_most: int = 500) -> tuple[Part, ...]:
    """Some of them, the first and others at equal distances."""
    return parts[:: max(1, -(-len(parts) // at_most))]


def check_own_data(data: Dataset | Federation) -> None:
    """Refuse a user's own data set or federation if some inputs are not finite numbers, and name the part."""
    if isinstance(data, Dataset):
        parts = [("training", data.train), ("test", data.test)]
        check_finite((f"the {part} inputs of {data.name}", samples) for part, samples in parts)
        return
    check_finite(
        part for number, peer in enumerate(data.peers) for part in own_parts(f"peer {data.name_of(number)}", peer)
    )
    check_finite((f"the test inputs of {data.test_name(number)}", test) for number, test in enumerate(data.tests))


def own_parts(peer_name: str, data: PeerData, test: Samples | None = None) -> list[tuple[str, Samples]]:
    """The parts of a peer's samples, with the names that error messages use for them."""
    parts = [("training", data.train), ("validation", data.val), *([("test", test)] if test else [])]
    return [(f"the {part} inputs of {peer_name}", samples) for part, samples in parts]


def pooled(federation: Held, val_share: float | None = None) -> PeerData:
    """The data of all peers in one place, for the baseline `central` (section 5.3). It validates on the peers'
    validation data, or on a share of all data."""
    train, val = [], []
    for peer in federation.peers:
        data, cut = concatenate([peer.train, peer.val]), _trained_on(peer, val_share)
        train.append(data.take(slice(cut)))
        val.append(data.take(slice(cut, None)))
    return PeerData(concatenate(train), concatenate(val))


def pooled_sizes(federation: Held, val_share: float | None = None) -> tuple[int, int]:
    """How many samples the baseline `central` trains on, and how many it validates on."""
    train = sum(_trained_on(peer, val_share) for peer in federation.peers)
    return train, sum(len(peer.train) + len(peer.val) for peer in federation.peers) - train


def _trained_on(peer: PeerData, val_share: float | None) -> int:
    """How many of a peer's samples `central` trains on. Training data come first; training and validation get at least
    one sample each."""
    total = len(peer.train) + len(peer.val)
    return len(peer.train) if val_share is None else min(total - 1, max(1, total - round(val_share * total)))

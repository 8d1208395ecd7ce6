# SPDX-License-Identifier: Apache-2.0
"""The partition `product`: any label law × any size law × any shifts (docs/decisions/0043).

A label law that makes clusters and each shift divide the peers; their product is the clusters of the federation, in the
order of the lists: two label groups and two rotations are four clusters. Each peer belongs to one cluster, unless
`mixture_alpha` says that its samples come from several.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, field_validator

from pens import parts, rng
from pens.data.samples import Array, Dataset, Samples
from pens.data.scenarios import Federation
from pens.errors import DataError, SettingsError
from pens.hooks import calling, is_ours
from pens.partitions.axes import Axis, LabelLaw, Shift, SizeLaw, View
from pens.partitions.cells import Cells, Part, share_out
from pens.partitions.labels import FINE, apportion, count_labels
from pens.partitions.partition import Partition, check_enough
from pens.partitions.sizes import bounded, divided, split_off
from pens.settings.section import Count, Section
from pens.settings.tree import Settings
from pens.tasks.task import task_of


class ProductSettings(Section):
    """The partition product: which laws and shifts are combined."""

    title: ClassVar[str] = "product"
    label_law: str = "iid"
    """Which labels a peer has."""
    size_law: str = "equal"
    """How unequal the peers' numbers of samples are. All peers together have peers × (train_per_peer + val_per_peer)
    samples; each one's are divided into training and validation samples by the ratio of these two."""
    smallest_peer: Annotated[int, Field(ge=2)] = 10
    """The smallest number of training and validation samples of a peer, where sizes are unequal."""
    shift: tuple[str, ...] = ()
    """How clusters of peers differ; several shifts are combined, each with each."""
    cluster_shares: tuple[Count, ...] = ()
    """How the peers are divided among the clusters, in the clusters' order: 70, 20, 5, 5 of 100 peers, or 14, 4, 1, 1
    of 20, and at least one each; empty: equally. With mixture_alpha: how the samples are, on average."""
    mixture_alpha: Annotated[float, Field(ge=1e-3, le=1e6)] | None = None
    """Whether each peer's samples come from several clusters, with shares from Dirichlet(alpha, …), as of label shares:
    at 0.01 nearly every peer has one cluster, at 100 all peers have the same mixture. Clusters are then not known.
    none: each peer has one cluster."""

    @field_validator("label_law", "size_law")
    @classmethod
    def _from_anywhere(cls, part: str) -> str:
        return parts.absolute(part) if parts.is_reference(part) else part

    @field_validator("shift")
    @classmethod
    def _shifts_from_anywhere(cls, shifts: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(shifts)) < len(shifts):
            raise ValueError("names a shift twice: list each once")
        return tuple(parts.absolute(part) if parts.is_reference(part) else part for part in shifts)


class Product(Partition):
    """Labels × sizes × shifts, each by a part of its own."""

    name = "product"
    about = "any label law × any size law × any shifts of clusters, or mixtures of clusters within peers"
    section = ProductSettings
    keys = ("test",)

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:
        """Refuse settings that do not fit each other, and data sets that do not fit them."""
        chosen, scenario = settings.section(ProductSettings), settings.scenario
        names = cluster_names(settings)
        if twice := [name for name in names if names.count(name) > 1]:
            raise SettingsError(f"two clusters are called {twice[0]!r}: give the shifts' clusters other names")
        if chosen.cluster_shares and len(chosen.cluster_shares) != len(names):
            raise SettingsError(
                f"cluster_shares = {list(chosen.cluster_shares)} are {len(chosen.cluster_shares)} clusters, but there "
                f"are {len(names)}: {', '.join(names)}"
            )
        if chosen.mixture_alpha is None and len(names) > scenario.peers:
            raise SettingsError(
                f"{len(names)} clusters, but peers = {scenario.peers}: set peers = {len(names)} or more, or "
                "mixture_alpha"
            )
        each = scenario.train_per_peer + scenario.val_per_peer
        if chosen.size_law != "equal" and chosen.smallest_peer > each:
            raise SettingsError(
                f"smallest_peer = {chosen.smallest_peer}, but peers have {each} samples on average: lower it or raise "
                "train_per_peer"
            )
        self._check_axes(settings, dataset)
        if dataset:
            check_enough(dataset, scenario)

    def _check_axes(self, settings: Settings, dataset: Dataset | None) -> None:
        for axis in axes_of(settings):
            if axis.needs_classes and not task_of(settings).has_one_class:
                raise SettingsError(
                    f"{axis.name} needs a class for each sample, but with task = {settings.model.task!r} a sample has "
                    "none: use another law or shift"
                )
            with calling(f"{axis.name} of the partition product", axis, "check"):
                axis.check(settings, dataset)

    def build(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        shifts = shifts_of(settings)

        def change(samples: Samples, cluster: int, part: Part) -> Samples:
            for number, shift in enumerate(shifts):
                own = own_cluster(settings, cluster, number + 1)
                generator = np.random.default_rng(rng.key(seed, "shift", shift.name, cluster, part))
                with calling(f"shift {shift.name}", shift, "apply"):
                    changed = shift.apply(samples, View(settings, dataset, seed, own, generator))
                samples = _checked(shift, samples, changed)
            return samples

        return share_out(dataset, *_plan(dataset, settings, seed), settings.scenario, seed, change if shifts else None)

    def indices(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        return share_out(dataset, *_plan(dataset, settings, seed), settings.scenario, seed)

    def changes(self, settings: Settings) -> str:
        names = [shift.name for shift in shifts_of(settings)]
        return f"the shift{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""

    def describe(self, settings: Settings) -> str:
        chosen = settings.section(ProductSettings)
        words = [axis.describe(settings) for axis in axes_of(settings)[:2]]
        shifts = [" and ".join(shift.clusters(settings)) for shift in shifts_of(settings)]
        mixed = [] if chosen.mixture_alpha is None else [f"clusters mixed within peers ({chosen.mixture_alpha:g})"]
        return ", ".join([*words, *shifts, *mixed])

    def beside_clusters(self, settings: Settings) -> str:
        if self.cluster_sizes(settings) is None:
            return self.describe(settings)
        law, sizes = label_law_of(settings), size_law_of(settings)
        said = [law] if not law.by_cluster else []
        return ", ".join(axis.describe(settings) for axis in [*said, *([sizes] if sizes.name != "equal" else [])])

    def cluster_sizes(self, settings: Settings) -> Mapping[str, int] | None:
        chosen, names = settings.section(ProductSettings), cluster_names(settings)
        known = chosen.shift or label_law_of(settings).by_cluster
        if chosen.mixture_alpha is not None or not known:
            return None
        return dict(zip(names, _cluster_peers(settings, len(names)), strict=True))


# --- what settings name -----------------------------------------------------------------------------------------------


def label_law_of(settings: Settings) -> LabelLaw:
    """The label law of these settings."""
    found: LabelLaw = parts.LABEL_LAWS.find(settings.section(ProductSettings).label_law)
    return found


def size_law_of(settings: Settings) -> SizeLaw:
    """The size law of these settings."""
    found: SizeLaw = parts.SIZE_LAWS.find(settings.section(ProductSettings).size_law)
    return found


def shifts_of(settings: Settings) -> list[Shift]:
    """The shifts of these settings, in order."""
    return [parts.SHIFTS.find(name) for name in settings.section(ProductSettings).shift]


def axes_of(settings: Settings) -> list[Axis]:
    """All laws and shifts of these settings."""
    return [label_law_of(settings), size_law_of(settings), *shifts_of(settings)]


def _clusters_by_axis(settings: Settings) -> list[tuple[str, ...]]:
    """The names of the label law's own clusters, and of each shift's; one without a name where the law makes none."""
    return [label_law_of(settings).clusters(settings) or ("",), *(s.clusters(settings) for s in shifts_of(settings))]


def cluster_names(settings: Settings) -> tuple[str, ...]:
    """The names of all clusters: one of each axis."""
    together = (" × ".join(filter(None, names)) for names in product(*_clusters_by_axis(settings)))
    return tuple(name or "all" for name in together)


def own_cluster(settings: Settings, cluster: int, axis: int) -> int:
    """Which of its own clusters an axis has in one of the product. `axis`: 0 is the label law, 1 the first shift."""
    counts = [len(names) for names in _clusters_by_axis(settings)]
    return cluster // math.prod(counts[axis + 1 :]) % counts[axis]


def _cluster_peers(settings: Settings, clusters: int) -> list[int]:
    """How many peers each cluster has."""
    shares = settings.section(ProductSettings).cluster_shares or (1,) * clusters
    return divided(shares, settings.scenario.peers)


# --- who gets what ----------------------------------------------------------------------------------------------------


def _plan(dataset: Dataset, settings: Settings, seed: int) -> tuple[tuple[Array, Array], Cells]:
    """The labels by which samples are shared out, and who gets how many of which."""
    law, chosen, scenario = label_law_of(settings), settings.section(ProductSettings), settings.scenario
    sizes = _sizes(settings, seed)
    labels = _labels(dataset, law)
    there = np.bincount(labels[0], minlength=dataset.num_classes if law.needs_classes else 1)
    names = cluster_names(settings)
    by_cluster = _by_cluster(settings, sizes, len(names), seed)
    counts = _counts(law, there, by_cluster, settings, seed)
    train = sizes - split_off(sizes, scenario.train_per_peer, scenario.val_per_peer)
    own = by_cluster.argmax(1).tolist()
    known = chosen.mixture_alpha is None and (chosen.shift or law.by_cluster)
    clusters = tuple(own) if known else None
    if not (law.by_cluster and known):
        return labels, Cells(counts, train, counts, tuple(range(len(sizes))), clusters, names if known else ())
    tests = np.zeros((len(names), len(names), len(there)), np.int64)
    for cluster in range(len(names)):
        tests[cluster, cluster] = law.shares(there, own_cluster(settings, cluster, 0), settings)
    return labels, Cells(counts, train, tests, tuple(own), clusters, names)


def _sizes(settings: Settings, seed: int) -> Array:
    """How many training and validation samples each peer has.  [peer]"""
    law, scenario = size_law_of(settings), settings.scenario
    each = scenario.train_per_peer + scenario.val_per_peer
    if law.name == "equal":
        return np.full(scenario.peers, each)
    generator = np.random.default_rng(rng.key(seed, "sizes"))
    with calling(f"size law {law.name}", law, "weights"):
        weights = np.asarray(law.weights(scenario.peers, settings, generator), np.float64)
    if weights.shape != (scenario.peers,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise DataError(
            f"size law {law.name} gave weights {weights}: return {scenario.peers} numbers above 0, one for each peer"
        )
    return bounded(weights, scenario.peers * each, settings.section(ProductSettings).smallest_peer, generator)


def _labels(dataset: Dataset, law: LabelLaw) -> tuple[Array, Array]:
    """By what training and test samples are told apart; all alike for a law that looks at no classes."""
    if not law.needs_classes:
        return np.zeros(len(dataset.train), np.int64), np.zeros(len(dataset.test), np.int64)
    for part in (dataset.train, dataset.test):
        count_labels(part, dataset.num_classes)
    return dataset.train.y, dataset.test.y


def _by_cluster(settings: Settings, sizes: Array, clusters: int, seed: int) -> Array:
    """How many samples of each cluster every peer has.  [peer, cluster]"""
    chosen, peers = settings.section(ProductSettings), np.arange(len(sizes))
    if chosen.mixture_alpha is None:
        found = np.zeros((len(sizes), clusters), np.int64)
        found[peers, np.repeat(np.arange(clusters), _cluster_peers(settings, clusters))] = sizes
        return found
    generator = np.random.default_rng(rng.key(seed, "mixture"))
    weights = np.array(chosen.cluster_shares or [1] * clusters)
    shares = generator.dirichlet(chosen.mixture_alpha * clusters * weights / weights.sum(), len(sizes))
    return apportion(np.rint(shares * FINE).astype(np.int64), sizes, generator)


def _counts(law: LabelLaw, there: Array, by_cluster: Array, settings: Settings, seed: int) -> Array:
    """How many samples of each cluster and label every peer has. A law of the peers' own says which labels a peer has;
    they are then divided among its clusters. A law by cluster says it for a peer's samples of each cluster.

    there [label], by_cluster [peer, cluster]  → [peer, cluster, label]
    """
    generator = np.random.default_rng(rng.key(seed, "label law"))
    peers, clusters = by_cluster.shape
    if not law.by_cluster:
        sizes = by_cluster.sum(1)
        counts = _of_law(law, there, sizes, np.zeros_like(sizes), settings, generator)
        if clusters == 1:
            return counts[:, None]
        weights = by_cluster[:, None].repeat(len(there), 1)
        return apportion(weights, counts, generator).swapaxes(1, 2)
    found = np.zeros((peers, clusters, len(there)), np.int64)
    peer, cluster = np.nonzero(by_cluster)
    own = np.array([own_cluster(settings, number, 0) for number in range(clusters)])[cluster]
    found[peer, cluster] = _of_law(law, there, by_cluster[peer, cluster], own, settings, generator)
    return found


def _of_law(
    law: LabelLaw, there: Array, sizes: Array, clusters: Array, settings: Settings, generator: np.random.Generator
) -> Array:
    """What a label law says, checked.  → [peer, label]"""
    with calling(f"label law {law.name}", law, "counts"):
        counts = law.counts(there, sizes, clusters, settings, generator)
    if is_ours(type(law)):
        return counts
    counts = np.asarray(counts)
    right = counts.shape == (len(sizes), len(there)) and counts.dtype.kind in "iu" and (counts >= 0).all()
    if not right or (counts.sum(1) != sizes).any() or (counts.sum(0) > there).any():
        raise DataError(
            f"label law {law.name} gave counts that cannot be handed out: return whole numbers [peer, label] whose "
            "sums over labels are `sizes`, and whose sums over peers are at most `there`"
        )
    return counts


def _checked(shift: Shift, before: Samples, after: Any) -> Samples:
    """Refuse what a shift made of samples where it is none, or has another form."""
    if not isinstance(after, Samples) or (after.x.shape, after.y.shape) != (before.x.shape, before.y.shape):
        raise DataError(
            f"shift {shift.name} returned {type(after).__name__} of another form than it was given: return "
            "pens.Samples, as many and of the same shapes"
        )
    return after

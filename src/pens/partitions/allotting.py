# SPDX-License-Identifier: Apache-2.0
"""Laws become numbers: how many samples of each cluster and label every peer of the partition product gets."""

from __future__ import annotations

import numpy as np

from pens import rng
from pens.data.samples import Array, Dataset
from pens.errors import DataError
from pens.hooks import calling, is_ours
from pens.partitions.axes import LabelLaw
from pens.partitions.cells import Cells
from pens.partitions.combination import (
    ProductSettings,
    cluster_names,
    label_law_of,
    own_cluster,
    peers_of_clusters,
    size_law_of,
)
from pens.partitions.labels import FINE, apportion, count_labels
from pens.partitions.sizes import bounded, split_off
from pens.settings.tree import Settings


def allot(dataset: Dataset, settings: Settings, seed: int) -> tuple[tuple[Array, Array], Cells]:
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
        found[peers, np.repeat(np.arange(clusters), peers_of_clusters(settings, clusters))] = sizes
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

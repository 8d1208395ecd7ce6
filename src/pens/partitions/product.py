# SPDX-License-Identifier: Apache-2.0
"""The partition `product`: any label law × any size law × any shifts (docs/decisions/0043).

A label law that makes clusters and each shift divide the peers; their product is the clusters of the federation, in the
order of the lists: two label groups and two rotations are four clusters. Each peer belongs to one cluster, unless
`mixture_alpha` says that its samples come from several.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pens import rng
from pens.data.samples import Dataset, Samples
from pens.data.scenarios import Federation
from pens.errors import DataError, SettingsError
from pens.hooks import calling
from pens.partitions.allotting import allot
from pens.partitions.axes import Shift, View
from pens.partitions.cells import Part, share_out
from pens.partitions.combination import (
    ProductSettings,
    axes_of,
    cluster_names,
    label_law_of,
    own_cluster,
    peers_of_clusters,
    shifts_of,
    size_law_of,
)
from pens.partitions.partition import Partition, check_enough
from pens.settings.tree import Settings
from pens.tasks.task import task_of


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

        return share_out(dataset, *allot(dataset, settings, seed), settings.scenario, seed, change if shifts else None)

    def indices(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        return share_out(dataset, *allot(dataset, settings, seed), settings.scenario, seed)

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
        return dict(zip(names, peers_of_clusters(settings, len(names)), strict=True))


def _checked(shift: Shift, before: Samples, after: Any) -> Samples:
    """Refuse what a shift made of samples where it is none, or has another form."""
    if not isinstance(after, Samples) or (after.x.shape, after.y.shape) != (before.x.shape, before.y.shape):
        raise DataError(
            f"shift {shift.name} returned {type(after).__name__} of another form than it was given: return "
            "pens.Samples, as many and of the same shapes"
        )
    return after

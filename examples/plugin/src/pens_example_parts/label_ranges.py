# SPDX-License-Identifier: Apache-2.0
"""`label-ranges`: label skew in which each peer holds a contiguous range of labels.

With C labels and K peers, peer k begins at label ⌊k · C / K⌋ and holds `labels_each` labels from there on, after the
last of them the first ones again. It has equally many samples of each, or one more of some. Neighbouring peers have
labels in common, so there are no clusters.
"""

from __future__ import annotations

import numpy as np

import pens


class LabelRangesSettings(pens.Section):
    """The partition label-ranges."""

    title = "label-ranges"
    labels_each: pens.Count = 3
    """How many labels each peer holds."""


class LabelRanges(pens.Partition):
    """Peers without clusters, each with a contiguous range of labels."""

    name = "label-ranges"
    about = "label skew: a contiguous range of labels for each peer; no clusters"
    section = LabelRangesSettings
    keys = ("test",)

    def check(self, settings: pens.Settings, dataset: pens.Dataset | None = None) -> None:
        """Refuse more labels than there are, and more samples of a label than there are."""
        super().check(settings, dataset)
        if dataset is None:
            return
        each = settings.section(LabelRangesSettings).labels_each
        if each > dataset.num_classes:
            raise pens.SettingsError(
                f"labels_each = {each}, but {dataset.name} has {dataset.num_classes} labels: lower labels_each"
            )
        scenario, there = settings.scenario, pens.count_labels(dataset.train, dataset.num_classes)
        size = scenario.train_per_peer + scenario.val_per_peer
        wanted = ranges(scenario.peers, dataset.num_classes, each).sum(0) * -(-size // each)
        if (wanted > there).any():
            label = int((wanted - there).argmax())
            raise pens.NotEnoughData(
                f"the peers want up to {wanted[label]} samples of label {label}, but {dataset.name} has "
                f"{there[label]}: lower train_per_peer or peers"
            )

    def build(self, dataset: pens.Dataset, settings: pens.Settings, seed: int) -> pens.Federation:
        scenario, each = settings.scenario, settings.section(LabelRangesSettings).labels_each
        held = ranges(scenario.peers, dataset.num_classes, each)
        generator = np.random.default_rng(pens.rng.key(seed, "label-ranges"))
        counts = pens.apportion(held, scenario.train_per_peer + scenario.val_per_peer, generator)
        return pens.federation_of(dataset, counts, scenario, seed)

    def describe(self, settings: pens.Settings) -> str:
        return f"ranges of {settings.section(LabelRangesSettings).labels_each} labels"


def ranges(peers: int, num_classes: int, each: int) -> pens.Array:
    """Which labels every peer holds, as ones and zeros.

    Two peers, four labels, three each: the first holds 0, 1, 2 and the second 2, 3, 0.

    → [peer, label]
    """
    begins = np.arange(peers) * num_classes // peers
    held: pens.Array = ((np.arange(num_classes) - begins[:, None]) % num_classes < each).astype(np.int64)
    return held

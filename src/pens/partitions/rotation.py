# SPDX-License-Identifier: Apache-2.0
"""The paper's scenario: covariate shift by rotation (section 3).

"The train and test sets are randomly split into one equally large partition for each value of r, and a rotation of r
is applied on each partition. Then each client is populated with training samples uniformly from one such data
distribution."
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pens import rng
from pens.data.samples import IGNORED, Array, Dataset, Samples
from pens.data.scenarios import Federation, PeerData
from pens.errors import DataError, NotEnoughData, SettingsError
from pens.partitions.partition import Partition, check_enough
from pens.partitions.turning import turned
from pens.settings.schema import Interpolation, ScenarioSettings
from pens.settings.tree import Settings

ROTATION_KEYS = ("rotations", "half_turn", "interpolation", "test")
"""The settings of [scenario] that decide how images are turned, and `test`."""


class Rotation(Partition):
    """Clusters of equally many peers, each with a rotation of its own."""

    name = "rotation"
    about = "equally many peers for each of some rotations of the images (the paper's scenario)"
    keys = ROTATION_KEYS

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:
        """Refuse a number of peers that cannot be divided among the rotations, and too few or no images."""
        scenario, clusters = settings.scenario, len(settings.scenario.rotations)
        if scenario.peers % clusters:
            below = scenario.peers - scenario.peers % clusters
            near = " or ".join(str(p) for p in (below, below + clusters) if p >= 2)
            raise SettingsError(
                f"peers = {scenario.peers}, but {clusters} rotations need the same number of peers each: use {near}"
            )
        if dataset:
            check_square(dataset, scenario)
            check_parts(dataset, scenario)

    def build(self, dataset: Dataset, settings: Settings, seed: int) -> Federation:
        return rotated_federation(dataset, settings.scenario, seed)

    def changes(self, settings: Settings) -> str:
        return rotation_words(settings.scenario)

    def describe(self, settings: Settings) -> str:
        return f"rotations {', '.join(rotation_names(settings.scenario))}"

    def cluster_sizes(self, settings: Settings) -> Mapping[str, int]:
        scenario = settings.scenario
        return dict.fromkeys(rotation_names(scenario), scenario.peers // len(scenario.rotations))


def rotated_federation(dataset: Dataset, settings: ScenarioSettings, seed: int) -> Federation:
    """The paper's scenario, section 3: one equal part per rotation, rotated, handed out to that rotation's peers."""
    check_parts(dataset, settings)
    check_square(dataset, settings)
    per_cluster = settings.peers // len(settings.rotations)
    train_parts = split(dataset.train, len(settings.rotations), rng.key(seed, "split train"))
    peers: list[PeerData] = []
    for part, angle in zip(train_parts, settings.rotations, strict=True):
        peers += hand_out(rotate(part, angle, settings.half_turn, settings.interpolation), per_cluster, settings)
    return Federation(
        peers=tuple(peers),
        clusters=tuple(p // per_cluster for p in range(settings.peers)),
        tests=rotated_tests(dataset, settings, seed),
        cluster_names=rotation_names(settings),
    )


def rotation_names(settings: ScenarioSettings) -> tuple[str, ...]:
    """What the clusters are called."""
    return tuple(f"{angle % 360}°" for angle in settings.rotations)


def rotated_tests(dataset: Dataset, settings: ScenarioSettings, seed: int) -> tuple[Samples, ...]:
    """A test set for each rotation."""
    parts = [dataset.test] * len(settings.rotations)
    if settings.test == "partitioned":
        parts = split(dataset.test, len(settings.rotations), rng.key(seed, "split test"))
    return tuple(
        rotate(part.take(slice(settings.test_samples)), angle, settings.half_turn, settings.interpolation)
        for part, angle in zip(parts, settings.rotations, strict=True)
    )


def rotate(
    samples: Samples, angle: int, half_turn: str = "rotation", interpolation: Interpolation = "bilinear"
) -> Samples:
    """Images turned by so many degrees, counter-clockwise; labels unchanged. Labels of pixels [sample, height, width]
    are turned with them, and ignored where the image has no pixel."""
    if angle % 360 == 180 and half_turn == "flip":
        flipped = np.ascontiguousarray(samples.x[..., ::-1, :])
        return Samples(flipped, np.ascontiguousarray(samples.y[..., ::-1, :]) if samples.y.ndim == 3 else samples.y)
    y = turned(samples.y, angle, "nearest", IGNORED) if samples.y.ndim == 3 else samples.y
    return Samples(turned(samples.x, angle, interpolation), y)


def rotation_words(settings: ScenarioSettings) -> str:
    """What is done to images, in a few words; empty where they stay as they are."""
    angles = ", ".join(str(angle) for angle in settings.rotations)
    return f"the rotations {angles}" if any(angle % 360 for angle in settings.rotations) else ""


def split(samples: Samples, parts: int, key: int) -> list[Samples]:
    """Parts of equal size, at random."""
    order: Array = np.random.default_rng(key).permutation(len(samples))
    size = len(samples) // parts
    return [samples.take(order[p * size : (p + 1) * size]) for p in range(parts)]


def hand_out(part: Samples, peers: int, settings: ScenarioSettings) -> list[PeerData]:
    """Pieces for so many peers, each one's last samples for validation."""
    each = settings.train_per_peer + settings.val_per_peer
    shares: Sequence[Samples] = [part.take(slice(p * each, (p + 1) * each)) for p in range(peers)]
    cut = settings.train_per_peer
    return [PeerData(s.take(slice(cut)), s.take(slice(cut, None))) for s in shares]


def check_tests(dataset: Dataset, settings: ScenarioSettings) -> None:
    """Refuse a test set that has no part for each rotation."""
    clusters = len(settings.rotations)
    if settings.test == "partitioned" and len(dataset.test) < clusters:
        raise NotEnoughData(
            f"{dataset.name} has {len(dataset.test)} test samples, but {clusters} rotations need at least one each: "
            "use fewer rotations or test = full"
        )


def check_parts(dataset: Dataset, settings: ScenarioSettings) -> None:
    """Refuse a scenario that needs more samples than there are in each rotation's part."""
    check_tests(dataset, settings)
    check_enough(dataset, settings, len(settings.rotations))


def check_square(dataset: Dataset, settings: ScenarioSettings) -> None:
    """Refuse samples that cannot be rotated as asked."""
    if all(angle % 360 == 0 for angle in settings.rotations):
        return
    shape = dataset.sample_shape
    if len(shape) < 2 or (shape[-1] != shape[-2] and any(angle % 180 for angle in settings.rotations)):
        raise DataError(
            f"{dataset.name} has samples of shape {shape}, which cannot be rotated: use rotations = [0] or "
            "another partition, or name the column or array of the peers by peer_column"
        )

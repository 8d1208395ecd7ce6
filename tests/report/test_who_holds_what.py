# SPDX-License-Identifier: Apache-2.0
"""Pictures of who holds what: what is drawn of each cluster."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from pens.data.samples import Samples
from pens.data.scenarios import Federation, PeerData
from pens.report.cluster_samples import tiles_of
from pens.report.who_holds_what import _map, draw_holders, holders


def images(value: float, labels: list[int], channels: int = 1) -> Samples:
    return Samples(np.full((len(labels), channels, 2, 2), value), np.array(labels))


def federation(peers: int = 4, channels: int = 1) -> Federation:
    """The first peer is alone in cluster "bright", the others are in "dark"; each is tested on classes of its own."""
    clusters = tuple(int(peer > 0) for peer in range(peers))
    held = tuple(
        PeerData(images(-of, [0] * (10 + peer), channels), images(-of, [1], channels))
        for peer, of in enumerate(clusters)
    )
    tests = tuple(images(-of, [peer % 3, peer % 3], channels) for peer, of in enumerate(clusters))
    return Federation(held, clusters, tests, ("bright", "dark"), tuple(range(peers)))


def test_one_image_of_each_class_that_some_peer_of_the_cluster_is_tested_on() -> None:
    tiles = tiles_of(federation())
    assert tiles
    assert tiles.clusters == ("bright", "dark")
    assert tiles.labels == (("0",), ("0", "1", "2"))
    assert [of.shape for of in tiles.images] == [(1, 2, 2, 1), (3, 2, 2, 1)]
    assert all(0 <= of.min() <= of.max() <= 1 for of in tiles.images)


def test_no_images_where_there_are_none_or_clusters_are_not_known() -> None:
    whole = federation()
    unknown = Federation(whole.peers, None, whole.tests, tested_on=whole.tested_on)
    assert tiles_of(unknown) is None
    assert tiles_of(federation(channels=2)) is None


def test_many_peers_are_drawn_by_cluster_and_size() -> None:
    figure = Figure()
    _map(figure.subfigures(1, 1, squeeze=False)[0, 0], holders(federation(70)), ("0", "1", "2"))
    axes = figure.get_axes()
    heights = [bar.get_height() for bar in axes[0].patches]  # type: ignore[attr-defined]
    assert heights == [11, *range(80, 11, -1)]  # the first cluster's only peer, then the others, the largest first
    assert [text.get_text() for text in axes[0].texts] == ["bright (1)", "dark (69)"]
    assert axes[1].images[0].get_array().shape == (3, 70)  # type: ignore[union-attr]


def test_pictures_are_written(tmp_path: Path) -> None:
    draw_holders(federation(channels=3), tmp_path / "data.png")
    assert (tmp_path / "data.png").stat().st_size > 5000

# SPDX-License-Identifier: Apache-2.0
"""The data that a peer holds, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass

from pens.data.preparation import AS_GIVEN, Preparation
from pens.data.samples import Samples
from pens.data.scenarios import PeerData


@dataclass(frozen=True)
class Holding:
    """The data that a peer holds."""

    data: PeerData
    test: Samples | None
    num_classes: int
    """Classes of the whole federation; in tasks without classes, how many numbers the network gives."""
    cluster: str | None = None
    """The peer's cluster, where the scenario tells it; no decision depends on it."""
    class_names: tuple[str, ...] = ()
    """The names of the classes, where labels are texts."""
    preparation: Preparation = AS_GIVEN
    """How this peer's own inputs were prepared."""

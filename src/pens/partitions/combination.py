# SPDX-License-Identifier: Apache-2.0
"""Which label law, size law and shifts settings combine, and which clusters they make together."""

from __future__ import annotations

import math
from itertools import product
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from pens import parts
from pens.partitions.axes import Axis, LabelLaw, Shift, SizeLaw
from pens.partitions.sizes import divided
from pens.settings.section import Count, Section
from pens.settings.tree import Settings


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


def peers_of_clusters(settings: Settings, clusters: int) -> list[int]:
    """How many peers each cluster has."""
    shares = settings.section(ProductSettings).cluster_shares or (1,) * clusters
    return divided(shares, settings.scenario.peers)

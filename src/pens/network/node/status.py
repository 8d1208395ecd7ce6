# SPDX-License-Identifier: Apache-2.0
"""What a node counts, and what it tells its monitor: plain data, to be read from any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pens.measuring.trust import TrustRecord
from pens.tasks.metric import ACCURACY, Measure


@dataclass
class PeerCounts:
    """Models that were sent and received, and their bytes."""

    sent: int = 0
    received: int = 0
    refused: int = 0
    """Models of senders that are not among the peer's neighbours."""
    malformed: int = 0
    """Payloads that were not a valid model."""
    outdated: int = 0
    """Models whose version was old, repeated with other numbers, or absurd."""
    other_network: int = 0
    """Models of another network, and own models that others refused for that reason."""
    failed: int = 0
    """Own models that were not delivered: the receiver could not be reached, was busy or refused them."""
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass
class JobTimes:
    """When a node's jobs were carried out, in this life."""

    in_progress: bool = False
    """A job is in progress."""
    total_s: float = 0.0
    """Seconds spent in jobs."""
    last_update: float | None = None
    """When the last update was complete, on the event loop's clock; None before the first."""


@dataclass(frozen=True)
class Status:
    """What a node is doing at one moment, for its monitor."""

    name: str
    phase: str
    updates: int
    """Updates in this phase."""
    version: int
    """Version of its model."""
    done: bool
    """The peer has done its updates, or stopped early."""
    training: bool
    """A job is in progress."""
    neighbours: tuple[str, ...]
    members: Mapping[str, str]
    """The other members, and the status of each."""
    val_accuracy: float | None
    val_loss: float | None
    last_update: float | None
    """When the last update was complete, on the event loop's clock; None before the first of this life."""
    training_s: float
    """Seconds spent in jobs, in this life."""
    accuracy: float | None
    counts: PeerCounts
    merged: int
    scored: int
    refusals: Mapping[str, int]
    """Calls and models that the transport refused, by reason, in this life."""
    due: float
    """When the next status is due, on the event loop's clock."""
    first_val_accuracy: float | None = None
    """Accuracy after the first training, before any model of another peer was merged."""
    kept_val_accuracy: float | None = None
    """Accuracy of the model that it keeps, the best so far."""
    alone_val_accuracy: float | None = None
    """Accuracy of a model trained on its own data alone; None until that is known."""
    val_gain: float | None = None
    """By how much the kept model is better than that one."""
    progress: tuple[int, int] = (0, 0)
    """What is done of this phase, and how much there is at most: samplings in step 1, updates elsewhere."""
    misfits: Mapping[str, str] = field(default_factory=dict)
    """Members that are there and have another network, and how each was recognised."""
    by_terms: frozenset[str] = frozenset()
    """Those of them that do not fit by what they say of themselves; the others were recognised by a model."""
    bytes_relayed: int = 0
    """Carried between two other members, in this life."""
    fingerprint: str = ""
    """Of what this peer needs to agree on with others."""
    undone: int = 0
    """Updates that were undone, because the loss was not a finite number."""
    trust: TrustRecord | None = None
    """How the models of others did; None where they are trusted."""
    distrusted: tuple[str, ...] = ()
    """Members that are dropped at this moment, because their models kept hurting."""
    metric: Measure = ACCURACY
    """What is measured: wherever accuracy is said, the main metric of the task."""

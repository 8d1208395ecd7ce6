# SPDX-License-Identifier: Apache-2.0
"""What a node counts, and what it tells those who watch it: plain data, to be read from any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class PeerCounts:
    """Models, but for the bytes."""

    sent: int = 0
    received: int = 0
    refused: int = 0
    """From senders that are no neighbours."""
    malformed: int = 0
    """Payloads that were no model of this network's kind."""
    other_network: int = 0
    """Models of another network than ours, and models of ours that others refused for that."""
    failed: int = 0
    """Not delivered: the receiver could not be reached, was busy or would not have it."""
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(frozen=True)
class Status:
    """What a node is doing, for those who watch it."""

    name: str
    phase: str
    updates: int
    """In this phase."""
    version: int
    """Of its model."""
    done: bool
    """It has done its updates, or stopped early."""
    training: bool
    """A job is in progress."""
    neighbours: tuple[str, ...]
    members: Mapping[str, str]
    """Others, and what is thought of them."""
    val_accuracy: float | None
    val_loss: float | None
    last_update: float | None
    """When the last update was complete, on the event loop's clock; None before the first of this life."""
    training_s: float
    """Spent in jobs, in this life."""
    accuracy: float | None
    counts: PeerCounts
    merged: int
    scored: int
    refusals: Mapping[str, int]
    """Calls and models that the transport turned away, by reason, in this life."""
    due: float
    """When this will be told anew, on the event loop's clock."""
    first_val_accuracy: float | None = None
    """After the first training, before any model of another peer."""
    kept_val_accuracy: float | None = None
    """Of the model that it keeps, the best so far."""
    alone_val_accuracy: float | None = None
    """What training on its own data alone came to; None until that is known."""
    misfits: Mapping[str, str] = field(default_factory=dict)
    """Members that are there and have another network, and how it showed."""

# SPDX-License-Identifier: Apache-2.0
"""The history of a real peer, and the records of it that the peer leaves on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pens.data.samples import Array
from pens.learning.learners import Learners
from pens.measuring.records import PAIR_COUNTS, comparisons_of, history_of, pairs_of
from pens.measuring.results import History
from pens.network.node.learning import Learning
from pens.network.node.state import Records
from pens.protocol.messages import PeerId


@dataclass
class Past:
    """The part of a peer's history that neither the peer nor its learners count."""

    seconds: float = 0.0
    """Length of earlier lives."""
    completed: list[float] = field(default_factory=list)
    """When each version of the model was complete, in seconds of all lives."""
    received: list[int] = field(default_factory=list)
    """How many models had been received when each update began."""
    lives: int = 0


def compose_records(learning: Learning, past: Past, names: Mapping[PeerId, str], result: Mapping[str, Any]) -> Records:
    """The records that go to disk for others to read."""
    learners = learning.learners
    return Records(
        result=result,
        pairs=_pairs(learners, names),
        history=vars(_history(learners, past)),
        comparisons=_comparisons(learners, names),
        models=learning.tested_model(),
    )


def _named(peers: Array, names: Mapping[PeerId, str]) -> list[str]:
    """The names of peers, as far as they are known, otherwise their numbers."""
    return [names.get(PeerId(peer), str(peer)) for peer in peers.tolist()]


def _pairs(learners: Learners, names: Mapping[PeerId, str]) -> dict[str, dict[str, int]]:
    """The counts of each sender, by its name."""
    pairs = pairs_of(learners)
    counts = {name: getattr(pairs, name).tolist() for name in PAIR_COUNTS}
    senders = enumerate(_named(pairs.sender, names))
    return {sender: {name: column[row] for name, column in counts.items()} for row, sender in senders}


def _comparisons(learners: Learners, names: Mapping[PeerId, str]) -> dict[str, Array] | None:
    """The columns of `results.Comparisons`, with the senders' names; the only receiver is the peer."""
    found = comparisons_of(learners.comparisons)
    if not found:
        return None
    columns = {name: column for name, column in vars(found).items() if name != "receiver"}
    return {**columns, "sender": np.array(_named(found.sender, names))}


def _history(learners: Learners, past: Past) -> History:
    """The peer's updates at the times of its own clock; the only peer is number 0."""
    received = np.array(past.received, np.int64)
    found = history_of(learners, lambda _, versions: received[versions - 1])
    completed = np.array(past.completed, np.float64)[found.version - 1]
    return replace(found, time=completed, peer=np.zeros_like(found.peer))
